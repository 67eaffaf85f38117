"""Belief programs, and ``ever_delay``, as C for the kernel's BPF congestion controls (docs/live.md)."""

from __future__ import annotations

from typing import Any

from ccenv.live.export.bpf import ExportError, export_bpf, load_exported
from ccenv.live.export.ever_delay import export_ever_delay, load_ever_delay

__all__ = ["ExportError", "export_bpf", "export_ever_delay", "export_sender"]


def export_sender(spec: str, *, jitter_s: float, chooser: str | None, **options: Any) -> str:
    """Write a sender's C: of a belief program or a contract (:func:`export_bpf`), or of ``ever_delay``.

    Raises:
        ExportError: for a sender or numbers that cannot be exported.
        UnknownNameError: for an unknown name.
    """
    sender = load_ever_delay(spec)
    if sender is None:
        exported = load_exported(spec, chooser)
        return export_bpf(exported.program, jitter_s=jitter_s, chooser=exported.chooser, **options)
    for key, value, instead in (("jitter_s", jitter_s, "its design says D: jitter_rtts"), ("chooser", chooser, "nobody chooses")):
        if value:
            raise ExportError(f"{spec!r} takes no -s {key}: {instead}")
    return export_ever_delay(sender, **options)
