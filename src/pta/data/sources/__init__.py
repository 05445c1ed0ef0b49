"""Kinds of places that hold samples: how each is recognised, listed and opened."""
