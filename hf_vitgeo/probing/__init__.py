"""A frozen backbone, a small head, a score (paper C)."""
