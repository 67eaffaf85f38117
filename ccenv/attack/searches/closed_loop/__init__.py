"""Searches over small policies that see what the network sees and answer each of the sender's steps."""
