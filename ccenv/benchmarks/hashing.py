"""Content hashes: canonical JSON, senders, adversaries and the code that decides a result."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from typing import Any

import numpy as np

from ccenv.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary
from ccenv.files import source_hash
from ccenv.sender import ClassicSender, HeldSender, MlpSender, ProgramSender, Sender

# What decides the numbers of a cell. A change here makes stored cells stale; a change of reports or documentation does not.
CELL_SOURCES = (
    "engine/*.py",
    "programs/*.py",
    "agents/classic/*.py",
    "adversaries/**/*.py",
    "beliefs.py",
    "measures.py",
    "metrics.py",
    "model.py",
    "path.py",
    "simulation/*.py",
    "benchmarks/*cells.py",
    "benchmarks/*suite.py",
    "benchmarks/template.py",
)


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, infinities as text, not-a-number as null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def plain(value: Any) -> Any:
    """Turn a value into what strict JSON can hold: infinities become the text "inf" or "-inf", not-a-number becomes None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sender_hash(sender: Sender) -> str:
    """Return a hash of what a sender is, wherever it came from. The code of classic CCAs is part of :func:`code_hash`."""
    if isinstance(sender, HeldSender):
        rule = {"mode": sender.mode, "target_s": sender.target_s, "window_s": sender.window_s}
        return hash_of({"kind": "held", "inner": sender_hash(sender.inner), **rule})
    if isinstance(sender, ProgramSender):
        from ccenv.programs import to_data

        start = {"start": to_data(sender.start)} if sender.start else {}
        return hash_of({"kind": "program", "program": to_data(sender.program), **start})
    if isinstance(sender, MlpSender):
        return _network_hash(["mlp", sender.activation, sender.observation_version], (*sender.weights, *sender.biases))
    if isinstance(sender, ClassicSender):
        return hash_of({"kind": "classic", "name": sender.name, "parameters": sender.parameters})
    return hash_of({"kind": "external", "name": sender.name})


def adversary_hash(adversary: Adversary) -> str:
    """Return a hash of what an adversary is. The code of scripted ones is part of :func:`code_hash`."""
    if isinstance(adversary, RecordedAdversary):
        digest = hashlib.sha256(canonical_json(["recorded", list(adversary.moves.shape), adversary.periodic]).encode())
        digest.update(adversary.moves.astype("<f8").tobytes())
        return digest.hexdigest()
    if isinstance(adversary, MlpAdversary):
        about = [adversary.activation, adversary.observation_version, list(adversary.columns)]
        about = ["mlp adversary", *about, adversary.decision_steps, adversary.episode_rtts]
        about += [adversary.levels] if adversary.levels else []
        return _network_hash(about, (*adversary.weights, *adversary.biases))
    parameters = {} if isinstance(adversary, ExternalAdversary) else adversary.parameters
    return hash_of({"kind": type(adversary).__name__, "name": adversary.name, "parameters": parameters})


def _network_hash(about: list[Any], arrays: tuple[np.ndarray, ...]) -> str:
    digest = hashlib.sha256(canonical_json(about).encode())
    for array in arrays:
        digest.update(canonical_json(list(array.shape)).encode())
        digest.update(array.astype("<f8").tobytes())
    return digest.hexdigest()


@cache
def code_hash() -> str:
    """Return a hash of the source files that decide what a cell's numbers are."""
    return source_hash(CELL_SOURCES)
