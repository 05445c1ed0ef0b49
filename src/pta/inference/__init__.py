"""Encoders, data and methods put together: from files to features, from pictures to answers."""
