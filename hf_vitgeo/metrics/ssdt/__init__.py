"""SSDT: do patch tokens grow less alike with distance? See pure.py for the functions."""
