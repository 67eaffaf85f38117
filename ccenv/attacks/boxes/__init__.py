"""Attacks per packet, with delay elements as adversaries."""
