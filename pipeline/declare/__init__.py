"""Declaration of studies: factors, panels, methods, claims and random streams.

It guarantees that a `Study` and its panels are valid once they exist, so that no other folder checks them again. The
spec of a study states everything that decides its numbers, and `streams` derives the random numbers of a trial only
from the names and values of its key. `source` loads the code of a study in any process; code that only a store
references is loaded if `trusted_files` lists it. Nothing here computes a trial or uses stores and clusters.
"""
