"""Checkpoints: the complete state of a training run as one safetensors file and a JSON file, never pickle.

``state.json`` names the tensors' file and its hash and is written last, so an interruption leaves either the previous or the new
checkpoint, never half of one.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import Format, write_atomic
from ccenv.base.foreign import read_bounded, resolve_inside
from ccenv.base.foreign.tensors import TYPES, read_typed

FORMAT = Format("ccenv-checkpoint", 4, "a checkpoint", older="--restart discards it", indent=2)
STATE = "state.json"
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
MAX_TENSOR_BYTES = 2 << 30  # memories of off-policy learners are the largest part


@dataclass(frozen=True)
class TrainingState:
    """Everything that decides the rest of a run, taken between two iterations."""

    iteration: int
    seconds: float  # wall time so far, with the evaluations and attacks during training
    cpu_seconds: float  # processor time of the same, summed over threads
    tensors: dict[str, np.ndarray]  # named arrays: `policy.*`, `optimizer.*`, `memory.*`, `env.*`
    marks: dict[str, float] = field(default_factory=dict)  # results of evaluations so far (`ccenv.training.run`)


class StateCard(StrictModel):
    """``state.json``: a :class:`TrainingState`, with the name and hash of its tensors' file."""

    format: str
    version: int
    observation_version: int = Field(strict=True)
    iteration: int = Field(ge=0, strict=True)
    seconds: Number
    cpu_seconds: Number
    marks: dict[str, Number]
    tensors: str
    sha256: str


def write_checkpoint(folder: FilePath, state: TrainingState) -> None:
    """Write a checkpoint into a folder; older ones are removed once it is complete."""
    require_extra("safetensors", "train")
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: np.ascontiguousarray(array) for name, array in state.tensors.items()})
    name = f"iteration-{state.iteration}.safetensors"
    write_atomic(folder / name, content)
    card = {
        "observation_version": OBSERVATION_VERSION,
        "iteration": state.iteration,
        "seconds": state.seconds,
        "cpu_seconds": state.cpu_seconds,
        "marks": state.marks,
        "tensors": name,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    FORMAT.write(folder / STATE, card)
    for old in folder.glob("iteration-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_checkpoint(folder: FilePath) -> TrainingState | None:
    """Read the checkpoint of a folder; None if there is none. Raises InputError if it is damaged or foreign."""
    card_file = folder / STATE
    if not card_file.is_file():
        return None
    card = validate(StateCard, FORMAT.read(card_file), str(card_file))
    if card.observation_version != OBSERVATION_VERSION:
        raise InputError(
            f"{card_file}: observation_version is {card.observation_version}; it must be {OBSERVATION_VERSION}, the version of "
            "this ccenv: choose another --out, or --fresh to discard it"
        )
    tensors_file = resolve_inside(folder, card.tensors, f"{card_file}: tensors")
    content = read_bounded(tensors_file, MAX_TENSOR_BYTES)
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise InputError(f"{tensors_file}: does not belong to its state.json (sha256 differs): truncated or changed")
    tensors = read_typed(content, str(tensors_file), TYPES, max_tensors=4096, max_header_bytes=1 << 20)
    return TrainingState(card.iteration, card.seconds, card.cpu_seconds, tensors, card.marks)


def select_tensors(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}


def load_moments(tensors: dict[str, np.ndarray], prefix: str, separator: str) -> dict[int, dict[str, np.ndarray]]:
    """Return the moments of an optimiser by index and name, of tensors called prefix, index, separator, name."""
    state: dict[int, dict[str, np.ndarray]] = {}
    for name, array in select_tensors(tensors, prefix).items():
        index, _, moment = name.partition(separator)
        state.setdefault(int(index), {})[moment] = array
    return state


def pack_torch(policy: Any, optimizers: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return copies of a policy's weights and its Adam optimisers' moments as named arrays."""
    out = {f"policy.{name}": value.detach().numpy().copy() for name, value in policy.state_dict().items()}
    for owner, optimizer in optimizers.items():
        for index, moments in optimizer.state_dict()["state"].items():
            for name, value in moments.items():
                out[f"optimizer.{owner}.{index}.{name}"] = value.detach().numpy().copy()
    return out


def unpack_torch(policy: Any, optimizers: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Put weights and moments back into a policy of the same shape. Raises InputError if names or shapes do not fit."""
    import torch

    current = policy.state_dict()
    weights = select_tensors(tensors, "policy.")
    if {name: tuple(value.shape) for name, value in current.items()} != {name: array.shape for name, array in weights.items()}:
        raise InputError("checkpoint: the policy's weights do not fit the config")
    policy.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    for owner, optimizer in optimizers.items():
        moments = load_moments(tensors, f"optimizer.{owner}.", ".").items()
        state = {index: {name: torch.from_numpy(array.copy()) for name, array in of.items()} for index, of in moments}
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


class Stopwatch:
    """Wall and processor time of a run, summed over its interruptions; stands still until it is started."""

    def __init__(self, seconds: float = 0.0, cpu_seconds: float = 0.0) -> None:
        self._before = (seconds, cpu_seconds)
        self._started: tuple[float, float] | None = None

    def start(self) -> None:
        self._started = _now()

    def read(self) -> tuple[float, float]:
        """Return wall seconds and processor seconds of this process (all threads), with those spent before."""
        if self._started is None:
            return self._before
        wall, cpu = (now - start for now, start in zip(_now(), self._started, strict=True))
        return self._before[0] + wall, self._before[1] + cpu


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
