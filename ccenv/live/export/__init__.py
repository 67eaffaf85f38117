"""Belief programs, ``ever_delay`` and 4CP as C for the kernel's BPF congestion controls (docs/live.md)."""

from __future__ import annotations

from typing import Any

from ccenv.live.export.bpf import ExportError, export_bpf, load_exported
from ccenv.live.export.ever_delay import export_ever_delay, load_ever_delay
from ccenv.live.export.fourcp import export_fourcp, load_fourcp

__all__ = ["ExportError", "export_bpf", "export_ever_delay", "export_fourcp", "export_sender"]


def export_sender(spec: str, *, jitter_s: float, chooser: str | None, **options: Any) -> str:
    """Write a sender's C: of a belief program or a contract (:func:`export_bpf`), of ``ever_delay`` or of 4CP.

    Raises:
        ExportError: for a sender or numbers that cannot be exported.
        UnknownNameError: for an unknown name.
    """
    fair, fourcp = load_ever_delay(spec), load_fourcp(spec)
    if fair is not None:
        _refuse(spec, jitter_s=(jitter_s, "its design says D: jitter_rtts"), chooser=(chooser, "nobody chooses"))
        return export_ever_delay(fair, **options)
    if fourcp is not None:
        rtt_s = options.pop("rtt_s", None)
        _refuse(spec, jitter_s=(jitter_s, "it has no D"), chooser=(chooser, "nobody chooses"), rtt_s=(rtt_s, "it needs no Rm"))
        return export_fourcp(fourcp, **options)
    exported = load_exported(spec, chooser)
    return export_bpf(exported.program, jitter_s=jitter_s, chooser=exported.chooser, **options)


def _refuse(spec: str, **settings: tuple[Any, str]) -> None:
    for key, (value, instead) in settings.items():
        if value:
            raise ExportError(f"{spec!r} takes no -s {key}: {instead}")
