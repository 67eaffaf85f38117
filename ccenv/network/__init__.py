"""Networks as data: paths, models, traces, the checker of laws, metrics, links of varying rate, and moves of adversaries."""
