"""The code that decides what cells of played and attacked runs come to."""

from __future__ import annotations

from ccenv.base.provenance import code_hash
from ccenv.benchmarks.cells.curve import AttackCell, CurveCell
from ccenv.benchmarks.cells.packet import PacketCell


def cells_code() -> str:
    """Return the hash that records of suites and of the board hold."""
    return code_hash(CurveCell, PacketCell, AttackCell)
