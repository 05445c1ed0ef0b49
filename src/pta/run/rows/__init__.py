"""Answers as rows, and a stream that can be resumed."""
