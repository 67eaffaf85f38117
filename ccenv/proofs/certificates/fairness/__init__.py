"""Certificates of the theorem about any number of flows (docs/fairness.md), and a checker that shares no code with its prover."""
