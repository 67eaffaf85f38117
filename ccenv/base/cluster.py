"""Ray: the one place that starts it. It reports nothing to anybody, and the signals stay with the command line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

from ccenv.base.errors import require_extra
from ccenv.base.interrupts import claim_signals

# Ray's own processes notice only after half a minute that their parent was killed. This program waits at a pipe, which the system
# closes when our process ends. Every second it lists the processes below ours; in the end it kills them. Start times tell a
# process from a later process with the same number.
_GUARD = """
import os, select, signal, sys
def below(top):
    parents, begun = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)], begun[int(entry)] = int(fields[1]), fields[19]
    found, layer = set(), {top}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer} - found
        found |= layer
    return {(process, begun[process]) for process in found - {os.getpid()}}, begun
found = set()
while not select.select([0], [], [], 1.0)[0]:
    found = below(int(sys.argv[1]))[0] or found
begun = below(0)[1]
for process, start in found:
    if begun.get(process) == start:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
"""
_guards: list[Any] = []  # of this process: none, or one


def _guard_cluster() -> None:
    """End Ray's processes with this process (Linux; elsewhere Ray's own rules hold)."""
    if sys.platform == "linux" and not _guards:
        command = [sys.executable, "-c", _GUARD, str(os.getpid())]
        _guards.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))


def start_ray(cores: int | None = None, address: str | None = None) -> Any:
    """Start Ray on this machine, or join a cluster; return the module.

    Ray's usage reports are switched off before it begins.

    Args:
        cores: of a cluster that is started here; a cluster that is joined has its own.
        address: of a cluster to join; None: start one here.

    Raises:
        MissingExtraError: if Ray is not installed.
        ConnectionError: if no cluster answers at the address.
    """
    require_extra("ray", "rllib")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray's own processes read it too
    import ray

    if address is None:
        _guard_cluster()
    here: dict[str, Any] = {} if address else {"num_cpus": cores, "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **here)
    claim_signals()
    return ray
