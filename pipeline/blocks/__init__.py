"""A study in blocks of trials, and how one block is computed."""
