"""`make mutants`: change the code of the core in small wrong ways, one at a time, and see whether a test notices.

1. Every test of `covering.FILES` runs once on the unchanged code, which gives its time and the lines of the core that
   it runs.
2. Lines are drawn by a seed, and one change of each (`mutations.py`).
3. Each change is made in a copy of the tree and tested there: first by the tests that run its lines (for a constant,
   the lines that name it), then by others of its file; those in the file's own test file first, then by what a test
   costs; as many as take `covering.BUDGET` seconds on the unchanged code. A change that crashes, or takes PATIENCE
   times as long as that, is noticed too.

Changes that make no difference are listed with the reason in `equivalents.toml` and are not counted. The result is
`benchmarks/results/mutants.csv`.
"""
