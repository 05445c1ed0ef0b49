"""What the documents show of the results: one file per page, one function per table. It gives the head and the rows."""
