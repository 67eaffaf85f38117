"""``adversary.json``: a shipped scripted adversary with parameters, as data."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.base.config import StrictModel, validate
from ccenv.base.document import Format
from ccenv.base.errors import InputError
from ccenv.base.foreign import STRANGER
from ccenv.leaderboard.submission.document import CAPS, PAYLOAD
from ccenv.network.adversary import ScriptedAdversary

RULES = replace(STRANGER, max_bytes=CAPS[PAYLOAD["scripted"]], max_depth=3)
# The cards of learned adversaries have this name too; boards hold both, chained by hashes, so that neither can change.
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

    Raises:
        InputError: if it is damaged, not a scripted adversary, or a parameter is not one of its.
    """
    document = validate(ScriptedDocument, FORMAT.parse(content, where), where)
    spec = document.name
    if document.parameters:
        spec += ":" + ",".join(f"{key}={_plain(value)}" for key, value in sorted(document.parameters.items()))
    if document.name not in ADVERSARIES.names("scripted"):
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
    """Write a number without exponent, shortest form that is the same number."""
    text = repr(int(value)) if value == int(value) else repr(value)
    return text if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else f"{value:.9f}".rstrip("0").rstrip(".")
