"""Label propagation on a graph of stored samples and classes."""
