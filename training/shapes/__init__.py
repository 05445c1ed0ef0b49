"""Procedural shapes: composed solids of many classes, with random proportions and parts, from a seed alone."""
