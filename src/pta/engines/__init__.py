"""The computations of the methods, exact and batched, on the host or on a GPU."""
