"""A model and pictures in, numbers out: one file a question."""
