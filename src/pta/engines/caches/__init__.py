"""Class-keyed caches of samples."""
