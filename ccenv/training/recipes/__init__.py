"""What recipes of the literature add to PPO: certificates, imitation, preferences, curricula by the gap to a baseline."""
