"""A service: named streams of samples in, answers out; what was acknowledged is kept, learned once, and can be undone."""
