"""A service: named streams of samples in, answers out. What is acknowledged is kept, learned once, and undoable."""
