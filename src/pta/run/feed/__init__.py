"""Decoding in parallel with encoding."""
