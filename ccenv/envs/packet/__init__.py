"""Environments per packet: a batch of networks drawn from a scenario distribution, decisions from outside."""
