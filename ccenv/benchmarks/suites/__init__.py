"""Benchmark suites: ccenv bench run NAME."""
