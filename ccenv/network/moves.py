"""Stored moves of a network, ``NAME.moves.npz``: what an attack played, step by step, to be played again elsewhere."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.document import Format, canonical_json
from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import JsonRules, parse_json, read_arrays, read_bounded, shown_path
from ccenv.network.adversary import RecordedAdversary, moves_width
from ccenv.network.path import Path

SUFFIX = ".moves.npz"
MAX_BYTES = 64 << 20
FORMAT = Format("ccenv-moves", 1, "stored moves", rules=JsonRules(max_bytes=1 << 20, max_depth=12, max_values=65_536))


class MovesHeader(StrictModel):
    """What a file of moves says about itself.

    Attributes:
        path: the path that they were found on.
        model: its network model.
        steps_per_rtt: K: a row is one step.
        dt_s: length of a step.
        first_row: step after which the measured window starts.
        sender: whom they were found against.
        adversary: who found them.
        utilisation: what they left of the link there.
    """

    path: Path
    model: str
    steps_per_rtt: int = Field(ge=1, strict=True)
    dt_s: float = Field(gt=0, allow_inf_nan=False)
    first_row: int = Field(ge=0, strict=True)
    sender: str
    adversary: str
    utilisation: float = Field(allow_inf_nan=False)


@dataclass(frozen=True)
class StoredMoves:
    """Moves and where they come from.

    Attributes:
        header: where they come from.
        moves: (steps, 2 + 2 N) in [0, 1]: waste, rate, service per flow, loss per flow.
    """

    header: MovesHeader
    moves: np.ndarray

    @property
    def adversary(self) -> RecordedAdversary:
        """The player; after the last row it repeats that."""
        return RecordedAdversary(f"moves of {self.header.adversary} against {self.header.sender}", self.moves)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the file at once or not at all."""
        header = {**FORMAT.head, **self.header.model_dump(), "path": self.header.path.to_dict()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            header=np.frombuffer(canonical_json(header).encode(), np.uint8),
            moves=np.ascontiguousarray(self.moves, dtype="<f8"),
        )
        write_atomic(file, buffer.getvalue())


def load_moves(file: str | os.PathLike[str]) -> StoredMoves:
    """Read stored moves.

    Raises:
        InputError: if it is no such file, is damaged, or its moves are no numbers from 0 to 1 of one row per step.
    """
    name = shown_path(FilePath(file))
    arrays = read_arrays(read_bounded(FilePath(file), MAX_BYTES), name, {"header": "|u1", "moves": "<f8"}, MAX_BYTES)
    if set(arrays) != {"header", "moves"}:
        raise InputError(f"{name}: not {FORMAT.what}; it has {', '.join(sorted(arrays))}")
    data = FORMAT.check(parse_json(arrays["header"].tobytes(), name, FORMAT.rules), name)
    header = validate(MovesHeader, {k: v for k, v in data.items() if k not in FORMAT.head}, name)
    moves, width = arrays["moves"], moves_width(header.path.n_flows)
    if moves.ndim != 2 or moves.shape[1] != width or len(moves) == 0:
        raise InputError(f"{name}: moves of shape {moves.shape}; (steps, {width}) is needed")
    if not (np.isfinite(moves).all() and moves.min() >= 0 and moves.max() <= 1):
        raise InputError(f"{name}: moves are numbers from 0 to 1")
    return StoredMoves(header, moves)
