"""Point-in-box: does the best patch lie on the object? See pure.py for the functions."""
