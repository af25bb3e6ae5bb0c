"""Division of a study into blocks of trials, and computation of blocks."""
