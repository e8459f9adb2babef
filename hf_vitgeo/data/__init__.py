"""Data sets, decoding, transforms and shifts."""
