"""What a stretch of stream teaches, as maps that can be composed, stored and applied."""
