"""The journal: every learned sample and every operation, on the disk before it is acknowledged."""
