"""Intervals, comparisons, profiles and summaries of results."""
