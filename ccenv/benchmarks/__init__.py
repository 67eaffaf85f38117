"""Benchmark suites as data, the runner that plays them, statistics and reports."""
