"""Work that does what no submission should: for tests of the process that it is done in."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.base.errors import InputError


@dataclass(frozen=True)
class Misbehaving:
    """One way to misbehave.

    Attributes:
        how: which one.
        cpu_s: beside the cap of a part.
    """

    how: str
    cpu_s: float = 0.0

    def run(self, progress: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
        progress(0, 1)
        if self.how == "burn":
            while True:
                pass
        if self.how == "burn in a child":
            subprocess.run([sys.executable, "-c", "while True: pass"], check=False)
        if self.how == "memory":
            return {"sum": float(np.ones(1 << 28).sum())}, {}
        if self.how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.how == "exit":
            os._exit(7)
        if self.how == "value":
            raise ValueError("two\nlines")
        if self.how == "refuse":
            raise InputError("x.json: too long")
        return {"process": os.getpid()}, {}
