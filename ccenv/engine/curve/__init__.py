"""The curve engine: byte curves on a grid of steps, many environments and flows a call."""
