"""The worker process of a live run, started by ``ccenv.live.run`` with a file descriptor and the parent's process id.

Only the worker enters namespaces, so everything that it creates ends with it, also after a kill. It reads a JSON document from
standard input and writes one answer to the file descriptor: an .npz of arrays, or JSON with an error.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

from ccenv.base.interrupts import end_with_parent
from ccenv.live.requirements import Refused

_SENDERS, _RECEIVERS = 0, 1


def main(answer_fd: int, parent: int) -> int:
    """Make the run described on standard input and write the answer; ``parent`` is a process id."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        content = _answer(request, parent)
    except Refused as error:
        content = json.dumps({"error": str(error), **error.fields}).encode()
    with os.fdopen(answer_fd, "wb") as file:
        file.write(content)
    return 0


def _end_with(parent: int) -> None:
    """End with the parent. The credentials of a new user namespace undo this, so it is repeated after them."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _answer(request: dict[str, Any], parent: int) -> bytes:
    from ccenv.live.system import spaces

    _end_with(parent)
    inside = os.geteuid() != 0
    if inside:
        try:
            spaces.become_root_inside()
        except OSError as error:
            raise Refused(f"user namespaces are off here ({error.strerror}); run as root") from None
        _end_with(parent)
    try:
        return _run(request, "user namespace" if inside else "root")
    except OSError as error:
        raise Refused(f"the system refused to set up the run ({error.strerror or error})") from None


def _run(request: dict[str, Any], privileges: str) -> bytes:
    from ccenv.live.emulator.layout import FIRST_PORT, FIRST_SINK_PORT
    from ccenv.live.system.sockets import Sockets
    from ccenv.live.system.spaces import open_ends

    scenario = request["scenario"]
    n = len(scenario["flows"])
    sockets = Sockets()

    def in_space(number: int) -> None:
        if number == _SENDERS:
            sockets.make_senders(n, request["buffer_bytes"], FIRST_PORT)
        else:
            sockets.make_listeners(n, request["buffer_bytes"], FIRST_SINK_PORT)

    try:
        ends = open_ends(
            scenario["device"],
            mtu=int(scenario["mss_bytes"]),
            burst_packets=scenario["packets_per_burst"],
            quick_ack=scenario["quick_ack"],
            in_space=in_space,
        )
    except OSError as error:
        device = "AF_PACKET" if scenario["device"] == "packet" else "/dev/net/tun"
        reason = f"{device} cannot be opened ({error.strerror})"
        advice = "run as root, or: sudo chmod 0666 /dev/net/tun"
        raise Refused(f"{reason}; {advice}") from None
    from ccenv.live.run import play

    return play(request, ends, sockets, privileges)


if __name__ == "__main__":
    gc.disable()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
