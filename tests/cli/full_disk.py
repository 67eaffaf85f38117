"""Run the command line as on a full disk, after so many bytes a file: python full_disk.py BYTES ARGUMENTS."""

from __future__ import annotations

import resource
import signal
import sys

from ccenv.cli.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write fails, as one on a full disk does
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.exit(main(sys.argv[2:]))
