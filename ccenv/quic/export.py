"""Export of a belief program for a QUIC stack: its C, and the stack's adapter."""

from __future__ import annotations

from importlib import resources

from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import unknown_name
from ccenv.live.export import ExportError
from ccenv.quic.program import CompiledProgram
from ccenv.quic.run import require_pacer
from ccenv.quic.stacks import STACKS

PREFIX = "quic:"
ADAPTERS = {
    "aioquic": (".py", "aioquic_control.py"),
    "picoquic": (".c", "picoquic.c.in"),
    "quinn": (".rs", "quinn/src/control.rs"),
}
TARGETS = tuple(f"{PREFIX}{name}" for name in STACKS)


def export_quic(
    target: str,
    program: Program,
    suffix: str,
    *,
    rtt_s: float | None = None,
    jitter_s: float = 0.0,
    chooser: str | PolicySender | None = None,
) -> str:
    """Write what a program or a shield needs in a stack; the stack's ACK policy and timers are added to D.

    The suffix ``.c`` is for its C, with picoquic's adapter for picoquic, ``.py`` (aioquic) and ``.rs`` (quinn) for the adapter.

    Raises:
        UnknownNameError: for an unknown target.
        QuicError: if nobody paces on the stack.
        ExportError: for another suffix, or a program that cannot be exported.
    """
    if target not in TARGETS:
        raise unknown_name("export target", target, TARGETS)
    stack = STACKS[target.removeprefix(PREFIX)]
    require_pacer(stack, program.name)
    ending, adapter = ADAPTERS[stack.name]
    compiled = CompiledProgram(program, stack.widened_s(jitter_s, 0.0), rtt_s, chooser)
    if suffix == ".c":
        return compiled.text(*([adapter] if ending == ".c" else []))
    if suffix == ending:
        return resources.files("ccenv.quic.adapters").joinpath(adapter).read_text(encoding="utf-8")
    endings = " or ".join(dict.fromkeys((".c (the program)", f"{ending} (the adapter)")) if ending != ".c" else [".c"])
    raise ExportError(f"for {target} give a file that ends with {endings}")
