"""Identity hashes of senders and adversaries."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ccenv.agents.sender import ClassicSender, HeldSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.base.files import canonical_json, hash_value
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary

FIRST_OBSERVATION = 1  # observation version of policies whose cards have no interface


def sender_hash(sender: Sender) -> str:
    """Return a sender's identity; the code of classic CCAs is part of :func:`ccenv.base.provenance.code_hash`."""
    if isinstance(sender, HeldSender):
        rule = {"mode": sender.mode, "target_s": sender.target_s, "window_s": sender.window_s}
        return hash_value({"kind": "held", "inner": sender_hash(sender.inner), **rule})
    if isinstance(sender, ProgramSender):
        from ccenv.agents.programs import to_data

        start = {"start": to_data(sender.start)} if sender.start else {}
        return hash_value({"kind": "program", "program": to_data(sender.program), **start})
    if isinstance(sender, ShieldSender):  # stored results hash it under its first names
        from ccenv.agents.programs import to_data

        policy = {} if sender.policy is None else {"policy": sender_hash(sender.policy)}
        program = to_data(sender.program)
        program["name"] = program["name"].replace("learned_shield", "learned_contract")
        return hash_value({"kind": "contract", "program": program, "chooser": sender.chooser, **policy})
    if isinstance(sender, PolicySender):
        return _network_hash(_about_policy(sender), sender.arrays)
    if isinstance(sender, ClassicSender):
        source = {"source": sender.source_sha256} if sender.source_sha256 else {}
        return hash_value({"kind": "classic", "name": sender.name, "parameters": sender.parameters, **source})
    return hash_value({"kind": "external", "name": sender.name})


_HASHED_NAMES = {"benign": "kind"}  # stored results hash an adversary under its first name


def adversary_hash(adversary: Adversary) -> str:
    """Return an adversary's identity; the code of scripted ones is part of :func:`ccenv.base.provenance.code_hash`."""
    if isinstance(adversary, RecordedAdversary):
        digest = hashlib.sha256(canonical_json(["recorded", list(adversary.moves.shape), adversary.periodic]).encode())
        digest.update(adversary.moves.astype("<f8").tobytes())
        return digest.hexdigest()
    if isinstance(adversary, MlpAdversary):
        about = [adversary.activation, adversary.observation_version, list(adversary.columns)]
        about = ["mlp adversary", *about, adversary.decision_steps, adversary.episode_rtts]
        about += [adversary.levels] if adversary.levels else []
        return _network_hash(about, (*adversary.weights, *adversary.biases))
    name = _HASHED_NAMES.get(adversary.name, adversary.name)
    parameters = {} if isinstance(adversary, ExternalAdversary) else adversary.parameters
    source_sha256 = getattr(adversary, "source_sha256", "")
    source = {"source": source_sha256} if source_sha256 else {}
    return hash_value({"kind": type(adversary).__name__, "name": name, "parameters": parameters, **source})


def _about_policy(sender: PolicySender) -> list[Any]:
    if sender.is_first_version:
        return ["mlp", sender.activation, FIRST_OBSERVATION]
    about = ["policy", sender.activation, sender.head, list(sender.stage_kinds), sender.interface.model_dump(mode="json")]
    return [*about, sender_hash(sender.inner)] if sender.inner else about


def _network_hash(about: list[Any], arrays: tuple[np.ndarray, ...]) -> str:
    digest = hashlib.sha256(canonical_json(about).encode())
    for array in arrays:
        digest.update(canonical_json(list(array.shape)).encode())
        digest.update(array.astype("<f8").tobytes())
    return digest.hexdigest()
