"""Blocks of one stream as functions of tensors, which know nothing of a cluster."""
