"""Measurements. Each is ``python -m benchmarks.NAME``; its last line is one JSON object."""
