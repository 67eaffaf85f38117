"""Batches with a kernel or with several agents behind them: rollouts in the kernel, flows that share a policy, duels."""
