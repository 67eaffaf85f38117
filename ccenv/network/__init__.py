"""What a network may do and what happened: paths, models, traces, laws, and the interfaces of senders and adversaries."""
