"""QUIC stacks as they are, in virtual time under legal networks: runs, attacks, export, what a qlog proves (docs/quic.md)."""
