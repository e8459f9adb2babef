"""Attention locality: distance, entropy, support. See pure.py for the functions."""
