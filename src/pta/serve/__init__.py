"""A service: named streams of samples in, answers out; what is acknowledged is kept, learned once and can be undone."""
