"""Supervised training on Accelerate."""
