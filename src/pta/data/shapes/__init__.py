"""Procedural shapes: composed solids of many classes, with random proportions and parts, from a seed alone."""

from pta.data.shapes.draw import SHAPE_CLASSES, Split, draw_clouds

__all__ = ["SHAPE_CLASSES", "Split", "draw_clouds"]
