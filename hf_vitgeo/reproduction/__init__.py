"""Whole experimental sections again: grids of runs, and the papers' claims with verdicts."""
