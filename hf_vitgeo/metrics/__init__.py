"""The measures: an `evaluate` module in each folder, and its functions in `pure.py`."""
