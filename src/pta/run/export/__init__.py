"""Frozen states as files that run without torch; each is run and compared with the library before it is written."""
