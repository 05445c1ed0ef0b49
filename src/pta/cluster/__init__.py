"""One stream on many machines: cut into blocks by sample number, computed in parallel, equal to a single process."""
