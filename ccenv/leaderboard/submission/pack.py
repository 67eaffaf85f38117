"""Pack an agent, trained policy or adversary into a submission folder."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.adversaries.learned import NETWORKS, load_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import FIRST_OBSERVATION
from ccenv.agents.learned import POLICIES
from ccenv.agents.learned.weights import LearnedPlayer, layer_widths, named_layers
from ccenv.agents.programs import to_json
from ccenv.agents.sender import PolicySender, ProgramSender, ShieldSender
from ccenv.base.errors import CcenvError, InputError, did_you_mean
from ccenv.base.files import write_atomic
from ccenv.base.foreign.reading import is_file, is_folder
from ccenv.base.foreign.tensors import tensor_file
from ccenv.base.registry import parse_parameters
from ccenv.leaderboard.submission.document import BESIDE, DOCUMENT, FORMAT, NAME, PAYLOAD, SIGNATURE, panel, short_name
from ccenv.leaderboard.submission.reader import Submission, parse_submission, read_submission
from ccenv.leaderboard.submission.signature import read_fingerprint, sign
from ccenv.leaderboard.submission.weights import FORMAT as SCRIPTED_FORMAT
from ccenv.leaderboard.submission.weights import quantise
from ccenv.network.adversary import MlpAdversary, ScriptedAdversary
from ccenv.network.trace import load_trace


@dataclass(frozen=True)
class Authorship:
    """The author's part of a submission."""

    author: str
    licence: str
    suite: str
    name: str | None = None
    summary: str = ""
    url: str | None = None
    training: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Payload:
    kind: str
    name: str
    content: bytes
    architecture: dict[str, Any] | None = None
    moves: dict[str, Any] | None = None
    change: float = 0.0
    beside: dict[str, bytes] = field(default_factory=dict)


def pack(spec: str, card: Authorship, out: FilePath, key: FilePath | None = None) -> tuple[Submission, float]:
    """Write a submission folder, validated by every rule; return it, and the largest change of a weight by quantisation.

    ``spec`` is a registered program, policy or adversary (with parameters), a belief program (.json), a trained policy or
    adversary (its folder), or a solver's trace (.npz), whose moves become an adversary. An older submission in ``out`` is
    replaced, other contents are refused. ``key`` is an ed25519 key of ssh that signs.

    Raises InputError for an unsupported player, or a card that breaks a rule; CcenvError if it cannot be written or signed.
    """
    payload = _payload(spec)
    members = {PAYLOAD[payload.kind]: payload.content, **payload.beside}
    document = {
        "kind": payload.kind,
        "name": card.name or (payload.name if re.fullmatch(NAME, payload.name) else short_name(payload.name)),
        "author": card.author,
        "licence": card.licence,
        "summary": card.summary,
        "url": card.url,
        "suite": card.suite,
        "architecture": payload.architecture,
        "moves": payload.moves,
        "training": card.training or {},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    files = {**members, DOCUMENT: FORMAT.content(document)}
    # An invalid card or key leaves an older submission untouched and no new one behind.
    parse_submission(files, str(out))
    if key is not None:
        files[DOCUMENT] = FORMAT.content({**document, "signed_with": read_fingerprint(key)})
        files[SIGNATURE] = sign(files[DOCUMENT], key)
    _make_room(out)
    for name, content in files.items():
        write_atomic(out / name, content)
    return read_submission(out), payload.change


def _payload(spec: str) -> _Payload:
    name = spec.partition(":")[0]
    if name in ADVERSARIES and name not in AGENTS:
        return _adversary_payload(spec)
    if name in AGENTS and "classic" in AGENTS.entry(name).tags:
        raise InputError(f"{name!r} is code, not data: classic CCAs are on the board by review, see: ccenv board submit {name}")
    if name not in AGENTS and not (is_file(spec) or is_folder(spec)):
        names = [known for tag in ("synthesized", "learned", "distilled", "shield") for known in AGENTS.names(tag)]
        names += [known for tag in ("scripted", "learned") for known in ADVERSARIES.names(tag)]
        raise InputError(f"{spec!r} is neither a registered program or adversary nor a file.{did_you_mean(name, names)}")
    if spec.endswith(".npz"):
        return _trace_payload(FilePath(spec))
    if (FilePath(spec) / f"{NETWORKS.stem}.json").is_file() and not (FilePath(spec) / f"{POLICIES.stem}.json").is_file():
        return _network_payload(load_adversary(spec))
    sender = make_sender(spec)
    if isinstance(sender, ProgramSender):
        if sender.start is not None:
            raise InputError(f"{spec!r} starts with another program; a submission is one: {sender.program.name!r}")
        return _Payload("program", sender.name, to_json(sender.program).encode())
    if isinstance(sender, PolicySender):
        return _mlp_payload("policy", sender, None)
    if isinstance(sender, ShieldSender) and sender.policy is not None:
        weights = _mlp_payload("contract", sender.policy, None)
        return replace(weights, name=sender.name, beside={BESIDE["contract"][0]: to_json(sender.program).encode()})
    raise InputError(f"{spec!r} has no rule of its own that could be handed in")


def _network_payload(adversary: MlpAdversary) -> _Payload:
    moves = {name: getattr(adversary, name) for name in ("decision_steps", "episode_rtts")}
    moves |= {"levels": adversary.levels} if adversary.levels else {}
    return _mlp_payload("network", adversary, {"columns": list(adversary.columns), **moves})


def _mlp_payload(kind: str, player: LearnedPlayer, moves: dict[str, Any] | None) -> _Payload:
    arrays = named_layers(player)
    tensors = {name: quantise(array) for name, array in arrays.items()}
    change = max(float(np.abs(tensors[name] - array).max()) for name, array in arrays.items())
    return _Payload(kind, player.name, tensor_file(tensors), _architecture(player), moves, change)


def _architecture(player: LearnedPlayer) -> dict[str, Any]:
    shape = {"activation": player.activation, "layers": layer_widths(player)}
    if isinstance(player, MlpAdversary):
        return {"family": "mlp", **shape, "observation_version": player.observation_version}
    if player.is_first_version:
        return {"family": "mlp", **shape, "observation_version": FIRST_OBSERVATION}
    shape |= {"stages": list(player.stage_kinds), "head": player.head}
    return {"family": "policy", **shape, "interface": player.interface.model_dump(mode="json")}


def _trace_payload(file: FilePath) -> _Payload:
    """Return the moves of a solver's trace, one sample per Rm, as periodic moves per step of the panel."""
    from ccenv.proofs.formulas.moves import as_adversary

    trace = load_trace(file)
    moves = np.repeat(as_adversary(trace).moves, panel().steps_per_rtt, axis=0)
    return _Payload("moves", f"against_{trace.header.senders[0]}", tensor_file({"moves": moves}))


def _adversary_payload(spec: str) -> _Payload:
    adversary = make_adversary(spec)
    if isinstance(adversary, MlpAdversary):
        return _network_payload(adversary)
    if not isinstance(adversary, ScriptedAdversary):
        raise InputError(f"{spec!r} has no moves of its own that could be handed in")
    name, _, parameters = spec.partition(":")
    content = SCRIPTED_FORMAT.content({"name": name, "parameters": parse_parameters(parameters)})
    return _Payload("scripted", short_name(spec), content)


def _make_room(out: FilePath) -> None:
    """Create the folder; remove an older submission, refuse other contents."""
    allowed = {DOCUMENT, SIGNATURE, *PAYLOAD.values(), *(name for names in BESIDE.values() for name in names)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        present = {entry.name for entry in out.iterdir()}
        if present and (DOCUMENT not in present or not present <= allowed):
            raise InputError(f"{out} holds something that is not a submission: give another --out")
        for name in sorted(present):
            (out / name).unlink()
    except OSError as error:
        raise CcenvError(f"{out}: cannot be written ({error.strerror})") from None
