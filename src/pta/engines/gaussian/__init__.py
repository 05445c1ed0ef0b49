"""Gaussians, least squares and transduction."""
