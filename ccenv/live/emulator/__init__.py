"""The emulated network of live runs: one compiled loop between two devices."""
