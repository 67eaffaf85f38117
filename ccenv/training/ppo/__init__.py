"""PPO with rollouts in the kernel."""
