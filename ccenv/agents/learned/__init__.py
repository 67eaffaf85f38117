"""Learned senders on disk: policy.safetensors with the weights and policy.json, the card (``ccenv.agents.learned.weights``).

The card of a policy that chooses inside a shield contains the shield, without which its output has no meaning.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import FIRST_OBSERVATION
from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.learned.preferences import Preference, PreferenceSender, describe_preference, with_preference
from ccenv.agents.learned.weights import MAX_CARD_BYTES, MAX_LAYERS, Card, LearnedKind
from ccenv.agents.programs import parse_program, to_data
from ccenv.agents.sender import ClassicSender, PolicySender, ShieldSender
from ccenv.base.errors import InputError, shown
from ccenv.base.files import Format
from ccenv.base.foreign import JsonRules, as_path, is_file, is_folder, read_json

MAX_WIDTH = 256
Stage = Literal["dense", "gru", "lstm"]
Head = Literal["mean", "squashed", "categorical"]


class PolicyCard(Card):
    """The card of a policy, as the kernels play it.

    A card of the first version has ``observation_version`` and neither of the other fields: belief signals, dense stages, a mean.
    """

    # 1, of the observation of `ccenv/Sender-v0`; None: the card has an interface
    observation_version: int | None = Field(default=None, strict=True)
    interface: Interface | None = None  # signals, history, action with its parameters, inner CCA, clock
    stages: tuple[Stage, ...] = Field(default=(), max_length=MAX_LAYERS)  # type of each stage; empty: all dense
    head: Head = "mean"  # type of the last stage

    @property
    def sees(self) -> Interface:
        """The interface, also for cards of the first version."""
        return self.interface or SENDER_V0

    @property
    def stage_kinds(self) -> tuple[str, ...]:
        return self.stages or super().stage_kinds

    @model_validator(mode="after")
    def _playable(self) -> PolicyCard:
        if self.observation_version not in (None, FIRST_OBSERVATION):
            raise ValueError(f"observation_version: it must be {FIRST_OBSERVATION} (got {self.observation_version})")
        if (self.observation_version is None) == (self.interface is None):
            raise ValueError(f"a card has either interface or observation_version {FIRST_OBSERVATION}, and not both")
        check_playable((self.layers[0] - self.n_constants, *self.layers[1:]), self.stage_kinds, self.head, self.sees)
        return self

    @property
    def n_constants(self) -> int:
        """Inputs after those of the interface, which are constants of a flow."""
        return 0


def check_playable(layers: tuple[int, ...], stages: tuple[str, ...], head: str, sees: Interface) -> None:
    """Raise ValueError unless the kernels can play a network of these widths, stages and head over an interface."""
    for row in sees.rows:
        if row.needs == "truth":
            raise ValueError(f"interface.signals: {row.name!r} is for critics: no sender can measure it")
    if sees.clock.common:
        raise ValueError("interface.clock.common: a sender decides for itself; it belongs to environments only")
    outputs = f"{sees.width} inputs, {'2 or more outputs' if head == 'categorical' else '1 output'}"
    few = layers[-1] < 2 if head == "categorical" else layers[-1] != 1
    if layers[0] != sees.width or few or max(layers[1:]) > MAX_WIDTH:
        raise ValueError(f"layers: {list(layers)}; {outputs} and at most {MAX_WIDTH} units per layer are allowed")
    if len(stages) != len(layers) - 1 or stages[-1] != "dense":
        raise ValueError(f"stages: {list(stages)} for {len(layers) - 1} layers; one each is needed, the last 'dense'")


def inner_cca(sees: Interface, where: str) -> ClassicSender | None:
    """Return the inner CCA of an interface; None if it has none. Raises InputError if no classic CCA has its name."""
    if not sees.inner:
        return None
    sender = make_sender(sees.inner) if sees.inner.partition(":")[0] in AGENTS else None
    if not isinstance(sender, ClassicSender):
        names = ", ".join(AGENTS.names("classic"))
        raise InputError(f"{where}: interface.inner {sees.inner[:60]!a} is no classic CCA of this ccenv; there are {names}")
    return sender


def _describe(sender: PolicySender, layers: list[int]) -> dict[str, Any]:
    if sender.is_first_version:
        version = {"observation_version": FIRST_OBSERVATION}
        return {"name": sender.name, "activation": sender.activation, **version, "layers": layers}
    about = {"name": sender.name, "activation": sender.activation, "layers": layers}
    about |= {"stages": list(sender.stage_kinds), "head": sender.head}
    return about | {"interface": sender.interface.model_dump(mode="json")}


class PreferenceCard(PolicyCard):
    """The card of a policy that sees a preference."""

    preference: Preference  # the last inputs

    @property
    def n_constants(self) -> int:
        """Inputs after those of the interface: the weights of the objectives."""
        return len(self.preference.objectives)


class ShieldCard(PolicyCard):
    """The card of a policy that chooses inside a shield."""

    shield: dict[str, Any]  # a belief program of version 2; in the file under its former name, `contract`


_RULES = JsonRules(max_bytes=MAX_CARD_BYTES)


def _make_kind(name: str, what: str, card: type[PolicyCard]) -> LearnedKind[Any, Any]:
    return LearnedKind("policy", Format(name, 1, f"the card of a policy{what}", rules=_RULES, indent=2), card, _describe)


POLICIES = _make_kind("ccenv-policy", "", PolicyCard)
PREFERENCE_POLICIES = _make_kind("ccenv-preference-policy", " that sees a preference", PreferenceCard)
SHIELD_POLICIES = _make_kind("ccenv-contract-policy", " inside a shield", ShieldCard)


def save_policy(path: FilePath | str, sender: PolicySender | ShieldSender, notes: dict[str, Any] | None = None) -> None:
    """Write a policy as a pair of files. Raises InputError if the policy could not be read back or the notes are not JSON.

    Args:
        path: an existing folder (the files become policy.safetensors and policy.json) or the path of the pair, with or
            without one of the two endings.
        sender: a policy, also inside a shield; stored as float64.
        notes: JSON: how it was trained, versions, scores.
    """
    if not isinstance(sender, (PolicySender, ShieldSender)):
        raise InputError(
            f"save_policy: {shown(getattr(sender, 'name', sender))} is no policy; from_sb3, from_torch and from_onnx make one"
        )
    file = as_path("path", path)
    policy = sender if isinstance(sender, PolicySender) else sender.policy
    if policy is not None and policy.interface.extra is not None:
        raise InputError(
            f"save_policy: {sender.name!r} sees {', '.join(policy.interface.extra.elements)}, which Python code computes; a "
            "stored policy and the board hold no code: express it in signals of the table (ccenv list signals), or bring a file "
            "that builds the sender"
        )
    if isinstance(sender, PreferenceSender):
        PREFERENCE_POLICIES.save(file, sender.network, notes, describe_preference(sender))
        return
    if isinstance(sender, PolicySender):
        inner_cca(sender.interface, sender.name)
        POLICIES.save(file, sender, notes)
        return
    inside = sender.policy
    if inside is None:
        raise InputError(f"{sender.name!r} chooses by {sender.chooser!r}: there are no weights to write")
    SHIELD_POLICIES.save(file, replace(inside, name=sender.name), notes, {"contract": to_data(sender.program)})


def load_policy(path: FilePath | str) -> PolicySender | ShieldSender:
    """Read a policy written by ``save_policy``; of a family the policy of its default preference.

    Raises InputError if a file is missing, damaged or foreign, or the card names something unknown; ProgramError if the shield
    is damaged.
    """
    form = _find_form(path)
    if form is POLICIES:
        return _build_policy(*POLICIES.load(path), POLICIES.files(path)[1])
    if form is PREFERENCE_POLICIES:
        return load_family(path).plain
    card, network = SHIELD_POLICIES.load(path)
    file = SHIELD_POLICIES.files(path)[1]
    program = parse_program(card.shield, f"{file}: shield")
    return ShieldSender(card.name, program, "policy", _build_policy(card, network, file))


def load_family(path: FilePath | str) -> PreferenceSender:
    """Read a policy that sees a preference, with all that ``with_preference`` needs; else as ``load_policy``."""
    card, network = PREFERENCE_POLICIES.load(path)
    weights = dict(zip(card.preference.objectives, card.preference.default, strict=True))
    return with_preference(_build_policy(card, network, POLICIES.files(path)[1]), weights)


def _build_policy(card: PolicyCard, network: Any, file: FilePath) -> PolicySender:
    return PolicySender(
        card.name,
        network.weights,
        network.biases,
        card.activation,
        card.sees,
        card.head,
        card.stage_kinds,
        network.hidden_weights,
        network.hidden_biases,
        inner_cca(card.sees, str(file)),
    )


def _find_form(path: FilePath | str) -> LearnedKind[Any, Any]:
    """Return the form of policy that a card declares; by default a plain policy."""
    card = POLICIES.files(path)[1]
    data = read_json(card, _RULES) if is_file(card) else None
    format_name = data.get("format") if isinstance(data, dict) else None
    return next((form for form in (SHIELD_POLICIES, PREFERENCE_POLICIES) if form.form.name == format_name), POLICIES)


def policy_notes(path: FilePath | str) -> dict[str, Any]:
    """Return the notes of a policy's card: of a trained one its config, status and score.

    Raises InputError if the card is missing, damaged or foreign.
    """
    notes: dict[str, Any] = _find_form(path).read_card(path).notes
    return notes


def is_policy(path: FilePath | str) -> bool:
    """Tell whether a path names a policy pair or a folder that should hold one."""
    file = FilePath(path)
    if is_folder(file) or file.suffix == ".safetensors":
        return True
    return file.suffix == ".json" and is_file(POLICIES.files(file)[0])
