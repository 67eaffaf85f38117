"""The hash of the code that determines the results of cells."""

from __future__ import annotations

from ccenv.base.provenance import code_hash
from ccenv.benchmarks.cells.curve import AttackCell, CurveCell
from ccenv.benchmarks.cells.packet import PacketCell


def cells_code() -> str:
    """Return the code hash in records of suites and of the board."""
    return code_hash(CurveCell, PacketCell, AttackCell)
