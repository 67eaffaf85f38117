"""The board as data: a pure function of the records."""

from __future__ import annotations

from dataclasses import dataclass, field

from ccenv.benchmarks.suite import Suite
from ccenv.leaderboard.records import BenchRecord, Cell, Manifest, Player, Summary, VerificationRecord, WorstCase, slug
from ccenv.metrics import METRICS, Metric, get_metric


@dataclass(frozen=True)
class Finding:
    """A worst case and the run folder that holds its trace."""

    suite: str
    case: WorstCase
    record: BenchRecord

    @property
    def metric(self) -> Metric:
        """The metric that it is the worst value of."""
        return METRICS[self.case.metric]


@dataclass(frozen=True)
class Entry:
    """One sender on the board.

    Attributes:
        player: who it is.
        slug: file name of its page.
        results: its results, one per suite.
        worst: the worst case found in any suite, or None.
        verifications: what solvers said about exactly this sender.
    """

    player: Player
    slug: str
    results: list[Result]
    worst: Finding | None
    verifications: list[VerificationRecord]


@dataclass(frozen=True)
class Result:
    """One sender in one suite.

    Attributes:
        player, summary, cells: as recorded.
        record: where from.
        stale: played by other code than the newest record of the suite.
    """

    player: Player
    summary: Summary
    cells: list[Cell]
    record: BenchRecord
    stale: bool


@dataclass
class Table:
    """One suite on the board.

    Attributes:
        suite, sha256: which.
        superseded: a newer version of the suite is on the board.
        rows: best nominal score first; (first possible rank, last possible rank, result). Senders whose intervals overlap
            cannot be separated by the data and share ranks.
        manifests: runs that the rows come from.
    """

    suite: Suite
    sha256: str
    superseded: bool
    rows: list[tuple[int, int, Result]] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)


@dataclass(frozen=True)
class Board:
    """Everything that the pages show."""

    tables: list[Table]
    entries: dict[tuple[str, str], Entry]

    def entry(self, player: Player) -> Entry:
        """Return the entry of a sender."""
        return self.entries[player.label, player.sha256]


def make_board(benches: list[BenchRecord], verifications: list[VerificationRecord]) -> Board:
    """Arrange the records.

    Where several runs of a suite hold the same sender, the newest counts.
    """
    benches = sorted(benches, key=lambda b: (b.manifest.finished_at, str(b.folder)))
    tables = [_table(benches, name) for name in sorted({(b.manifest.suite.name, b.manifest.suite_sha256) for b in benches})]
    newest = {t.suite.name: max(o.suite.version for o in tables if o.suite.name == t.suite.name) for t in tables}
    for table in tables:
        table.superseded = table.suite.version < newest[table.suite.name]
    tables.sort(key=lambda t: (t.superseded, "adversarial" in t.suite.tags, t.suite.name, -t.suite.version, t.sha256))
    results: dict[tuple[str, str], list[Result]] = {}
    for table in tables:
        for _, _, result in table.rows:
            results.setdefault((result.player.label, result.player.sha256), []).append(result)
    entries = {
        key: Entry(own[0].player, slug(*key), own, _worst(own), _about(own[0].player, verifications))
        for key, own in sorted(results.items())
    }
    return Board(tables, entries)


def _table(benches: list[BenchRecord], which: tuple[str, str]) -> Table:
    own = [b for b in benches if (b.manifest.suite.name, b.manifest.suite_sha256) == which]
    newest_code = own[-1].manifest.code_sha256
    found: dict[tuple[str, str], Result] = {}
    for bench in own:
        for player in bench.manifest.agents:
            for summary in bench.manifest.summary:
                if (summary.agent, summary.agent_sha256) == (player.label, player.sha256):
                    cells = [cell for cell in bench.cells if cell.agent_sha256 == player.sha256 and cell.agent == player.label]
                    stale = bench.manifest.code_sha256 != newest_code
                    found[player.label, player.sha256] = Result(player, summary, cells, bench, stale)
    suite = own[0].manifest.suite
    table = Table(suite, which[1], False, manifests=[b.manifest for b in own])
    table.rows = _ranked(list(found.values()), get_metric(suite.score.metric))
    return table


def _ranked(results: list[Result], metric: Metric) -> list[tuple[int, int, Result]]:
    """Rank by nominal score; an entry may be anywhere among those whose intervals overlap with its own."""
    sign = 1.0 if metric.direction == "higher" else -1.0

    def interval(result: Result) -> tuple[float, float, float]:
        score = result.summary.score
        if score is None:
            return float("-inf"), float("-inf"), float("-inf")
        low, high = sorted((sign * score.low, sign * score.high))
        return low, sign * score.iqm, high

    rows = []
    for result in sorted(results, key=lambda r: (-interval(r)[1], r.player.label, r.player.sha256)):
        low, _, high = interval(result)
        better = sum(interval(other)[0] > high for other in results)
        worse = sum(interval(other)[2] < low for other in results)
        rows.append((1 + better, len(results) - worse, result))
    return rows


def _worst(results: list[Result]) -> Finding | None:
    """Return the worst case over all suites; suites whose worst case is of another metric than the first one's do not mix."""
    worst: Finding | None = None
    for result in results:
        case = result.summary.worst_case
        if case is None or result.stale:
            continue
        suite = result.record.manifest.suite
        if worst is None or (case.metric == worst.case.metric and worst.metric.worse(case.value, worst.case.value)):
            worst = Finding(suite.name, case, result.record)
    return worst


def _about(player: Player, verifications: list[VerificationRecord]) -> list[VerificationRecord]:
    own = [v for v in verifications if v.result.agent_sha256 == player.sha256]
    return sorted(own, key=lambda v: (v.result.model, v.result.property_name, v.result.steps, v.result.finished_at))


def worst_by_adversary(result: Result, adversaries: tuple[str, ...], metric: Metric) -> dict[str, float | None]:
    """Return the worst value of a metric that each adversary reached against a sender, None where there is no value."""
    out: dict[str, float | None] = {}
    for adversary in adversaries:
        values = [cell.metrics[metric.name] for cell in result.cells if cell.adversary == adversary]
        defined = [value for value in values if value is not None]
        worst = min if metric.direction == "higher" else max
        out[adversary] = worst(defined) if defined else None
    return out
