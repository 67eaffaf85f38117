"""Rollouts inside compiled kernels: actor and critic, and the loops over both engines."""
