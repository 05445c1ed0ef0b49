"""Running methods over streams, and measuring the results."""
