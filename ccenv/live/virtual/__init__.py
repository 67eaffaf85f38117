"""A real Linux kernel in virtual time: user-mode Linux with a preloaded clock (docs/live.md)."""
