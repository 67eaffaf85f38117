"""Types of network adversaries (``ccenv.adversaries`` registers them), and stored moves, ``NAME.moves.npz``.

A file of moves holds what an attack played step by step, so that it can be replayed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import Format, canonical_json, write_atomic
from ccenv.base.foreign import JsonRules, parse_json, read_arrays, read_bounded, shown_path
from ccenv.base.registry import spec_text
from ccenv.network.path import Path

# Columns of a row of moves: waste, rate, then service per flow, then loss per flow.
WASTE, RATE, FIRST_SERVICE = range(3)


def moves_width(n_flows: int) -> int:
    return FIRST_SERVICE + 2 * n_flows


@dataclass(frozen=True)
class ScriptedAdversary:
    """Compiled moves: ``init(state, view)`` once per flow, ``play(state, view, move)`` per flow and step.

    Structs are those of ``ccenv.agents.callbacks``: ADVERSARY_STATE (or a type with at most as many fields), VIEW, MOVE.
    ``source_sha256`` is the hash of the file it was loaded from; empty for shipped ones.
    """

    name: str
    state: np.dtype
    init: Callable[[Any, Any], None]
    play: Callable[[Any, Any, Any], None]
    parameters: dict[str, float] = field(default_factory=dict)
    source_sha256: str = ""

    def __repr__(self) -> str:
        return f"ScriptedAdversary({spec_text(self.name, self.parameters)})"


@dataclass(frozen=True)
class ExternalAdversary:
    """Moves come from outside (an environment's action), one set per call of ``advance``."""

    name: str = "external"


@dataclass(frozen=True)
class RecordedAdversary:
    """Moves recorded per step, e.g. from a solver's counterexample.

    ``moves`` are (steps, 2 + 2 * n_flows) in [0, 1]: waste, rate, service per flow, loss per flow. After the last row they start
    over if periodic, otherwise the last row is repeated. ``name`` is their origin.
    """

    name: str
    moves: np.ndarray
    periodic: bool = False

    def __repr__(self) -> str:
        return f"RecordedAdversary({self.name}: {len(self.moves)} steps{', over and over' if self.periodic else ''})"


@dataclass(frozen=True)
class MlpAdversary:
    """A frozen policy over the Network-v0 observation, evaluated in the kernel.

    Attributes:
        weights: one (n_in, n_out) float64 array per layer; n_in is the length of the observation for the number of flows.
        biases: one (n_out,) float64 array per layer.
        activation: ``"tanh"`` or ``"relu"`` between the layers; the last layer is linear.
        observation_version: version of the observation table that it was trained on.
        columns: the moves it makes, as columns of (waste, rate, service per flow, loss per flow); the others are benign.
        decision_steps: engine steps for which moves are kept; 0: one smallest Rm.
        episode_rtts: length of the training episodes, to which the observation's elapsed share refers.
        levels: 0: one output per move, clipped to [0, 1]; n: the last layer has n outputs per move, scores of the n evenly
            spaced values from 0 to 1, and the value with the highest score is played (the lowest of equals).
    """

    name: str
    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    observation_version: int
    columns: tuple[int, ...]
    decision_steps: int = 0
    episode_rtts: int = 64
    levels: int = 0

    def __repr__(self) -> str:
        n_numbers = sum(array.size for array in (*self.weights, *self.biases))
        return f"MlpAdversary({self.name}: {len(self.columns)} moves, {len(self.weights)} layers, {n_numbers} numbers)"


Adversary = ScriptedAdversary | ExternalAdversary | RecordedAdversary | MlpAdversary


SUFFIX = ".moves.npz"
MAX_BYTES = 64 << 20
FORMAT = Format("ccenv-moves", 1, "stored moves", rules=JsonRules(max_bytes=1 << 20, max_depth=12, max_values=65_536))


class MovesHeader(StrictModel):
    """Header of a file of moves: the attacked run, a row a step; the window of ``utilisation`` starts after ``first_row``."""

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
    """Moves, (steps, 2 + 2 N) in [0, 1]: waste, rate, service per flow, loss per flow; and their origin."""

    header: MovesHeader
    moves: np.ndarray

    @property
    def adversary(self) -> RecordedAdversary:
        """The adversary that replays the moves; it repeats the last row."""
        return RecordedAdversary(f"moves of {self.header.adversary} against {self.header.sender}", self.moves)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the file atomically."""
        header = {**FORMAT.head, **self.header.model_dump(), "path": self.header.path.to_dict()}
        content = np.frombuffer(canonical_json(header).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, header=content, moves=np.ascontiguousarray(self.moves, dtype="<f8"))
        write_atomic(file, buffer.getvalue())


def load_moves(file: str | os.PathLike[str]) -> StoredMoves:
    """Read stored moves.

    Raises InputError if it is no such file, is damaged, or its moves are no numbers from 0 to 1 of one row per step.
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
