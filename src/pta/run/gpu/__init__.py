"""Recorded programs, and copies to and from a GPU."""
