"""Synthesis queries: ccenv synth NAME."""
