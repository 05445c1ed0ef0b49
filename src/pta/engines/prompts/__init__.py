"""Gradients of prompts, choices among views, patches and tokens."""
