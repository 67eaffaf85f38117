"""The board as data, a pure function of the records: rankings, entries and adversaries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ccenv.benchmarks.statistics import Tasks, probability_of_improvement
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.leaderboard.evaluate.score import SUITES
from ccenv.leaderboard.site.sections import Certified, Theorem
from ccenv.leaderboard.site.sources import DamageRecord, Records
from ccenv.leaderboard.store.entry import SubmissionRecord
from ccenv.leaderboard.store.records import (
    BenchRecord,
    CellRecord,
    Envelope,
    Manifest,
    PlayerRecord,
    Summary,
    VerificationRecord,
    WorstCase,
    slug,
)
from ccenv.leaderboard.submission.document import fold_text
from ccenv.network.metrics.table import Metric

ADVERSARIAL = "adversarial"  # tag of suites in which the worst case counts
CLASSIC = "classic"
SHIELD = "contract"


@dataclass(frozen=True)
class Finding:
    """A worst case and the record that holds its trace."""

    case: WorstCase
    record: BenchRecord
    stale: bool = False

    @property
    def suite(self) -> str:
        return self.record.suite.name

    @property
    def metric(self) -> Metric:
        return self.record.suite.measure(self.case.metric)


@dataclass(frozen=True)
class Standing:
    """One sender in one suite."""

    player: PlayerRecord
    summary: Summary
    cells: list[CellRecord]
    record: BenchRecord
    stale: bool  # played by other code than the newest record of the suite
    # probability of improvement over the table's reference with its interval, or None
    better: tuple[float, float, float] | None = None

    def tasks(self, metric: str, adversary: str) -> Tasks:
        """Return the values of a metric against an adversary, per scenario."""
        by_scenario: dict[str, list[float]] = {}
        for cell in self.cells:
            value = cell.metrics.get(metric)
            if cell.adversary == adversary and value is not None:
                by_scenario.setdefault(cell.scenario, []).append(value)
        return {name: np.array(values) for name, values in by_scenario.items()}


@dataclass(frozen=True)
class Entry:
    """One sender on the board."""

    player: PlayerRecord
    slug: str
    results: list[Standing]
    worst: Finding | None
    verifications: list[VerificationRecord]
    submission: SubmissionRecord | None
    envelope: Envelope | None
    theorems: list[Theorem]

    @property
    def verdicts(self) -> list[str]:
        """The distinct verdicts about it (verified, refuted, unknown), or ``none``."""
        seen = {record.result.verdict for record in self.verifications}
        rows = self.envelope.rows if self.envelope is not None else ()
        seen |= {row.verdict for row in rows} | ({"verified"} if self.theorems else set())
        return sorted(seen) or ["none"]


@dataclass
class Table:
    """One suite on the board."""

    suite: SuiteBase
    sha256: str
    superseded: bool  # a newer version of the suite or its series is on the board
    # (first, last possible rank, result), best nominal score first; senders whose intervals overlap share ranks
    rows: list[tuple[int, int, Standing]] = field(default_factory=list)
    reference: str = ""  # label of the baseline of comparisons: the best classic CCA, else the last row
    manifests: list[Manifest] = field(default_factory=list)  # of the runs behind the rows


@dataclass(frozen=True)
class Board:
    """The content of the pages."""

    tables: list[Table]  # the first one ranks the senders
    entries: dict[tuple[str, str], Entry]  # by label and hash
    damages: list[DamageRecord]  # highest degradation first
    records: Records
    by_author: dict[str, int]  # author -> number of submissions by authors with the same folded name

    def entry(self, player: PlayerRecord) -> Entry:
        return self.entries[player.label, player.sha256]


def make_board(records: Records, certified: Certified) -> Board:
    """Build the board; the newest run of a sender in a suite counts. Raises InputError if the checker refuses a certificate."""
    benches = sorted(records.benches, key=lambda b: b.order)
    tables = [_table(benches, name) for name in sorted({(b.suite.name, b.suite_sha256) for b in benches})]
    editions = [edition(table.suite) for table in tables]
    newest = {series: max(number for other, number in editions if other == series) for series, _ in editions}
    for table, (series, number) in zip(tables, editions, strict=True):
        table.superseded = number < newest[series]
    tables.sort(key=_place)
    results: dict[tuple[str, str], list[Standing]] = {}
    for table in tables:
        for _, _, result in table.rows:
            results.setdefault((result.player.label, result.player.sha256), []).append(result)
    submissions = {record.submission: record for record in records.submissions}
    envelopes = {record.submission: record for record in records.envelopes}
    entries = {
        key: Entry(
            standings[0].player,
            slug(*key),
            standings,
            _find_worst(standings),
            sorted(
                (v for v in records.verifications if v.result.agent_sha256 == key[1]),
                key=lambda v: (v.result.model, v.result.property_name, v.result.steps, v.result.finished_at),
            ),
            submissions.get(standings[0].record.submission),
            envelopes.get(standings[0].record.submission),
            certified.theorems(records.players.get(standings[0].record.submission, key[1]), slug(*key)),
        )
        for key, standings in sorted(results.items())
    }
    newest_damages = {record.damage.submission: record for record in records.damages}
    damages = sorted(newest_damages.values(), key=lambda record: (-record.damage.score.iqm, record.damage.name))
    n_by_folded_author = Counter(fold_text(record.card.author) for record in records.submissions)
    authors = {record.card.author: n_by_folded_author[fold_text(record.card.author)] for record in records.submissions}
    return Board(tables, entries, damages, records, authors)


def _place(table: Table) -> tuple[bool, bool, bool, str, int, str]:
    """Return the key of a table's place: the nominal suite that ranks the senders comes first."""
    suite = table.suite
    return table.superseded, ADVERSARIAL in suite.tags, suite.name != SUITES[0], suite.name, -suite.version, table.sha256


def edition(suite: SuiteBase) -> tuple[str, tuple[int, int]]:
    """Return a suite's series and position in it: ``standard-v2`` follows every version of ``standard-v1``."""
    series, _, number = suite.name.rpartition("-v")
    if series and number.isdecimal():
        return series, (int(number), suite.version)
    return suite.name, (0, suite.version)


def _table(benches: list[BenchRecord], identity: tuple[str, str]) -> Table:
    suite_benches = [b for b in benches if (b.suite.name, b.suite_sha256) == identity]
    newest_code = suite_benches[-1].manifest.code_sha256
    standings: dict[tuple[str, str], Standing] = {}
    for bench in suite_benches:
        for player in bench.manifest.agents:
            for summary in bench.manifest.summary:
                if (summary.agent, summary.agent_sha256) == (player.label, player.sha256):
                    cells = [cell for cell in bench.cells if cell.agent_sha256 == player.sha256 and cell.agent == player.label]
                    stale = bench.manifest.code_sha256 != newest_code
                    standings[player.label, player.sha256] = Standing(player, summary, cells, bench, stale)
    suite = suite_benches[0].suite
    table = Table(suite, identity[1], False, manifests=[b.manifest for b in suite_benches])
    rows = rank_standings(list(standings.values()), suite.measure(suite.score.metric))
    reference = next((result for _, _, result in rows if result.player.kind == CLASSIC), rows[-1][2] if rows else None)
    if reference is not None:
        table.reference = reference.player.label
        table.rows = [(first, last, _compare(result, reference, suite)) for first, last, result in rows]
    return table


def _compare(result: Standing, reference: Standing, suite: SuiteBase) -> Standing:
    if result is reference:
        return result
    score = suite.score
    better = probability_of_improvement(
        result.tasks(score.metric, score.adversary),
        reference.tasks(score.metric, score.adversary),
        sign=suite.measure(score.metric).sign,
    )
    return replace(result, better=better)


def rank_standings(results: list[Standing], metric: Metric) -> list[tuple[int, int, Standing]]:
    """Rank by nominal score, as a range of ranks over all entries whose intervals overlap."""
    sign = metric.sign

    def interval(result: Standing) -> tuple[float, float, float]:
        score = result.summary.score
        if score is None:
            return float("-inf"), float("-inf"), float("-inf")
        low, high = sorted((sign * score.low, sign * score.high))
        return low, sign * score.iqm, high

    lows = np.sort([interval(result)[0] for result in results])
    highs = np.sort([interval(result)[2] for result in results])
    rows = []
    for result in sorted(results, key=lambda r: (-interval(r)[1], r.player.label, r.player.sha256)):
        low, _, high = interval(result)
        better = len(lows) - int(np.searchsorted(lows, high, side="right"))
        worse = int(np.searchsorted(highs, low, side="left"))
        rows.append((1 + better, len(results) - worse, result))
    return rows


def _find_worst(results: list[Standing]) -> Finding | None:
    """Return the worst case over the adversarial suites, else over all; results of the current code come first."""
    adversarial = [result for result in results if ADVERSARIAL in result.record.suite.tags]
    candidates = [result for result in adversarial or results if result.summary.worst_case is not None]
    current = [result for result in candidates if not result.stale]
    worst: Finding | None = None
    for result in current or candidates:
        case = result.summary.worst_case
        if case is None:
            continue
        if worst is None or (case.metric == worst.case.metric and worst.metric.worse(case.value, worst.case.value)):
            worst = Finding(case, result.record, result.stale)
    return worst


def worst_by_adversary(result: Standing, adversaries: tuple[str, ...], metric: Metric) -> dict[str, float | None]:
    """Return the worst value of a metric by adversary; None without a value."""
    out: dict[str, float | None] = {}
    for adversary in adversaries:
        values = [cell.metrics.get(metric.name) for cell in result.cells if cell.adversary == adversary]
        defined = [value for value in values if value is not None]
        out[adversary] = min(defined, key=lambda value: metric.sign * value) if defined else None
    return out
