"""Environments for Stable-Baselines3 and RLlib."""
