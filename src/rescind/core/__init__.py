"""The mathematics of forgetting: pure functions and frozen dataclasses on numpy and scipy.

Nothing here reads a file, a clock or a random source. The statements that the functions implement,
with their proofs, are in ``docs/theory.md``; ``docs/paper-map.md`` leads from the paper's equations here.
"""
