"""Runs of studies: `run`, `resume`, `extend` and `submit` make a plan of validated input, and one path carries it out.

`options` validates the options of all four, `run_plan` makes plans, `session` computes them in a session of the store,
`adaptive` in rounds of trials, and `submission` on a scheduler. `estimate` forecasts cost and errors, `resolve` finds
the study of a store, `progress` counts evaluations, and `verify` compares stored trials with recomputed ones. Nothing
is written while a plan is made, and a plan does not change.
"""
