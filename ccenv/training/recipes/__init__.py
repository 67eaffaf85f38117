"""Recipes of the literature on top of PPO: certificates, imitation, preferences, curricula by the gap to a baseline."""
