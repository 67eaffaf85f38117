"""Leagues on the board: what the page shows of their records. A record is the operator's measurement, not a submission."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.leaderboard.site import drawing
from ccenv.training.league.record import LeagueRecord, Round, read_record
from ccenv.training.league.store import LEAGUE

FOLDER, PAGE = "leagues", "leagues.html"
SHADES = 8  # classes m0 to m7 of style.css, from the lowest payoff to the highest


@dataclass(frozen=True)
class League:
    """A league's record, and where the site holds it."""

    record: LeagueRecord
    link: str
    content: bytes

    @property
    def slug(self) -> str:
        """Its anchor on the page, and the name of its file."""
        return f"{self.record.name}-{self.record.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Return what ``board.json`` holds of it."""
        record = self.record
        rounds = [one.model_dump(include={"round", "value", "exploitability", "interval"}) for one in record.rounds]
        told = {"league": record.name, "seed": record.seed, "value": record.value, "sender_mixture": record.sender_mixture}
        return {**told, "best": record.best.model_dump(), "rounds": rounds, "record": self.link}


def read_leagues(files: list[FilePath]) -> list[League]:
    """Read the records of leagues.

    Raises:
        InputError: if one of them is no record of a finished league, or two have the same name and seed.
    """
    leagues: dict[str, League] = {}
    for file in files:
        record = read_record(file)
        slug = f"{record.name}-{record.seed}"
        if slug in leagues:
            raise InputError(f"{file}: a league {record.name} with seed {record.seed} is there already; give each once")
        leagues[slug] = League(record, f"{FOLDER}/{slug}.json", LEAGUE.content(record.model_dump(mode="json")))
    return list(leagues.values())


def league_view(league: League) -> dict[str, Any]:
    """Return what the page shows of a league."""
    record = league.record
    matrix = np.array(record.payoffs)
    low, high = float(matrix.min()), float(matrix.max())
    last = record.rounds[-1]
    rows = [
        {
            "name": name,
            "weight": record.sender_mixture.get(name),
            "nominal": nominal,
            "cells": [(value, _shade(value, low, high)) for value in row],
        }
        for name, nominal, row in zip(record.senders, record.nominal, record.payoffs, strict=True)
    ]
    networks = [
        {"name": name, "weight": last.network_mixture.get(name), "mixture": record.against(place)}
        for place, name in enumerate(record.networks)
    ]
    return {
        "record": record,
        "slug": league.slug,
        "link": league.link,
        "rows": rows,
        "networks": networks,
        "low": low,
        "high": high,
        "rounds": record.rounds,
        "hold_outs": list(last.hold_outs.mean),
        "curve": _curve(record.rounds),
        "shades": range(SHADES),
    }


def _shade(value: float, low: float, high: float) -> int:
    return SHADES - 1 if high <= low else min(SHADES - 1, int(SHADES * (value - low) / (high - low)))


def _curve(rounds: tuple[Round, ...]) -> dict[str, Any]:
    """Place exploitability by round, with its interval, in a 640 x 320 picture."""
    top = max(1e-9, *(max(one.exploitability, one.interval[1]) for one in rounds))
    bottom = min(0.0, *(one.interval[0] for one in rounds))

    def x(number: float) -> float:
        return 56 + 560 * number / max(1, len(rounds) - 1)

    def y(value: float) -> float:
        return 16 + 256 * (top - value) / (top - bottom)

    xs = [x(one.round) for one in rounds]
    above, below = ([y(one.interval[end]) for one in rounds] for end in (1, 0))
    step = -(-len(rounds) // 12)
    return {
        "path": drawing.line(xs, [y(one.exploitability) for one in rounds]),
        "band": drawing.line(xs + xs[::-1], above + below[::-1]) + "Z",
        "x_ticks": [(round(x(one.round), 1), str(one.round)) for one in rounds[::step]],
        "y_ticks": [(round(y(value), 1), f"{value:g}") for value in drawing.ticks(top)],
    }
