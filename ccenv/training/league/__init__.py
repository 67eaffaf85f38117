"""Populations of senders and networks that answer each other: best responses, equilibria, and what these leave open."""
