"""Adversaries that search for the legal network that hurts a sender most."""
