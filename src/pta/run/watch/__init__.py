"""Watching: regions of cameras whose answers are confirmed, and what happens when a confirmed answer changes."""
