"""Orders in which samples arrive."""
