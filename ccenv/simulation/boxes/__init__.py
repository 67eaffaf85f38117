"""Adversaries of the packet-level delay element: their patterns and policies, goals, and the game."""
