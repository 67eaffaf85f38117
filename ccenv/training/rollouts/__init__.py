"""Stable-Baselines3's PPO with rollouts from the kernel: its buffer, losses, logging and callbacks stay its own."""
