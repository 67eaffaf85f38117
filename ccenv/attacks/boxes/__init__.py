"""Attacks per packet: the delay element as adversary."""
