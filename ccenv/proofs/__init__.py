"""Proofs and counterexamples: network laws, beliefs and senders as formulas, and their exact replay. See docs/verification.md."""
