"""Learned policies on disk: NAME.safetensors with the weights beside NAME.json, the card. Neither needs torch nor pickle.

The tensors are w0, b0, w1, b1, ...: w has shape (n_in, n_out). The card says what they mean:

    {"format": "ccenv-policy", "version": 1, "name": "...", "activation": "tanh", "observation_version": 1,
     "layers": [10, 16, 16, 1], "sha256": "<of the .safetensors file>", "notes": {...}}
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.learned.pair import pair_of
from ccenv.agents.learned.tensors import MAX_FILE_BYTES, read_tensors, tensor_file
from ccenv.errors import InputError, did_you_mean
from ccenv.files import write_atomic
from ccenv.foreign import JsonRules, is_file, is_folder, read_bounded, read_json
from ccenv.network.sender import MlpSender

FORMAT = "ccenv-policy"
VERSION = 1
POLICY = "policy"  # stem of the pair inside a checkpoint folder
ACTIVATIONS = ("tanh", "relu")
MAX_CARD_BYTES = 262_144
MAX_LAYERS = 6
MAX_WIDTH = 256

_KEYS = ("format", "version", "name", "activation", "observation_version", "layers", "sha256", "notes")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)


def save_policy(path: FilePath | str, sender: MlpSender, notes: dict[str, Any] | None = None) -> None:
    """Write a policy as a pair of files; the card last, so that a card always has its weights.

    Args:
        path: an existing folder (the files become policy.safetensors and policy.json) or the path of the pair, with or
            without one of the two endings.
        sender: the policy; stored as float64.
        notes: anything JSON can hold: how it was trained, versions, scores.

    Raises:
        InputError: if the policy could not be read back or the notes are not JSON.
    """
    weights_file, card_file = pair_of(path, POLICY)
    layers = _layers(sender.weights, sender.biases, str(weights_file))
    tensors: dict[str, np.ndarray] = {}
    for i, (weight, bias) in enumerate(zip(sender.weights, sender.biases, strict=True)):
        tensors[f"w{i}"], tensors[f"b{i}"] = weight, bias
    content = tensor_file(tensors)
    card = {
        "format": FORMAT,
        "version": VERSION,
        "name": sender.name,
        "activation": sender.activation,
        "observation_version": sender.observation_version,
        "layers": layers,
        "sha256": hashlib.sha256(content).hexdigest(),
        "notes": notes or {},
    }
    _check_card(card, str(card_file))
    try:
        text = json.dumps(card, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{card_file}: the notes are not JSON ({error})") from None
    write_atomic(weights_file, content)
    write_atomic(card_file, text.encode())


def load_policy(path: FilePath | str) -> MlpSender:
    """Read a policy written by ``save_policy``.

    Args:
        path: the folder, or the path of the pair with or without one of the two endings.

    Returns:
        MlpSender: with float64 weights.

    Raises:
        InputError: if a file is missing, damaged, foreign, or was trained on another observation.
    """
    weights_file, card_file = pair_of(path, POLICY)
    content = read_bounded(weights_file, MAX_FILE_BYTES)
    card = _read_card(card_file)
    if hashlib.sha256(content).hexdigest() != card["sha256"]:
        raise InputError(f"{weights_file}: does not belong to its card (sha256 differs)")
    tensors = read_tensors(content, str(weights_file))
    n_layers = len(card["layers"]) - 1
    expected = [f"{letter}{i}" for i in range(n_layers) for letter in "wb"]
    if sorted(tensors) != sorted(expected):
        raise InputError(f"{weights_file}: tensors {', '.join(sorted(tensors))}; the card asks for {', '.join(expected)}")
    weights = tuple(tensors[f"w{i}"] for i in range(n_layers))
    biases = tuple(tensors[f"b{i}"] for i in range(n_layers))
    layers = _layers(weights, biases, str(weights_file))
    if layers != card["layers"]:
        raise InputError(f"{weights_file}: layers {layers}; the card says {card['layers']}")
    return MlpSender(card["name"], weights, biases, card["activation"], card["observation_version"])


def policy_notes(path: FilePath | str) -> dict[str, Any]:
    """Return the notes on a policy's card: for one that was trained here its config, status and score.

    Raises:
        InputError: if the card is missing, damaged or foreign.
    """
    notes: dict[str, Any] = _read_card(pair_of(path, POLICY)[1])["notes"]
    return notes


def _read_card(file: FilePath) -> dict[str, Any]:
    card = read_json(file, JsonRules(max_bytes=MAX_CARD_BYTES))
    _check_card(card, str(file))
    return dict(card)


def is_policy(path: FilePath | str) -> bool:
    """Tell whether a path names a policy pair or a folder that should hold one."""
    given = FilePath(path)
    if is_folder(given) or given.suffix == ".safetensors":
        return True
    return given.suffix == ".json" and is_file(pair_of(given, POLICY)[0])


def _layers(weights: tuple[np.ndarray, ...], biases: tuple[np.ndarray, ...], where: str) -> list[int]:
    """Return the widths of the layers; refuse shapes that do not fit together or the kernel."""
    from ccenv.engine.compiled.observation import N_OBSERVATION

    if not 1 <= len(weights) == len(biases) <= MAX_LAYERS:
        raise InputError(f"{where}: {len(weights)} weights and {len(biases)} biases; 1 to {MAX_LAYERS} layers are allowed")
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or (i > 0 and weight.shape[0] != weights[i - 1].shape[1]):
            raise InputError(f"{where}: layer {i} has weights of shape {weight.shape} and biases of shape {bias.shape}")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise InputError(f"{where}: layer {i} is not finite")
    widths = [w.shape[0] for w in weights] + [weights[-1].shape[1]]
    if widths[0] != N_OBSERVATION or widths[-1] != 1 or not 1 <= min(widths) <= max(widths) <= MAX_WIDTH:
        raise InputError(
            f"{where}: layers {widths}; {N_OBSERVATION} inputs, 1 output and at most {MAX_WIDTH} units per layer are allowed"
        )
    return widths


def _check_card(card: Any, where: str) -> None:
    from ccenv.engine.compiled.observation import OBSERVATION_VERSION

    if not isinstance(card, dict):
        raise InputError(f"{where}: expected a JSON object")
    for key in card:
        if key not in _KEYS:
            raise InputError(f"{where}: unknown key {key[:40]!a}.{did_you_mean(key[:40], _KEYS)}")
    for key in _KEYS:
        if key not in card:
            raise InputError(f"{where}: key {key!r} is missing")
    checks = {
        "format": card["format"] == FORMAT,
        "version": type(card["version"]) is int and card["version"] == VERSION,
        "name": isinstance(card["name"], str) and bool(_NAME.fullmatch(card["name"])),
        "activation": card["activation"] in ACTIVATIONS,
        "observation_version": type(card["observation_version"]) is int and card["observation_version"] == OBSERVATION_VERSION,
        "layers": isinstance(card["layers"], list) and all(type(n) is int for n in card["layers"]),
        "sha256": isinstance(card["sha256"], str) and bool(re.fullmatch("[0-9a-f]{64}", card["sha256"])),
        "notes": isinstance(card["notes"], dict),
    }
    allowed = {
        "format": repr(FORMAT),
        "version": VERSION,
        "name": "a letter, then up to 63 letters, digits, '_', '-' or '.'",
        "activation": " or ".join(ACTIVATIONS),
        "observation_version": f"{OBSERVATION_VERSION}, the version of this ccenv",
        "layers": "a list of whole numbers",
        "sha256": "64 hexadecimal digits",
        "notes": "an object",
    }
    for key, passed in checks.items():
        if not passed:
            raise InputError(f"{where}: {key} is {ascii(card[key])[:60]}; it must be {allowed[key]}")
