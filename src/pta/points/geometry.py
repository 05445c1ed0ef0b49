"""How encoders divide a cloud: centres far apart, and the points around each."""

from pta.points.farthest import Sampling, farthest_points
from pta.points.neighbours import nearest_points

__all__ = ["Sampling", "farthest_points", "nearest_points"]
