"""Leagues: populations of senders and networks that answer each other by best responses; equilibria and exploitability."""
