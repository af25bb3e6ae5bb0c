"""Runs until a Monte Carlo precision is reached or claims are decided: targets, goals and stopping rules.

It guarantees that a goal reads only committed trials, and that intervals and claims keep their level although a run
looks at them repeatedly. A goal states the number of trials that each cell and setting requires next, or the reason why
it requires none. `targets` parses the text of a target once. Nothing here computes a trial or writes.
"""
