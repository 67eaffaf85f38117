"""Belief programs as C for the kernel's BPF congestion controls (docs/live.md)."""

from __future__ import annotations

from ccenv.live.export.bpf import ExportError, export_bpf

__all__ = ["ExportError", "export_bpf"]
