"""Running methods over streams and saying what came of it."""
