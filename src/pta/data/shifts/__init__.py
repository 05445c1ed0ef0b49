"""Shifted data, made from clean data."""
