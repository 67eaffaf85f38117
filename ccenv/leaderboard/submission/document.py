"""``submission.json``, whose models are the published JSON Schema, and the folding of names that look alike."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.learned import MAX_WIDTH, Head, Stage, check_playable
from ccenv.agents.learned.weights import MAX_LAYERS
from ccenv.base.config import StrictModel, validate
from ccenv.base.files import Format
from ccenv.base.foreign import STRANGER, parse_yaml
from ccenv.benchmarks.suite.curve import Suite

# Latin letter or digit -> letters of [UTS 39] confusables.txt that look like it, after compatibility and case folding.
_DRAWN_ALIKE = {
    "a": "\u0430\u0251\u03b1\u1d00\uab7a",
    "b": "\u044c\u0185\u0299\u0432\u03b2\u13cf",
    "c": "\u0441\u03f2\u1d04\u217d\uabaf\u1d04",
    "d": "\u0501\u0257\u1d05\uabb7",
    "e": "\u0435\u04bd\u0454\u03b5\u1d07\uab7c\u212e",
    "f": "\u017f\ua799\u1e9d\u03dd",
    "g": "\u0261\u0581\u0262\uab90",
    "h": "\u04bb\u0570\u029c\u043d\uab8b",
    "j": "\u0458\u03f3\u1d0a",
    "k": "\u043a\u03ba\u1d0b\u0138\u049d\uabb6",
    "l": "1i\u0456\u0131\u03b9\u0269\u04cf\u013e\ua647|!\u0269\u1c80\u026a\uabae\u029f\u01c0",
    "m": "\u043c\u1d0d\uab87",
    "n": "\u043f\u0578\u03b7\u0274",
    "o": "0\u043e\u03bf\u0585\u03c3\u1d0f\u0585\u1d0f\u0d20\u0c66\u0966\u06f0\u0660\u07c0\u3007\u2d54",
    "p": "\u0440\u03c1\u1d18\u03f1\uabb2\u2374",
    "q": "\u051b\u0563\u0566",
    "r": "\u0433\uab47\u1d26\u0280\uab81",
    "s": "5\u0455\ua731\u01bd\u10fd",
    "t": "\u0442\u03c4\u1d1b\uab72",
    "u": "\u03c5\u057d\u028b\u1d1c\uab4e",
    "v": "\u0475\u03bd\u1d20\uaba9",
    "w": "\u051d\u0561\u0461\u03c9\u026f\u1d21\uab83",
    "x": "\u0445\u03c7\u00d7",
    "y": "\u0443\u03b3\u04af\u10e7\u028f\u1eff",
    "z": "2\u1d22\uab93\u0290",
    "6": "\u0431",
    "3": "\u0437\u0499\u044d\u025c",
}
_TO_LATIN = {ord(other): latin for latin, others in _DRAWN_ALIKE.items() for other in others}
_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_SEPARATORS = dict.fromkeys(map(ord, "_-.:=,+ '@()[]"))

# Characters that Python calls printable but that are invisible: fillers, joiners, variation selectors, a blank pattern.
_INKLESS = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


def find_invisible(text: str) -> str | None:
    """Return the first invisible or direction-changing character of a text, or None."""
    for character in text:
        if not character.isprintable() or any(low <= ord(character) <= high for low, high in _INKLESS):
            return character
    return None


def check_visible(text: str) -> str:
    """Return a text without invisible or direction-changing characters. Raises ValueError, for validators."""
    hidden = find_invisible(text)
    if hidden is not None:
        raise ValueError(f"holds the control, invisible or direction-changing character U+{ord(hidden):04X}")
    return text


def fold_text(text: str) -> str:
    """Return the common form of texts that look alike (case, accents, confusable letters), for comparison only."""
    form = unicodedata.normalize("NFKC", text).casefold()
    letters = (c for c in unicodedata.normalize("NFD", form) if not unicodedata.combining(c))
    plain = "".join(letters).translate(_TO_LATIN).translate(_SEPARATORS)
    for pair, single in _PAIRS:
        plain = plain.replace(pair, single)
    return plain


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


@dataclass(frozen=True)
class Matching:
    """Checks that a text is visible, no HTML, and matches a pattern, which ``allowed`` describes in messages."""

    pattern: str
    allowed: str

    def __call__(self, text: str) -> str:
        """Return the text. Raises ValueError for anything that is not allowed."""
        check_visible(text)
        if "<" in text or ">" in text:
            raise ValueError("holds '<' or '>'; plain text only, no HTML")
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"not allowed; {self.allowed}")
        return text


def _limits(pattern: str, longest: int) -> Any:
    return Field(max_length=longest, json_schema_extra={"pattern": pattern})


_AUTHOR = r"^[^\W_]([\w .,'@()+-]*[\w.)])?$"
_LICENCE = r"^[A-Za-z0-9][A-Za-z0-9.+-]*$"
_URL = r"^https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/[A-Za-z0-9._~%/+=&?#-]*)?$"
_SUITE = r"^[a-z0-9][a-z0-9_-]*/[1-9][0-9]{0,5}$"
_LINE = r"^[^\u0000-\u001f\u007f-\u00a0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff<>]*$"
_NAME_ALLOWED = "a letter, then letters and digits with single '_', '-' or '.' between them"

Name = Annotated[str, _limits(NAME, 40), AfterValidator(Matching(NAME, _NAME_ALLOWED))]
Author = Annotated[str, _limits(_AUTHOR, 80), AfterValidator(Matching(_AUTHOR, "letters, digits, spaces and . , ' @ ( ) + - _"))]
Licence = Annotated[str, _limits(_LICENCE, 40), AfterValidator(Matching(_LICENCE, "an SPDX identifier such as Apache-2.0"))]
Url = Annotated[str, _limits(_URL, 200), AfterValidator(Matching(_URL, "https://host/path, no user, no port"))]
SuiteVersion = Annotated[str, _limits(_SUITE, 50), AfterValidator(Matching(_SUITE, "name/version, such as standard-v1/1"))]
Line = Annotated[str, _limits(_LINE, 300), AfterValidator(Matching(_LINE, "one line of visible text"))]
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
        return TRACKS[self.kind]

    @property
    def payload(self) -> str:
        """Name of the file that holds the player."""
        return PAYLOAD[self.kind]

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all files but the document, the payload first."""
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
    return re.sub("[^A-Za-z0-9]+", "_", text).strip("_")[:40].strip("_") or "entry"


def panel() -> Suite:
    """Return the panel: senders, paths and lengths."""
    text = (resources.files("ccenv.leaderboard") / "panel.yaml").read_text(encoding="utf-8")
    return validate(Suite, parse_yaml(text, "panel.yaml"), "panel.yaml")
