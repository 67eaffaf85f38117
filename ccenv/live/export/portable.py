"""Export of a belief program as plain C for senders outside a kernel: the BPF export without what only a kernel has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources

from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender
from ccenv.live.export.bpf import USER, ExportError, export_bpf

_CONDITION = re.compile(r"#(ifdef|ifndef|if|elif|else|endif|define|include)\b\s*(.*)")
_DEFINED = re.compile(r"(!?)\s*defined\((\w+)\)")
_DECIDED = ("HOST", "HOST_STATE", "HOST_RUN", "RECORD", "ASKED", "SHIELD", "POLICY", "EVER_DELAY", "FOURCP", "WINDOW")
_TITLE = """\
 * Plain C without allocation, static state or floating point; needs nothing but this file. ccenv_begin() starts a flow and
 * ccenv_ack() takes an ACK; both tell window and pacing rate, which must be kept: the program's proofs assume a paced sender.
"""


def export_portable(
    program: Program, *, rtt_s: float | None = None, jitter_s: float = 0.0, chooser: str | PolicySender | None = None
) -> str:
    """Write a belief program as C with the interface of ``host.h``: ``ccenv_begin``, ``ccenv_ack`` on a caller's flow.

    Args:
        program: the program, or a shield.
        rtt_s: Rm if known; None: the smallest RTT measured.
        jitter_s: D that the beliefs assume.
        chooser: of a shield, and only of one: ``lo``, ``middle``, ``hi``, or a policy, which is compiled in.

    Raises:
        ExportError: as :func:`ccenv.live.export.bpf.export_bpf`, and for a chooser in another process.
    """
    if chooser == USER:
        raise ExportError(f"{program.name}: no process chooses for a QUIC stack; give -s chooser=lo, middle, hi or policy")
    text = export_bpf(program, name="ccenv", rtt_s=rtt_s, jitter_s=jitter_s, chooser=chooser)
    host = resources.files(__package__).joinpath("host.h").read_text(encoding="utf-8")
    head, _, body = text.partition("\n */\n")
    title, _, body = body.partition("*/\n")
    names = {"SHIELD"} if chooser is not None else set()
    if isinstance(chooser, PolicySender):
        names.add("POLICY")
    numbers = title.partition(" * All arithmetic")[2]
    plain = "\n".join(_resolve(body.splitlines(), {"HOST", *names}, host))
    return f"{head}\n */\n/*\n{_TITLE} *\n * All arithmetic{numbers}*/\n{plain}\n"


def _resolve(lines: Iterable[str], defined: set[str], host: str) -> list[str]:
    """Decide the conditions on ``_DECIDED``; other lines and conditions stay."""
    out: list[str] = []
    taken: list[
        tuple[bool | None, bool]
    ] = []  # per open condition: whether it holds now (None: not decided here) and whether it ever did
    for line in lines:
        match = _CONDITION.match(line)
        word, rest = (match[1], match[2]) if match else ("", "")
        live = all(holds is not False for holds, _ in taken)
        if word in ("ifdef", "ifndef", "if"):
            holds = _holds(word, rest, defined)
            taken.append((holds, bool(holds)))
            if holds is not None:
                continue
        elif word in ("elif", "else", "endif") and taken[-1][0] is not None:
            _, before = taken.pop()
            if word != "endif":
                now = not before and (word == "else" or bool(_holds("if", rest, defined)))
                taken.append((now, before or now))
            continue
        elif word == "endif":
            taken.pop()
        elif word == "define" and rest.split()[0] in _DECIDED:
            if live:
                defined.add(rest.split()[0])
            continue
        elif word == "include" and live:
            out += _resolve(host.splitlines(), defined, host)
            continue
        if live and not (line == "" and out and out[-1] == ""):
            out.append(line)
    return out


def _holds(word: str, rest: str, defined: set[str]) -> bool | None:
    """Return whether a condition holds; None if it is not about ``_DECIDED``."""
    terms = [("!" if word == "ifndef" else "", rest.strip())] if word != "if" else _DEFINED.findall(rest)
    if not all(name in _DECIDED for _, name in terms):
        return None
    values = [(name in defined) != (sign == "!") for sign, name in terms]
    return all(values) if "&&" in rest else any(values)
