"""Blocks as files, tasks and Ray workers."""
