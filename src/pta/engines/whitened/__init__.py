"""Prototypes in a metric that whitens samples within their classes."""
