"""Training by config: PPO for senders, checkpoints that resume exactly, evaluation on held-out paths.

Nothing heavy is imported here; torch and Stable-Baselines3 are imported when a run starts.
"""
