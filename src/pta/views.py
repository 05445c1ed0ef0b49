"""Augmented views of one picture."""
