"""The runs that a record must hold: exactly those of its suite with its seeds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.base.files import canonical_json
from ccenv.base.foreign import parse_json
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import PACKAGE, Suite, load_suite, validate_suite
from ccenv.benchmarks.suite.packet import NETWORK, PacketSuite
from ccenv.leaderboard.store.records import CellRecord, PlayedContent, parse_suite, played_hash
from ccenv.leaderboard.submission.document import panel

Run = tuple[str, str, str, int]
"""Scenario, sender, adversary, seed."""


def list_runs(suite: SuiteBase, senders: Iterable[str]) -> list[Run]:
    cases = [case.name for case in getattr(suite, "cases", ())]
    if isinstance(suite, PacketSuite):
        return [(case, name, NETWORK, seed) for case, name, seed in product(cases, senders, suite.seeds)]
    return list(product(cases, senders, suite.opponents, suite.seeds))


def check_runs(recorded: Iterable[Run], suite: SuiteBase, senders: Iterable[str], where: str) -> None:
    """Check that recorded runs are exactly those of a suite, in its order. Raises InputError."""
    rows, expected = list(recorded), list_runs(suite, senders)
    if rows == expected:
        return
    index = next((i for i, (a, b) in enumerate(zip(rows, expected, strict=False)) if a != b), min(len(rows), len(expected)))
    seen, due = ("/".join(map(str, runs[index])) if index < len(runs) else "nothing" for runs in (rows, expected))
    has = f"{len(rows)} runs; suite {suite.name!r} with its seeds has {len(expected)}"
    raise InputError(f"{where}: {has}: run {index + 1} is {seen}, not {due}")


def check_metrics(cells: Iterable[CellRecord], suite: SuiteBase, where: str) -> None:
    """Check that cells have the metrics of their suite; per packet, those of absent flows may be missing. Raises InputError."""
    expected = set(suite.metrics)
    for cell in cells:
        wrong = set(cell.metrics) - expected if isinstance(suite, PacketSuite) else set(cell.metrics) ^ expected
        if wrong:
            raise InputError(f"{where}: {cell.scenario}/{cell.adversary}/{cell.seed}: metric {min(wrong)!r}, not as its suite")


def published_suite(content: PlayedContent, where: str) -> SuiteBase:
    """Return the published suite of a record; a suite that ccenv ships keeps the key order of its file."""
    suite = check_published(parse_suite(content.suite, content.suite_sha256, where), where)
    shipped = _load_shipped(suite.name)
    return shipped if shipped is not None and shipped.version == suite.version else suite


def played_suite(content: PlayedContent, played: dict[str, Any], where: str, **changes: Any) -> SuiteBase:
    """Return a suite as played: the published one of a record with other seeds, as many, and with ``changes``.

    Raises InputError if ``played`` is another suite, or a published one poses as one that ccenv ships.
    """
    suite = published_suite(content, where)
    if played_hash(played) != played_hash({**content.suite, "seeds": played.get("seeds"), **changes}):
        raise InputError(f"{where}: what was played is not the suite {suite.name!r} of the record")
    seeds = validate_suite(played, where).seeds
    if len(seeds) != len(suite.seeds):
        raise InputError(f"{where}: {len(seeds)} seeds; suite {suite.name!r} has {len(suite.seeds)}")
    return suite.model_copy(update={"seeds": seeds})


def check_published(suite: SuiteBase, where: str) -> SuiteBase:
    """Return a suite that a board can publish and read back from a record unchanged.

    Raises InputError if a scenario has no flow of the sender under test, ccenv ships another suite of the same name and version,
    or the names of its cases depend on the order of keys, which records sort.
    """
    name, shipped = f"{suite.name}/{suite.version}", _load_shipped(suite.name)
    if not isinstance(suite, (Suite, PacketSuite)) or not all(getattr(one, "uses_agent", True) for one in suite.scenarios):
        raise InputError(f"{where}: suite {name} has scenarios without the sender under test: no board evaluates it")
    if shipped is not None and suite.version > shipped.version:
        raise InputError(f"{where}: suite {name}; this ccenv has version {shipped.version}: use a newer ccenv")
    if shipped is not None and suite.version == shipped.version:
        if suite.sha256 != shipped.sha256:
            raise InputError(f"{where}: suite {name} is not the one that ccenv ships under this name and version")
        return suite
    kept = validate_suite(parse_json(canonical_json(suite.model_dump()), where), where)
    cases: Any = zip(suite.cases, kept.cases, strict=True)  # type: ignore[attr-defined]
    for case, other in cases:
        if case.name != other.name:
            raise InputError(
                f"{where}: case {case.name!r}: write parameters in the order of the alphabet, as {other.name!r} does"
            )
    return suite


@cache
def _load_shipped(name: str) -> SuiteBase | None:
    return load_suite(name) if name in shipped_names(PACKAGE, ".yaml") else panel() if name == panel().name else None
