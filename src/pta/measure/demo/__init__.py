"""The demonstration: shifted samples through zero-shot, PTA and other methods, and a report of the results."""
