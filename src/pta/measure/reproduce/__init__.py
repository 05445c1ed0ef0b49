"""The paper's tables and figures: declared, planned, measured and filled in."""
