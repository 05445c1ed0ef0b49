"""Encoders, data and methods combined: files to features, samples to predictions."""
