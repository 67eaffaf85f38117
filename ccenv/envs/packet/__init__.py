"""Environments on the packet engine: batches of networks drawn from a scenario distribution, with external decisions."""
