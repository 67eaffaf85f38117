"""Strict reading of submitted tensors and of ``adversary.json``, a shipped scripted adversary with parameters.

Tensors have exact names, types, shapes and sizes, and bounded values; weights lie on a grid.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import inner_cca
from ccenv.agents.learned.weights import Network, layer_shapes, network_of
from ccenv.agents.sender import PolicySender, Sender, ShieldSender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import Format
from ccenv.base.foreign import STRANGER, parse_json
from ccenv.base.foreign.tensors import read_tensors
from ccenv.leaderboard.submission.document import CAPS, PAYLOAD, Architecture, NetworkMoves
from ccenv.network.adversary import Adversary, MlpAdversary, ScriptedAdversary

MAX_HEADER_BYTES = 4_096
# Weights are whole multiples of 1/GRID below LARGEST: short exact fractions, which a solver reads.
GRID = 4_096
LARGEST = 1_024.0
MAX_MOVE_STEPS = 65_536
_LENGTH_BYTES = 8


def quantise(array: np.ndarray) -> np.ndarray:
    """Return the nearest multiples of 1/GRID, halves to even; idempotent."""
    return np.asarray(np.round(array * GRID) / GRID)


def quantise_player(player: Sender | Adversary) -> Sender | Adversary:
    """Return a player with quantised weights, as its submission plays; a player without weights is returned unchanged."""
    if isinstance(player, ShieldSender) and player.policy is not None:
        return replace(player, policy=_quantise_policy(player.policy))
    if isinstance(player, PolicySender):
        return _quantise_policy(player)
    if isinstance(player, MlpAdversary):
        return replace(player, weights=_quantise_all(player.weights), biases=_quantise_all(player.biases))
    return player


def _quantise_policy(policy: PolicySender) -> PolicySender:
    return replace(
        policy,
        weights=_quantise_all(policy.weights),
        biases=_quantise_all(policy.biases),
        hidden_weights=_quantise_all(policy.hidden_weights),
        hidden_biases=_quantise_all(policy.hidden_biases),
    )


def _quantise_all(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(quantise(array) for array in arrays)


def read_policy(content: bytes, architecture: Architecture, name: str, where: str) -> PolicySender:
    """Read a policy's weights and put them on the grid. Raises InputError for anything but exactly its tensors.

    These are ``w0, b0, w1, b1, ...``, w of shape (n_in, n_out), and ``u, c`` of recurrent cells.
    """
    if architecture.interface is None:
        network = _read_layers(content, architecture, (N_OBSERVATION, 1), where)
        return PolicySender(name, network.weights, network.biases, architecture.activation)
    network = _read_layers(content, architecture, (architecture.interface.width, architecture.layers[-1]), where)
    return PolicySender(
        name,
        network.weights,
        network.biases,
        architecture.activation,
        architecture.interface,
        architecture.head or "mean",
        architecture.stages or (),
        network.hidden_weights,
        network.hidden_biases,
        inner_cca(architecture.interface, where),
    )


def read_network(content: bytes, architecture: Architecture, moves: NetworkMoves, name: str, where: str) -> MlpAdversary:
    """Read a learned adversary's weights, for networks with one flow, and put them on the grid.

    Raises InputError for anything but exactly these tensors.
    """
    ends = N_PATH + N_FLOW, len(moves.columns) * max(1, moves.levels)
    network = _read_layers(content, architecture, ends, where)
    form = architecture.activation, architecture.observation_version or 0
    return MlpAdversary(name, network.weights, network.biases, *form, **moves.model_dump())


def _read_layers(content: bytes, architecture: Architecture, ends: tuple[int, int], where: str) -> Network:
    layers = architecture.layers
    if (layers[0], layers[-1]) != ends:
        raise InputError(f"{where}: layers {list(layers)}; {ends[0]} inputs and {ends[1]} outputs are needed")
    kinds = architecture.stages or ("dense",) * (len(layers) - 1)
    tensors = _read_exactly(content, layer_shapes(layers, kinds), where)
    for key, tensor in tensors.items():
        if np.abs(tensor).max() > LARGEST:
            raise InputError(f"{where}: tensor {key!a} holds {np.abs(tensor).max():g}; weights are at most {LARGEST:g}")
    return network_of({name: quantise(tensor) for name, tensor in tensors.items()}, kinds)


def read_moves(content: bytes, where: str) -> np.ndarray:
    """Read recorded moves of a network: one tensor ``moves`` of shape (steps, 4) with waste, rate, service, loss in [0, 1].

    Raises InputError for anything else.
    """
    n_values, odd_bytes = divmod(len(content) - _LENGTH_BYTES - len(_header(content, where)), 8)
    n_steps, odd_values = divmod(n_values, 4)
    if odd_bytes or odd_values or not 1 <= n_steps <= MAX_MOVE_STEPS:
        raise InputError(f"{where}: moves have shape (steps, 4) of F64 with 1 to {MAX_MOVE_STEPS} steps")
    moves = _read_exactly(content, {"moves": (n_steps, 4)}, where)["moves"]
    if moves.min() < 0 or moves.max() > 1:
        raise InputError(f"{where}: tensor 'moves' holds {moves.min():g} to {moves.max():g}; moves lie in [0, 1]")
    return moves


def _header(content: bytes, where: str) -> bytes:
    if len(content) < _LENGTH_BYTES:
        raise InputError(f"{where}: not a safetensors file ({len(content)} bytes)")
    claimed = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if claimed > MAX_HEADER_BYTES:
        raise InputError(f"{where}: the header claims {claimed} bytes; at most {MAX_HEADER_BYTES} are allowed")
    return content[_LENGTH_BYTES : _LENGTH_BYTES + claimed]


def _read_exactly(content: bytes, shapes: dict[str, tuple[int, ...]], where: str) -> dict[str, np.ndarray]:
    header = parse_json(_header(content, where), f"{where}, header", replace(STRANGER, max_depth=3))
    if not isinstance(header, dict) or set(header) != set(shapes):
        seen = ", ".join(sorted(str(key)[:20] for key in header)[:20]) if isinstance(header, dict) else json.dumps(header)[:40]
        raise InputError(f"{where}: tensors {seen!a}; exactly {', '.join(sorted(shapes))} are needed")
    for name, shape in shapes.items():
        entry = header[name]
        stated = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
        if stated[0] != "F64":
            raise InputError(f"{where}: tensor {name!a} has dtype {str(stated[0])[:20]!a}; it must be F64")
        if stated[1] != list(shape):
            raise InputError(f"{where}: tensor {name!a} has shape {str(stated[1])[:40]}; it must be {list(shape)}")
    tensors = read_tensors(content, where)
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise InputError(f"{where}: tensor {name!a} is not finite")
    return tensors


RULES = replace(STRANGER, max_bytes=CAPS[PAYLOAD["scripted"]], max_depth=3)
# Cards of learned adversaries share this format name; boards hold both in hash chains, so neither can change.
FORMAT = Format("ccenv-adversary", 1, "a scripted adversary", rules=RULES, indent=2)


class ScriptedDocument(StrictModel):
    """A name of the registry and its parameters."""

    format: Literal["ccenv-adversary"]
    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    parameters: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")], Annotated[float, Field(allow_inf_nan=False)]] = (
        Field(default_factory=dict)
    )


def read_scripted(content: bytes, where: str) -> str:
    """Read the file and return the adversary's spec, such as ``square:period_rtts=4``.

    Raises InputError if it is damaged, not a scripted adversary, or a parameter is not one of its.
    """
    document = validate(ScriptedDocument, FORMAT.parse(content, where), where)
    spec = document.name
    if document.parameters:
        spec += ":" + ",".join(f"{key}={_plain(value)}" for key, value in sorted(document.parameters.items()))
    if document.name not in ADVERSARIES.names("scripted", aliases=True):
        raise InputError(
            f"{where}: {ADVERSARIES.kind} {document.name!r} is not one of {', '.join(ADVERSARIES.names('scripted'))}"
        )
    try:
        adversary = make_adversary(spec)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if not isinstance(adversary, ScriptedAdversary):
        raise InputError(f"{where}: {document.name!r} is not scripted")
    return spec


def _plain(value: float) -> str:
    """Write a number without exponent, in its shortest exact form."""
    text = repr(int(value)) if value == int(value) else repr(value)
    return text if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else f"{value:.9f}".rstrip("0").rstrip(".")
