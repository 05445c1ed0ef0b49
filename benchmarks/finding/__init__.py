"""The measurements behind docs/findings.md, one file a finding; `python benchmarks/findings.py FOLDER` runs them."""
