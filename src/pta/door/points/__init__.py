"""Point clouds: files to n×3 arrays, and the geometry that encoders need."""
