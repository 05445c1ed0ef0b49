"""Pages, tables and figures: everything that is written for readers."""
