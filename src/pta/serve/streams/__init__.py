"""Streams that learn: the path of a sample, operations, snapshots and replay."""
