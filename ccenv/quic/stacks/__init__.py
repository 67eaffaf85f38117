"""QUIC stacks: one file each."""

from __future__ import annotations

from ccenv.base.errors import unknown_name
from ccenv.quic.stacks.aioquic import Aioquic
from ccenv.quic.stacks.picoquic import Picoquic
from ccenv.quic.stacks.quinn import Quinn
from ccenv.quic.stacks.stack import QuicError, Stack

STACKS: dict[str, Stack] = {stack.name: stack for stack in (Aioquic(), Picoquic(), Quinn())}


def get_stack(name: str) -> Stack:
    """Return a stack that can run here.

    Raises UnknownNameError for an unknown name; QuicError if it is not installed, or of another version.
    """
    if name not in STACKS:
        raise unknown_name("QUIC stack", name, STACKS)
    if reason := STACKS[name].missing():
        raise QuicError(reason)
    return STACKS[name]
