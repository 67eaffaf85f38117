"""Theorems of senders, each with a certificate that the checker confirmed; leagues and QUIC runs, the operator's measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

import numpy as np

from ccenv.agents.identity import sender_hash
from ccenv.agents.programs import Program, parse_program
from ccenv.agents.sender import ProgramSender, Sender, ShieldSender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.registry import load_target, number
from ccenv.leaderboard.site import drawing
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.leaderboard.submission.weights import quantise_player
from ccenv.proofs.certificates.fairness.check import check_fair
from ccenv.proofs.certificates.fairness.reading import FORMAT as FAIR_FORMAT
from ccenv.proofs.certificates.fairness.reading import SUFFIX, exact, read_fair, shipped_fair
from ccenv.proofs.certificates.library import Stored
from ccenv.training.league.record import LeagueRecord, Round, read_record
from ccenv.training.league.store import LEAGUE

FOLDER = "certificates"

# Looked up at run time: the core does not import agents.
_MAKE_SENDER = "ccenv.agents:make_sender"
_FAIR = "ever_delay"


@dataclass(frozen=True)
class Theorem:
    """A theorem with its certificate, which the checker confirmed without solving."""

    flows: str  # "1", or "any": for any number of flows of the sender
    statement: str
    figures: Mapping[str, float | None]  # what is proved; None: not claimed
    assumptions: Sequence[str]
    link: str
    content: bytes
    queries: int
    solver: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of ``board.json``."""
        description = {"flows": self.flows, "statement": self.statement, **self.figures, "assumptions": list(self.assumptions)}
        return {**description, "certificate": self.link, "checked": "without solving"}


class Certified:
    """Certificates by the hashes of their programs."""

    def __init__(self, certificates: Sequence[Stored]) -> None:
        self._fair = sender_hash(load_target(_MAKE_SENDER)(_FAIR))
        self._about: dict[str, list[Stored]] = {}
        for stored in certificates:
            for digest in _hashes(stored):
                self._about.setdefault(digest, []).append(stored)

    def theorems(self, played: str, slug: str) -> list[Theorem]:
        """Check the certificates of a program and return their theorems. Raises InputError if the checker refuses one."""
        theorems = [_make_theorem(stored, f"{slug}-{place}") for place, stored in enumerate(self._about.get(played, ()), start=1)]
        return theorems + ([_fair_theorem(slug)] if played == self._fair else [])


def _hashes(stored: Stored) -> set[str]:
    """Return the hashes of a sender of the certificate's program, as registered and as submitted."""
    name = stored.certificate.theorem.sender
    try:
        program = parse_program(stored.certificate.program)
        sender: Sender | None = _chooser(name, program) if program.is_shield else ProgramSender(name, program)
    except CcenvError:
        return set()
    return set() if sender is None else {sender_hash(sender), canonical_hash(sender), canonical_hash(quantise_player(sender))}


def _chooser(name: str, shield: Program) -> ShieldSender | None:
    """Return the registered agent of a name if it chooses inside this shield; a shield alone cannot play."""
    if not name.isidentifier():  # no file that a certificate names is read
        return None
    sender = load_target(_MAKE_SENDER)(name)
    return sender if isinstance(sender, ShieldSender) and sender.program == shield else None


def _make_theorem(stored: Stored, name: str) -> Theorem:
    stored.confirm()
    certificate = stored.certificate
    return Theorem(
        "1",
        certificate.statement,
        certificate.figures,
        certificate.assumptions,
        f"{FOLDER}/{name}.certificate.json",
        stored.content,
        len(certificate.queries),
        " and ".join(sorted({query.solver for query in certificate.queries})),
    )


def _fair_theorem(slug: str) -> Theorem:
    """Check the certificate of the default design, from which the registered sender has its rule."""
    file = shipped_fair()[_FAIR]
    certificate = read_fair(file)
    report = check_fair(certificate)
    if report.refusals:
        raise InputError(f"{file}: the certificate is refused ({report.refusals[0][0]}): {report.refusals[0][1]}")
    return Theorem(
        "any",
        certificate.statement,
        {name: float(value) for name, value in exact(certificate.bounds).items()},
        certificate.assumptions,
        f"{FOLDER}/{slug}{SUFFIX}",
        FAIR_FORMAT.content(certificate.model_dump()),
        report.queries,
        " and ".join(sorted({query.solver for query in certificate.queries})),
    )


Quic = Mapping[str, Sequence[tuple[float, str]]]
"""Utilisation under attack and stack, lowest first, by sender."""

NO_QUIC: Quic = MappingProxyType({})

LARGEST_UTILISATION = 1.05
"""Of half a run: what waited when it began is delivered in it, at most D of 80 ms in 2.4 s."""


def read_quic(files: Sequence[FilePath]) -> Quic:
    """Read records of the suite quic-v1.

    Raises InputError for a file that is no such record, a run that was not legal or not repeated, and two rows about the same.
    """
    from ccenv.quic.stacks import STACKS
    from ccenv.quic.suite import FORMAT, SUITE

    attacked: dict[str, dict[str, float]] = {}
    for file in files:
        record = FORMAT.read(file)
        rows = record.get("rows")
        if record.get("suite") != SUITE or not isinstance(rows, list):
            raise InputError(f"{file}: no rows of the suite {SUITE}")
        for row in rows:
            sender, stack = (row.get("sender"), row.get("stack")) if isinstance(row, dict) else (None, None)
            if not isinstance(sender, str) or not isinstance(stack, str):
                raise InputError(f"{file}: a row has no sender or no stack")
            measured = [row[key] for key in ("attacked", "searched") if row.get(key) is not None]
            if stack not in STACKS or not measured:
                continue
            about = f"{file}: {stack}/{sender}"
            lowest = min(number(about, "utilisation", value, low=0, high=LARGEST_UTILISATION) for value in measured)
            if row.get("legal") is not True or row.get("twin") is False:
                raise InputError(f"{about}: not legal, or not what the reference does: no result")
            if stack in attacked.setdefault(sender, {}):
                raise InputError(f"{about}: given twice")
            attacked[sender][stack] = lowest
    return {sender: sorted((lowest, stack) for stack, lowest in rows.items()) for sender, rows in attacked.items()}


LEAGUES_FOLDER, PAGE = "leagues", "leagues.html"
SHADES = 8  # classes m0 to m7 of style.css, from the lowest payoff to the highest


@dataclass(frozen=True)
class League:
    """A league's record with its file on the site."""

    record: LeagueRecord
    link: str
    content: bytes

    @property
    def slug(self) -> str:
        """Its anchor on the page, and the name of its file."""
        return f"{self.record.name}-{self.record.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of ``board.json``."""
        record = self.record
        shown_keys = {"round", "value", "exploitability", "interval", "code", "replayed"}
        rounds = [one.model_dump(include=shown_keys) for one in record.rounds]
        description = {"league": record.name, "seed": record.seed, "value": record.value, "sender_mixture": record.sender_mixture}
        return {**description, "best": record.best.model_dump(), "rounds": rounds, "record": self.link}


def read_leagues(files: list[FilePath]) -> list[League]:
    """Read the records of leagues.

    Raises InputError if one of them is no record of a finished league, or two have the same name and seed.
    """
    leagues: dict[str, League] = {}
    for file in files:
        record = read_record(file)
        slug = f"{record.name}-{record.seed}"
        if slug in leagues:
            raise InputError(f"{file}: a league {record.name} with seed {record.seed} is there already; give each once")
        leagues[slug] = League(record, f"{LEAGUES_FOLDER}/{slug}.json", LEAGUE.content(record.model_dump(mode="json")))
    return list(leagues.values())


def league_view(league: League) -> dict[str, Any]:
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
