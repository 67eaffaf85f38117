"""What an exported program needs beside its C in a stack: written out by ``ccenv export``, and used by ``ccenv quic run``."""
