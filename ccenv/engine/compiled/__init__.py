"""Compiled pieces that both engines call: random numbers, signals, policies, programs, beliefs, observations."""
