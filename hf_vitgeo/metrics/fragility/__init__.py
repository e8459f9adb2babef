"""Fragility: the accuracy lost to a shift. See pure.py for the functions."""
