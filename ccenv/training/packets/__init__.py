"""Training per packet: opponents of robust rounds."""
