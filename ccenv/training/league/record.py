"""The record of a finished league, read from an untrusted file without running or building anything in it, and its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer, model_validator

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.figure import finish, panels, save
from ccenv.base.foreign import JsonRules, read_json, shown_path
from ccenv.training.league.store import LEAGUE

MAX_PLAYERS = 512
MAX_ROUNDS = 1000
RULES = JsonRules(max_bytes=16 << 20, max_depth=12, max_values=1_000_000)
ROUND_OFF = 1e-6
HASH = r"^[0-9a-f]{64}$"

Finite = Annotated[float, Field(strict=True, ge=-1e12, le=1e12, allow_inf_nan=False)]  # sums and pictures of them are finite
Name = Annotated[str, Field(min_length=1, max_length=200)]
Mixture = Annotated[dict[Name, Annotated[float, Field(ge=0, le=1 + ROUND_OFF)]], Field(min_length=1, max_length=MAX_PLAYERS)]


class HoldOuts(StrictModel):
    """Payoffs of the senders' mixture against the hold-outs, by adversary: mean over the paths, and on the worst one."""

    mean: dict[Name, Finite]
    worst: dict[Name, Finite]


class Round(StrictModel):
    """A round, as :func:`ccenv.training.league.run.league` describes it.

    Attributes:
        code: hash of the code that decided it, if it is not that of the league.
        replayed: whether the league's code got the same round from its answers.
    """

    round: int = Field(ge=0, lt=MAX_ROUNDS, strict=True)
    value: Finite
    exploitability: Finite
    interval: tuple[Finite, Finite]
    sender_gain: Finite
    network_gain: Finite
    sender_mixture: Mixture
    network_mixture: Mixture
    sender_begins_as: Name
    network_payoffs: tuple[Finite, ...] = Field(min_length=1, max_length=MAX_PLAYERS)
    network_searches: tuple[Name | None, ...] = Field(max_length=MAX_PLAYERS)
    hold_outs: HoldOuts
    best_sender: Name
    best_guarantee: Finite
    best_nominal: Finite
    code: str | None = Field(default=None, pattern=HASH)
    replayed: bool | None = Field(default=None, strict=True)

    @model_serializer(mode="wrap")
    def _leave_out_own_code(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if value is not None or key not in ("code", "replayed")}

    @model_validator(mode="after")
    def _consistent(self) -> Round:
        if self.interval[0] > self.interval[1]:
            raise ValueError("interval: the lower end is above the upper one")
        if not math.isclose(self.exploitability, self.sender_gain + self.network_gain, abs_tol=ROUND_OFF):
            raise ValueError("exploitability is not what the two sides gain together")
        return self


class Best(StrictModel):
    """The sender with the highest guarantee."""

    sender: Name
    folder: Name | None
    guarantee: Finite
    worst_in_each_scene: tuple[Finite, ...]
    nominal_score: Finite


class LeagueRecord(StrictModel):
    """A finished league.

    Attributes:
        name, seed, code, config, timing: as :func:`ccenv.training.league.run.league` writes them; records may omit the code.
        rounds: in order.
        senders, networks: names of the rows and columns of ``payoffs``.
        payoffs: of each sender against each network, mean over the scenarios.
        nominal: nominal score of each sender.
        exploitability: of each round.
        value, sender_mixture: of the game of the last populations.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,47}$")
    seed: int = Field(ge=0, lt=2**31, strict=True)
    status: str
    config: dict[str, Any]
    code: str | None = Field(default=None, pattern=HASH)
    rounds: tuple[Round, ...] = Field(min_length=1, max_length=MAX_ROUNDS)
    senders: tuple[Name, ...] = Field(min_length=1, max_length=MAX_PLAYERS)
    networks: tuple[Name, ...] = Field(min_length=1, max_length=MAX_PLAYERS)
    payoffs: tuple[tuple[Finite, ...], ...]
    nominal: tuple[Finite, ...]
    exploitability: tuple[Finite, ...]
    value: Finite
    sender_mixture: Mixture
    best: Best
    timing: dict[Name, Finite]

    @field_validator("senders", "networks")
    @classmethod
    def _require_unique(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError(f"one of the {info.field_name} is named twice")
        return names

    @model_validator(mode="after")
    def _consistent(self) -> LeagueRecord:
        if len(self.payoffs) != len(self.senders) or any(len(row) != len(self.networks) for row in self.payoffs):
            raise ValueError(f"payoffs: {len(self.senders)} rows of {len(self.networks)} values are needed, one per player")
        if len(self.nominal) != len(self.senders):
            raise ValueError(f"nominal: {len(self.senders)} values are needed, one per sender")
        if [one.round for one in self.rounds] != list(range(len(self.rounds))):
            raise ValueError("rounds: must be numbered from 0 on, without a gap")
        if list(self.exploitability) != [one.exploitability for one in self.rounds]:
            raise ValueError("exploitability: not that of the rounds")
        mixtures = [(one.sender_mixture, self.senders) for one in self.rounds]
        mixtures += [(one.network_mixture, self.networks) for one in self.rounds]
        for mixture, names in [*mixtures, (self.sender_mixture, self.senders)]:
            strangers = sorted(set(mixture) - set(names))
            if strangers:
                raise ValueError(f"a mixture plays {strangers[0]!r}, who is not in the league")
            if abs(math.fsum(mixture.values()) - 1) > len(mixture) * ROUND_OFF:
                raise ValueError("the weights of a mixture do not add up to 1")
        least = min(self.against(network) for network in range(len(self.networks)))
        if self.value > least + ROUND_OFF:
            raise ValueError(f"value is {self.value:.6f}, but the senders' mixture gets {least:.6f} against one of the networks")
        return self

    def against(self, network: int) -> float:
        """Return the payoff of the senders' last mixture against a network."""
        rows = dict(zip(self.senders, self.payoffs, strict=True))
        return math.fsum(weight * rows[name][network] for name, weight in self.sender_mixture.items())


def read_record(file: FilePath) -> LeagueRecord:
    """Read ``league.json`` of a finished league.

    Raises InputError if it cannot be read, is no record of a league, contradicts itself, or its league is not finished.
    """
    record_file = file / "league.json" if file.is_dir() else file
    data = LEAGUE.check(read_json(record_file, RULES), shown_path(record_file))
    if data.get("status") != "finished":
        raise InputError(f"{shown_path(record_file)}: this league is not finished; run its command again first")
    return validate(LeagueRecord, {key: value for key, value in data.items() if key not in LEAGUE.head}, shown_path(record_file))


MOST_NUMBERS = 12  # largest side of a matrix that is drawn with numbers
DARK = 0.5  # position on the colour scale below which numbers are white


def draw_payoffs(file: FilePath, senders: Sequence[str], networks: Sequence[str], matrix: np.ndarray) -> None:
    """Draw the payoff matrix, (S, N); the suffix of the file selects the format."""
    figure, (ax,) = panels(1, 1, (3.5 + 0.45 * len(networks), 2.0 + 0.35 * len(senders)))
    image = ax.imshow(matrix, cmap="viridis", aspect="auto")
    low, high = image.get_clim()
    if max(matrix.shape) <= MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(matrix):
            colour = "white" if high == low or (value - low) / (high - low) < DARK else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize="x-small")
    ax.set_xticks(range(len(networks)), networks, rotation=60, ha="right")
    ax.set_yticks(range(len(senders)), senders)
    ax.set_xlabel("network")
    ax.set_ylabel("sender")
    figure.colorbar(image, label="payoff of the sender")
    save(figure, file)


def draw_curve(file: FilePath, rounds: Sequence[dict[str, Any]]) -> None:
    """Draw exploitability by round with its intervals, and the senders' mean payoffs against the hold-outs."""
    figure, (above, below) = panels(2, 1, (6.0, 5.0), sharex=True)
    numbers = [one["round"] for one in rounds]
    values = [one["exploitability"] for one in rounds]
    above.fill_between(numbers, [one["interval"][0] for one in rounds], [one["interval"][1] for one in rounds], alpha=0.25)
    above.plot(numbers, values, marker="o")
    above.set_ylim(bottom=min(0.0, above.get_ylim()[0]))
    finish(above, y="exploitability")
    for name in rounds[0]["hold_outs"]["mean"]:
        below.plot(numbers, [one["hold_outs"]["mean"][name] for one in rounds], marker="o", label=name)
    below.plot(numbers, [np.mean(one["network_payoffs"]) for one in rounds], color="black", linestyle=":", label="answer")
    finish(below, "round", "utilisation - loss", loc="best")
    save(figure, file)
