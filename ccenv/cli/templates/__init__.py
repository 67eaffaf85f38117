"""What ``ccenv new`` writes: each file works as it is, and tests run it."""
