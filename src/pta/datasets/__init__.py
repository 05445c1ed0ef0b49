"""Labelled data to adapt on and to measure with."""
