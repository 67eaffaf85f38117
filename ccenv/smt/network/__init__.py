"""The network as constraints: settings, samples, laws, beliefs, moves."""
