"""The code that decides what cells of played and attacked runs come to."""

from __future__ import annotations

from ccenv.benchmarks.cells.attack import AttackCell
from ccenv.benchmarks.cells.curve import CurveCell
from ccenv.benchmarks.cells.packet import PacketCell
from ccenv.base.provenance import code_hash


def cells_code() -> str:
    """Return the hash that records of suites and of the board hold."""
    return code_hash(CurveCell, PacketCell, AttackCell)
