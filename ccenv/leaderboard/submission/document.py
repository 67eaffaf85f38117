"""``submission.json``: what a submission says about itself. The models here are the published JSON Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from ccenv.agents.learned import MAX_WIDTH, Head, Stage, check_playable
from ccenv.base.config import StrictModel
from ccenv.base.document import Format
from ccenv.base.foreign import STRANGER
from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.leaderboard.submission.lookalike import check_visible
from ccenv.agents.learned.weights import MAX_LAYERS

DOCUMENT, SIGNATURE = "submission.json", "submission.json.sig"
NAME = r"^[A-Za-z][A-Za-z0-9]*([_.-][A-Za-z0-9]+)*$"

# File with the player itself, per kind, and the largest size that is read.
PAYLOAD = {
    "program": "program.json",
    "policy": "policy.safetensors",
    "contract": "policy.safetensors",
    "scripted": "adversary.json",
    "moves": "moves.safetensors",
    "network": "network.safetensors",
}
# Further files of a kind.
BESIDE = {"contract": ("contract.json",)}
CAPS = {
    DOCUMENT: 16_384,
    SIGNATURE: 4_096,
    "program.json": 65_472,  # less than a program may have: the board writes it with the name of the entry
    "contract.json": 65_472,
    "policy.safetensors": 4 * 2**20,
    "adversary.json": 4_096,
    "moves.safetensors": 4 * 2**20,
    "network.safetensors": 4 * 2**20,
}
RULES = replace(STRANGER, max_bytes=CAPS[DOCUMENT], max_depth=6)
FORMAT = Format("ccenv-submission", 1, "a submission", "format_version", RULES, indent=2, ensure_ascii=False)
TRACKS = {
    **dict.fromkeys(("program", "policy", "contract"), "sender"),
    **dict.fromkeys(("scripted", "moves", "network"), "adversary"),
}


def _check_visible(text: str) -> None:
    """Refuse what a reader does not see or what turns the text round: control, formatting and bidirectional characters."""
    check_visible(text)
    if "<" in text or ">" in text:
        raise ValueError("holds '<' or '>'; plain text only, no HTML")


@dataclass(frozen=True)
class Matching:
    """Checks that a text is visible and matches a pattern; the message says what is allowed in words."""

    pattern: str
    allowed: str

    def __call__(self, text: str) -> str:
        """Return the text. Raises ValueError for anything that is not allowed."""
        _check_visible(text)
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"not allowed; {self.allowed}")
        return text


def _published(pattern: str, longest: int) -> Any:
    """Return the limits of a text as the schema publishes them; the pattern itself is checked by Matching."""
    return Field(max_length=longest, json_schema_extra={"pattern": pattern})


_AUTHOR = r"^[^\W_]([\w .,'@()+-]*[\w.)])?$"
_LICENCE = r"^[A-Za-z0-9][A-Za-z0-9.+-]*$"
_URL = r"^https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/[A-Za-z0-9._~%/+=&?#-]*)?$"
_SUITE = r"^[a-z0-9][a-z0-9_-]*/[1-9][0-9]{0,5}$"
_LINE = r"^[^\u0000-\u001f\u007f-\u00a0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff<>]*$"
_NAME_ALLOWED = "a letter, then letters and digits with single '_', '-' or '.' between them"

Name = Annotated[str, _published(NAME, 40), AfterValidator(Matching(NAME, _NAME_ALLOWED))]
Author = Annotated[
    str, _published(_AUTHOR, 80), AfterValidator(Matching(_AUTHOR, "letters, digits, spaces and . , ' @ ( ) + - _"))
]
Licence = Annotated[str, _published(_LICENCE, 40), AfterValidator(Matching(_LICENCE, "an SPDX identifier such as Apache-2.0"))]
Url = Annotated[str, _published(_URL, 200), AfterValidator(Matching(_URL, "https://host/path, no user, no port"))]
SuiteVersion = Annotated[str, _published(_SUITE, 50), AfterValidator(Matching(_SUITE, "name/version, such as standard-v1/1"))]
Line = Annotated[str, _published(_LINE, 300), AfterValidator(Matching(_LINE, "one line of visible text"))]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
Amount = Annotated[float, Field(ge=0, le=1e15, strict=False)]


class Architecture(StrictModel):
    """A network of the allow-list.

    Attributes:
        family: ``mlp``: fully connected, over the observations of ``ccenv/Sender-v0`` or ``ccenv/Network-v0``; ``policy``: of a
            sender, with stages, head and interface.
        activation: between the layers; the last layer is linear.
        layers: widths, inputs first, outputs last.
        observation_version: of the observation table; of an ``mlp`` only.
        stages: kind of each layer: ``dense``, ``gru`` or ``lstm``; of a ``policy`` only.
        head: what the last layer is: ``mean``, ``squashed`` or ``categorical``; of a ``policy`` only.
        interface: signals, history, action, inner CCA and clock; of a ``policy`` only.
    """

    family: Literal["mlp", "policy"]
    activation: Literal["tanh", "relu"]
    layers: tuple[Annotated[int, Field(ge=1, le=MAX_WIDTH, strict=True)], ...] = Field(min_length=2, max_length=MAX_LAYERS + 1)
    observation_version: Literal[1] | None = None
    stages: tuple[Stage, ...] | None = Field(default=None, max_length=MAX_LAYERS)
    head: Head | None = None
    interface: Interface | None = None

    @model_validator(mode="after")
    def _whole(self) -> Architecture:
        of_policy = (self.stages, self.head, self.interface)
        if self.family == "mlp":
            if self.observation_version is None:
                raise ValueError("observation_version: missing")
            if any(part is not None for part in of_policy):
                raise ValueError("stages, head and interface belong to family 'policy', and to it only")
            return self
        if self.observation_version is not None or any(part is None for part in of_policy):
            raise ValueError("family 'policy' has stages, head and interface, and no observation_version")
        check_playable(self.layers, self.stages or (), self.head or "", self.interface or SENDER_V0)
        return self


class NetworkMoves(StrictModel):
    """What the outputs of a learned adversary are.

    Attributes:
        columns: which of waste, rate, service, loss (0 to 3) it makes, in the order of the outputs; the others are kind.
        decision_steps: engine steps for which moves are kept; 0: one Rm.
        episode_rtts: length of the episodes that it was trained on.
        levels: 0: one output per move; n: n outputs per move, scores of n evenly spaced values.
    """

    columns: tuple[Annotated[int, Field(ge=0, le=3, strict=True)], ...] = Field(min_length=1, max_length=4)
    decision_steps: Annotated[int, Field(ge=0, le=100_000, strict=True)]
    episode_rtts: Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
    levels: Annotated[int, Field(ge=0, le=MAX_WIDTH, strict=True)] = 0

    @model_validator(mode="after")
    def _distinct(self) -> NetworkMoves:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns {list(self.columns)}: each at most once")
        if self.levels == 1:
            raise ValueError("levels 1: 0 (continuous moves) or at least 2")
        return self


class Training(StrictModel):
    """How it was made; shown on the card, never ranked.

    Attributes:
        method: one line.
        steps: environment steps.
        seconds: time it took.
        data: what it was trained on.
        code: where the code can be read.
    """

    method: Line = ""
    steps: Amount | None = None
    seconds: Amount | None = None
    data: Line = ""
    code: Url | None = None


class Document(StrictModel):
    """A submission's description of itself.

    Attributes:
        format: always ``ccenv-submission``.
        format_version: 1.
        kind: ``program``, ``policy`` or ``contract`` (a policy inside a program of intervals; senders), ``scripted``, ``moves``
            or ``network`` (network adversaries).
        name: of the entry.
        author: person or group.
        licence: SPDX identifier.
        summary: one line.
        url: where more can be read.
        suite: name and version of the suite it was made for, such as ``standard-v1/1``.
        architecture: of a ``policy``, ``contract`` or ``network``, and of nothing else.
        moves: of a ``network``, and of nothing else.
        training: how it was made.
        files: name -> SHA-256 of the other files, so that a signature of this document covers them.
        signed_with: fingerprint of the key whose signature comes with it: a signature can be neither taken away nor replaced.
    """

    format: Literal["ccenv-submission"]
    format_version: Literal[1]
    kind: Literal["program", "policy", "contract", "scripted", "moves", "network"]
    name: Name
    author: Author
    licence: Licence
    summary: Line = ""
    url: Url | None = None
    suite: SuiteVersion
    architecture: Architecture | None = None
    moves: NetworkMoves | None = None
    training: Training = Training()
    files: dict[Line, Sha256] = Field(min_length=1, max_length=2)
    signed_with: Fingerprint | None = None

    @property
    def track(self) -> str:
        """``sender`` or ``adversary``."""
        return TRACKS[self.kind]

    @property
    def payload(self) -> str:
        """Name of the file that holds the player."""
        return PAYLOAD[self.kind]

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all files beside the document: the payload first."""
        return self.payload, *BESIDE.get(self.kind, ())

    @model_validator(mode="after")
    def _consistent(self) -> Document:
        if set(self.files) != set(self.members):
            has = " and ".join(self.members)
            raise ValueError(f"files lists {', '.join(sorted(self.files))}; kind {self.kind!r} has exactly {has}")
        if (self.architecture is not None) != (self.kind in ("policy", "contract", "network")):
            raise ValueError("architecture belongs to kinds 'policy', 'contract' and 'network', and to them only")
        if self.architecture is not None and self.kind == "network" and self.architecture.family != "mlp":
            raise ValueError("architecture.family: a network is an 'mlp'")
        if (self.moves is not None) != (self.kind == "network"):
            raise ValueError("moves belong to kind 'network', and to it only")
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``submission.json``, as docs/submission.schema.json publishes it.

    Sizes in bytes, nesting, duplicate keys and exponents are rules of the text, which a schema cannot express.
    """
    schema = Document.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "ccenv submission, format version 1"}


def short_name(text: str) -> str:
    """Return a text as a name that a submission may have."""
    return re.sub("[^A-Za-z0-9]+", "_", text).strip("_")[:40].strip("_") or "entry"
