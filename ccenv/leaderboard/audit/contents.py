"""What the records of a board say, read strictly: they may come from another board, and good hashes make no good contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from ccenv.agents.sender import ContractSender, ProgramSender
from ccenv.base.config import validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.benchmarks.store import CELLS
from ccenv.leaderboard.evaluate.damage import DAMAGE, Damage
from ccenv.leaderboard.evaluate.limits import FAILURE
from ccenv.leaderboard.evaluate.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store.database import Stored
from ccenv.leaderboard.store.entry import SUBMISSION, Known, ReadFile, check_author, check_players, reread
from ccenv.leaderboard.store.home import REVEAL, ROUND, Begun, Revealed, Rounds
from ccenv.leaderboard.store.records import (
    CellRecord,
    Count,
    Envelope,
    Label,
    MachineRecord,
    Manifest,
    PlayedContent,
    RecordContent,
    Sha256,
    StageContent,
    Text,
    check_summary,
    read_cells,
)
from ccenv.leaderboard.store.runs import check_metrics, check_runs, played_suite
from ccenv.leaderboard.store.submit import WITHDRAWAL, Withdrawal, check_withdrawal
from ccenv.leaderboard.submission.identity import name_claim

AUDIT = "audit"

ContentT = TypeVar("ContentT", bound=RecordContent)


class Evaluation(PlayedContent):
    """A suite that a sender played."""

    manifest: Manifest


class Failure(StageContent):
    """A stage that a submission did not come through, and why."""

    stage: Label
    slot: Annotated[str, Field(max_length=280)]
    reason: Text
    code_sha256: Sha256
    machine: MachineRecord


class Audited(RecordContent):
    """The outcome of an audit."""

    n_records: Count
    head: Sha256 | None
    n_rerun: Count
    n_equal: Count
    n_incomparable: Count
    n_proofs: Count
    n_confirmed: Count
    n_undecided: Count
    n_same_query: Count
    sample_seed: Annotated[int, Field(strict=True, ge=0)]
    problems: tuple[Text, ...]
    foreign: tuple[Text, ...]


@dataclass(frozen=True)
class Item:
    """A record that was read."""

    record: Stored
    content: RecordContent
    cells: list[CellRecord] = field(default_factory=list)


class Contents:
    """What the records of a board say, read one after the other: each must be readable and about what came before it.

    Args:
        read: returns a file by its hash.

    Attributes:
        items: what was read, in order.
        known: submission -> what was handed in, read again.
        claims: claim -> number of the record that has it.
        withdrawn: submissions that were taken back.
        rounds: that have begun.
    """

    def __init__(self, read: ReadFile) -> None:
        self.items: list[Item] = []
        self.known: dict[str, Known] = {}
        self.claims: dict[str, int] = {}
        self.withdrawn: set[str] = set()
        self.rounds = Rounds()
        self._read = read

    def add(self, record: Stored) -> None:
        """Read the next record.

        Raises:
            InputError: naming the record and what is wrong with it.
        """
        where = f"record {record.number}"
        if record.kind == SUBMISSION:
            item = Item(record, self._submission(record, where))
        elif record.kind in _CONTENTS:
            item = self._item(record, where)
        else:
            raise InputError(f"{where}: {unknown_name('kind', record.kind, [SUBMISSION, *_CONTENTS])}")
        about = getattr(item.content, "submission", "")
        if record.subject != about:
            raise InputError(f"{where}: its subject is {record.subject[:12]!r}, its content is about {about[:12]!r}")
        slot = _slot_of(record.kind, item.content)
        if re.fullmatch(slot, record.slot) is None:
            raise InputError(f"{where}: its slot is {record.slot[:120]!r}, which is not what its content says")
        self.items.append(item)

    def of(self, kind: type[ContentT]) -> Iterator[tuple[Item, ContentT]]:
        """Yield the records of a kind that are not about a submission that was taken back."""
        for item in self.items:
            if isinstance(item.content, kind) and item.record.subject not in self.withdrawn:
                yield item, item.content

    def _item(self, record: Stored, where: str) -> Item:
        content = validate(_CONTENTS[record.kind], record.content, where)
        cells: list[CellRecord] = []
        if isinstance(content, StageContent):
            if content.submission not in self.known:
                raise InputError(f"{where}: there is no submission {content.submission[:12]} before it")
            known = self.known[content.submission]
            if content.name != known.record.card.name:
                raise InputError(f"{where}: calls the submission {content.name!r}; its card says {known.record.card.name!r}")
            if _TRACKS.get(record.kind, known.record.card.track) != known.record.card.track:
                raise InputError(f"{where}: {record.kind} of an entry of the track {known.record.card.track!r}")
            if isinstance(content, PlayedContent):
                cells = self._played(record, content, known, where)
            elif isinstance(content, Envelope):
                _check_envelope(content, known, where)
            elif isinstance(content, Withdrawal):
                check_withdrawal(content, record.files, known.record, self._read, where)
                self.withdrawn.add(content.submission)
        elif isinstance(content, Begun):
            self.rounds.begin(content, where)
        elif isinstance(content, Revealed):
            self.rounds.reveal(content, where)
            for item in self.items:
                if isinstance(item.content, PlayedContent) and item.content.round == content.number:
                    self.rounds.check_seeds(item.content, _as_played(item.content)["seeds"], f"record {item.record.number}")
        return Item(record, content, cells)

    def _played(self, record: Stored, content: PlayedContent, known: Known, where: str) -> list[CellRecord]:
        """Check that a record of runs is about its submission, and holds exactly the runs of its suite and its seeds."""
        if content.round != known.record.round:
            raise InputError(f"{where}: of round {content.round}; the submission is of round {known.record.round}")
        cells: list[CellRecord] = []
        if isinstance(content, Evaluation):
            played = _suite_of(content, where, agents=[], references=[])
            if content.stage != played.name:
                raise InputError(f"{where}: stage {content.stage!r}; its suite is {played.name!r}")
            if CELLS not in record.files:
                raise InputError(f"{where}: {CELLS}: missing")
            cells = read_cells(self._read(record.files[CELLS]), content.manifest, where)
            check_players(known, content.manifest, cells, where)
            check_summary(content.manifest, played, where)
            runs = [(cell.scenario, cell.agent, cell.adversary, cell.seed) for cell in cells]
            check_runs(runs, played, [known.record.card.name], where)
            check_metrics(cells, played, where)
        elif isinstance(content, Damage):
            played = _suite_of(content, where)
            kind = played.score.adversary
            met = played.model_copy(update={"adversaries": (kind,)})
            check_runs([(c.scenario, c.sender, kind, c.seed) for c in content.cells], met, played.agents, where)
        self.rounds.check_seeds(content, _as_played(content)["seeds"], where)
        return cells

    def _submission(self, record: Stored, where: str) -> RecordContent:
        known = reread(record.content, self._read, where)
        self.rounds.take(known.record.round, where)
        for claim in known.claims:
            if claim in self.claims:
                what = "a name that looks like its own" if claim == name_claim(known.record.card.name) else "an equal player"
                raise InputError(f"{where}: record {self.claims[claim]} has {what} already")
        about = known.record.submission
        if about in self.known:
            raise InputError(f"{where}: submission {about[:12]} is there already")
        check_author(known.record.card.author, known.record.signed_by, (other.record for other in self.known.values()), where)
        self.known[about] = known
        self.claims |= dict.fromkeys(known.claims, record.number)
        return known.record


def check_contents(records: Sequence[Stored], read: ReadFile) -> Contents:
    """Check that every record can be read, and is about a submission that was stored before it.

    Raises:
        InputError: naming the first record that cannot be read, and what is wrong with it.
    """
    contents = Contents(read)
    for record in records:
        contents.add(record)
    return contents


def _as_played(content: PlayedContent) -> dict[str, Any]:
    """Return the suite of a record as it was played."""
    suite: dict[str, Any] = content.manifest.suite if isinstance(content, Evaluation) else content.played  # type: ignore[attr-defined]
    return suite


def _suite_of(content: PlayedContent, where: str, **changes: Any) -> Any:
    return played_suite(content, _as_played(content), where, **changes)


def _check_envelope(envelope: Envelope, known: Known, where: str) -> None:
    """Check that an envelope is about its submission, and has the rows of the table, each with a bound that was tried."""
    from ccenv.proofs.claims.envelope import METRICS, list_cells

    if envelope.player_sha256 != known.sha256:
        raise InputError(f"{where}: about the player {envelope.player_sha256[:12]}; the submission is {known.sha256[:12]}")
    rows = [(row.model, row.buffer, row.metric) for row in envelope.rows]
    if rows != (list_cells() if rows else []) or (envelope.setting_name == "none") != (not rows):
        raise InputError(
            f"{where}: rows: {len(rows)}; an envelope has the {len(list_cells())} of its table in order, or none at all"
        )
    if rows and not _is_encoded(known):
        raise InputError(f"{where}: rows: {len(rows)} of {known.record.card.name!r}, of which the solver has no encoding")
    for row in envelope.rows:
        metric = METRICS[row.metric]
        if row.unit != metric.unit:
            raise InputError(f"{where}: {row.metric} in {row.unit[:40]!r}; its unit is {metric.unit!r}")
        for value in (row.bound, row.beyond):
            if value is not None and not (metric.low <= value <= metric.high and value % float(metric.precision) == 0):
                allowed = f"{float(metric.low):g} to {float(metric.high):g} in steps of {float(metric.precision):g}"
                raise InputError(f"{where}: {row.metric} of {value:g}; what is tried is {allowed}")


def _is_encoded(known: Known) -> bool:
    """Tell whether the solver can speak of a submission: of belief programs, contracts, and the published encodings."""
    from ccenv.proofs.senders.catalog import PUBLISHED

    player = known.player
    return isinstance(player, (ContractSender, ProgramSender)) or (known.record.card.spec or "").partition(":")[0] in PUBLISHED


def _slot_of(kind: str, content: Any) -> str:
    """Return the pattern of a record's slot: what it says once."""
    if isinstance(content, (Begun, Revealed)):
        return f"{kind}/{content.number}"
    if isinstance(content, Audited):
        return f"{kind}/{content.n_records}"
    if kind == SUBMISSION:
        return f"{kind}/{content.player_sha256}"
    if isinstance(content, Withdrawal):
        return f"{kind}/{content.submission}"
    if isinstance(content, Envelope):
        return rf"{kind}/{content.submission}/[0-9A-Za-z.+-]{{1,40}}/T{content.T}/{re.escape(f'{content.budget_s:g}')}s"
    if isinstance(content, Failure):
        stem = rf"({EVALUATION}|{DAMAGE}|{ENVELOPE})/{content.submission}/"
        return rf"{kind}/(?={stem}){re.escape(content.slot)}(/[1-9][0-9]{{0,5}})?"
    code = content.manifest.code_sha256 if isinstance(content, Evaluation) else content.code_sha256
    return f"{kind}/{content.submission}/{content.suite_sha256}/{code}"


_CONTENTS: dict[str, type[RecordContent]] = {
    ROUND: Begun,
    REVEAL: Revealed,
    AUDIT: Audited,
    EVALUATION: Evaluation,
    DAMAGE: Damage,
    ENVELOPE: Envelope,
    FAILURE: Failure,
    WITHDRAWAL: Withdrawal,
}
_TRACKS: dict[str, Literal["sender", "adversary"]] = {EVALUATION: "sender", ENVELOPE: "sender", DAMAGE: "adversary"}
