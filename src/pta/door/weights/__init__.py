"""Weights from files, without running code in them."""
