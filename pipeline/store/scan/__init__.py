"""Blocks that a store asks for: its part of a run, and the numbers of trials per cell and setting."""
