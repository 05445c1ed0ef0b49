"""Models of point clouds."""
