"""A game on an integer grid as data: which paths there may be, what the sender is told and when, and what it may lose."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml

GAMES = "ccenv.configs.solve"
LARGEST_RATE = 40
UNLIMITED = 10**6
"""Loss that an allowance without a limit stands for, and the packets of an infinite buffer."""
_EXPRESSION = re.compile(r"(?P<root>sqrt\(C\))|(?P<times>\d+)?C(?:/(?P<over>[1-9]\d*))?(?:\+(?P<more>\d+))?")
_LIMITS = {"buffer": (UNLIMITED - 1, "inf", ", 'up to C' or inf"), "allowance": (UNLIMITED, "free", " or free")}
"""Largest number, the word for no limit, and what else may be written."""

Rate = Annotated[int, Field(ge=1, le=LARGEST_RATE, strict=True)]


class Game(StrictModel):
    """A game of sender and network ([CCmatic] s.4): time in steps of Rm, data in packets, everything a whole number.

    Attributes:
        name: for messages and results.
        summary: one line.
        source: what it is taken from.
        model: ``ideal`` (no jitter), ``cbr`` (a constant link behind a jitter box) or ``ccac`` (a bucket of C D tokens).
        jitter_steps: D; 0 for ``ideal``, 1 for ``ccac``.
        rates: the possible link rates C, in packets a step.
        buffers: packets, or terms of C as of ``loss``, ``up to C`` for every size from 0 to C, or ``inf``.
        deepest_buffer_bdp: buffers above this multiple of C are left out; None: none is.
        feedback_steps: 0 if the sender sees what a step brought before it decides again, 1 if a step later.
        loss: the most packets that a step may lose on a path of rate C: a number, ``C``, ``C/2``, ``sqrt(C)``, ``2C+1`` or
            ``free``.
        horizon_steps: of the regret.
        delays: the possible propagation delays Rm, in steps; several only on ``ideal``, with feedback in the same step.
        start_inflight: packets in flight before the first step, of which only the number is known; above 0 as for ``delays``.
        most_inflight: most packets that may ever be in flight; None: four times the largest rate.
    """

    name: str = Field(default="game", min_length=1, max_length=60)
    summary: str = ""
    source: str = ""
    model: Literal["ideal", "cbr", "ccac"]
    jitter_steps: int = Field(default=1, ge=0, le=2, strict=True)
    rates: tuple[Rate, ...] = Field(min_length=1)
    buffers: tuple[int | str, ...] = Field(min_length=1)
    deepest_buffer_bdp: int | None = Field(default=None, ge=0, strict=True)
    feedback_steps: int = Field(default=0, ge=0, le=1, strict=True)
    loss: Annotated[int, Field(strict=True)] | str = "free"
    horizon_steps: int = Field(default=64, ge=1, le=10_000, strict=True)
    delays: tuple[Annotated[int, Field(ge=1, le=4, strict=True)], ...] = Field(default=(1,), min_length=1)
    start_inflight: int = Field(default=0, ge=0, strict=True)
    most_inflight: int | None = Field(default=None, ge=1, le=4 * LARGEST_RATE, strict=True)

    @field_validator("rates", "delays", "buffers", "loss")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name in {"rates", "delays"} and list(value) != sorted(set(value)):
            raise ValueError(f"{info.field_name} must ascend")
        for buffer in value if info.field_name == "buffers" else ():
            _sizes(buffer, 1)
        if info.field_name == "loss":
            _packets("allowance", value, 1)
        return value

    @model_validator(mode="after")
    def _possible(self) -> Game:
        fixed = {"ideal": (0,), "cbr": (0, 1, 2), "ccac": (1,)}[self.model]
        if self.jitter_steps not in fixed:
            raise ValueError(f"jitter_steps is {self.jitter_steps}; model {self.model!r} takes {' or '.join(map(str, fixed))}")
        if "inf" in self.buffers and self.most_inflight is None:
            raise ValueError("an infinite buffer makes endlessly many boards: give most_inflight, a cap on packets in flight")
        if (self.delays != (1,) or self.start_inflight) and (self.model != "ideal" or self.feedback_steps):
            raise ValueError("delays other than 1 and start_inflight take model 'ideal' and feedback_steps 0")
        if self.start_inflight > self.inflight_cap:
            raise ValueError(f"start_inflight is {self.start_inflight}; at most {self.inflight_cap} packets may be in flight")
        if not self.paths:
            raise ValueError("buffers: none is left for any rate; deepest_buffer_bdp leaves all of them out")
        return self

    @property
    def inflight_cap(self) -> int:
        """The most packets in flight."""
        return 4 * self.rates[-1] if self.most_inflight is None else self.most_inflight

    @property
    def most_sent(self) -> int:
        """The most packets that a step can send: one more than fill the fastest link and its bucket."""
        return 2 * self.rates[-1] + 1

    @cached_property
    def paths(self) -> list[tuple[int, int]]:
        """The possible paths (C, beta), an infinite beta as UNLIMITED."""
        deepest = math.inf if self.deepest_buffer_bdp is None else self.deepest_buffer_bdp
        paths = {
            (rate, size)
            for rate in self.rates
            for buffer in self.buffers
            for size in _sizes(buffer, rate)
            if size <= deepest * rate
        }
        return sorted(paths)

    @property
    def allowed_loss(self) -> NDArray[np.int64]:
        """The most packets that a step may lose, by rate from 0 on."""
        return np.array([_packets("allowance", self.loss, rate) for rate in range(self.rates[-1] + 1)], dtype=np.int64)

    def with_known_delay(self, what: str) -> Game:
        """Return the game. Raises InputError if it is not one whose Rm is a step and known, as ``what`` needs."""
        if self.delays != (1,) or self.start_inflight:
            raise InputError(
                f"game {self.name!r} has several propagation delays or packets in flight at the start; not for {what}"
            )
        return self

    def changed(self, **fields: Any) -> Game:
        """Return the game with other fields, checked. Raises InputError."""
        return validate(Game, self.model_dump() | fields, self.name)


def _sizes(buffer: int | str, rate: int) -> Sequence[int]:
    """Return the packets that a buffer as written stands for at a rate."""
    return range(rate + 1) if buffer == "up to C" else (_packets("buffer", buffer, rate),)


def _packets(what: str, value: int | str, rate: int) -> int:
    """Return the packets that a buffer or an allowance stands for at a rate, rounded down. Raises ValueError, for validators."""
    most, without_limit, others = _LIMITS[what]
    if isinstance(value, int):
        if not 0 <= value <= most:
            article = "an" if what == "allowance" else "a"
            raise ValueError(
                f"{article} {what} of {value} packets; it must be a whole number from 0 to {most}, or {without_limit}"
            )
        return value
    if value == without_limit:
        return UNLIMITED
    match = _EXPRESSION.fullmatch(value)
    if match is None:
        raise ValueError(f"{what} {value!r} must be a number of packets, C, C/2, 2C+1, sqrt(C){others}")
    if match["root"]:
        return math.isqrt(rate)
    return int(match["times"] or 1) * rate // int(match["over"] or 1) + int(match["more"] or 0)


def load_game(name: str) -> Game:
    """Read a game: a shipped name or the path of a YAML file. Raises UnknownNameError, or InputError with key and value."""
    file = find_data(GAMES, name, ".yaml", "game")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file.name}: a game is a mapping of fields")
    return validate(Game, {"name": file.stem} | data, file.name)
