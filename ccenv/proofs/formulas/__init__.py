"""The network as formulas."""
