"""Audits: are the records what was stored, do they follow from each other, and do runs drawn at random come out again?"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.benchmarks.hashing import canonical_json, code_hash, hash_of, plain
from ccenv.benchmarks.players import agent_player
from ccenv.benchmarks.provenance import machine, now
from ccenv.benchmarks.runner import cells_for
from ccenv.benchmarks.store import CELLS, parse_cells
from ccenv.benchmarks.suite import Suite, suite_of
from ccenv.benchmarks.suite_base import SuiteBase
from ccenv.benchmarks.summary import summarise
from ccenv.errors import CcenvError
from ccenv.foreign import parse_json
from ccenv.leaderboard.contents import AUDIT, check_contents, damage_of
from ccenv.leaderboard.damage import DAMAGE, measured, score_of, undisturbed_cells
from ccenv.leaderboard.home import Home
from ccenv.leaderboard.records import played_hash
from ccenv.leaderboard.rounds import commitment, evaluation_suite, revealed, secret_of
from ccenv.leaderboard.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store import Store, Stored
from ccenv.leaderboard.submit import Entrant, entrants

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Sampled:
    """Something of a record that is done again: a run by its place among the record's cells, or a row of an envelope."""

    record: Stored
    place: int

    @property
    def title(self) -> str:
        """What people call it."""
        return (
            f"record {self.record.number} ({self.record.content['name']}, {self.record.content['stage']}), line {self.place + 1}"
        )


def audit(
    store: Store,
    home: Home,
    *,
    sample: int = 20,
    certificates: int = 5,
    seed: int | None = None,
    time_limit_s: float = 60.0,
    keep: bool = True,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Check a board.

    Hashes of all records, the chain and all files; commitments of closed rounds; the seeds of every evaluation and its summary
    or score, computed again from its cells; a random sample of runs, played again and compared to the last bit; a random
    sample of proved bounds, decided again by the solver.

    Args:
        store: the board.
        home: where the secrets of open rounds lie.
        sample: runs that are played again.
        certificates: proved bounds that are decided again; needs the extra verify.
        seed: of the sample; by default drawn anew, so that nobody can know it.
        time_limit_s: of the solver, per bound.
        keep: whether the outcome is stored as a record.
        progress: called as runs and bounds are done.

    Returns:
        dict: counts, ``problems`` (empty where all is well) and the sample's seed. Runs of other code or of another machine are
        compared too, but their differences are counted apart: only the same code on the same machine promises equal bits.

    Raises:
        EditedRecordError: if a record or file is not what was stored.
        InputError: if a record cannot be read.
    """
    n_records = store.check()
    records = store.records()
    check_contents(records, store.file)
    problems = _check_rounds(store, home)
    problems += [p for record in records if record.kind == EVALUATION for p in _check_evaluation(store, home, record)]
    problems += [p for record in records if record.kind == DAMAGE for p in _check_damage(store, home, record)]
    drawn = secrets.randbits(31) if seed is None else seed
    generator = np.random.Generator(np.random.Philox(drawn))
    runs = _drawn(generator, _all_runs(store, records), sample)
    proofs = _drawn(generator, _all_proofs(records), certificates)
    players = {entrant.record.submission: entrant for entrant in entrants(store)}
    counts = dict.fromkeys(("n_rerun", "n_equal", "n_incomparable", "n_proofs", "n_confirmed", "n_undecided", "n_same_query"), 0)
    for done, item in enumerate(runs):
        progress(done, len(runs) + len(proofs))
        equal = _run_again(store, home, players[item.record.subject], item)
        counts["n_rerun"] += 1
        if equal:
            counts["n_equal"] += 1
        elif _comparable(item.record):
            problems.append(f"{item.title}: played again it differs")
        else:
            counts["n_incomparable"] += 1
    for done, item in enumerate(proofs, start=len(runs)):
        progress(done, len(runs) + len(proofs))
        same, verdict = _decide_again(players[item.record.subject], item, time_limit_s)
        counts["n_proofs"] += 1
        counts["n_same_query"] += same
        counts["n_confirmed"] += verdict == "verified"
        counts["n_undecided"] += verdict == "unknown"
        if verdict == "refuted":
            problems.append(f"{item.title}: the bound is refuted")
    result = {"n_records": n_records, **counts, "sample_seed": drawn, "problems": problems, "recorded_at": now()}
    if keep:
        store.append(AUDIT, "", f"{AUDIT}/{n_records}", result, {})
    return result


def _check_rounds(store: Store, home: Home) -> list[str]:
    committed = {record.content["number"]: record.content["commitment"] for record in store.records("round")}
    return [
        f"round {number}: the secret is not the one that was committed to"
        for number, secret in revealed(store).items()
        if commitment(bytes.fromhex(secret)) != committed.get(number)
    ]


def _played_suite(store: Store, home: Home, record: Stored) -> SuiteBase:
    suite = suite_of(record.content["suite"], f"record {record.number}")
    secret = secret_of(store, home, record.content["round"])
    return evaluation_suite(suite, record.content["suite_sha256"], secret, record.subject)


def _check_evaluation(store: Store, home: Home, record: Stored) -> list[str]:
    """Compute the seeds and the summary of an evaluation again."""
    manifest = record.content["manifest"]
    where = f"record {record.number} ({record.content['name']}, {record.content['stage']})"
    try:
        played = _played_suite(store, home, record)
    except CcenvError as error:
        return [f"{where}: its seeds cannot be checked ({error})"]
    as_played = {**record.content["suite"], "seeds": list(played.seeds), "agents": [], "references": []}
    hashes = (played_hash(as_played), hash_of(as_played))
    if manifest["suite_sha256"] not in hashes or played_hash(manifest["suite"]) != hashes[0]:
        return [f"{where}: its seeds do not follow from the submission and the secret"]
    cells = parse_cells(store.file(record.files[CELLS]), FilePath(CELLS))
    again = summarise(played, cells)
    stored = [_without_files(entry) for entry in manifest["summary"]]
    return [] if again == stored else [f"{where}: its summary does not follow from its cells"]


def _check_damage(store: Store, home: Home, record: Stored) -> list[str]:
    """Compute the seeds and the score of an adversary's evaluation again."""
    where = f"record {record.number} ({record.content['name']}, {record.content['stage']})"
    try:
        played = _played_suite(store, home, record)
    except CcenvError as error:
        return [f"{where}: its seeds cannot be checked ({error})"]
    damage = damage_of(record)
    if plain({**damage.suite, "seeds": played.seeds}) != damage.as_run:
        return [f"{where}: its seeds do not follow from the submission and the secret"]
    score = score_of(damage.cells)
    return [] if score == record.content["score"] else [f"{where}: its score does not follow from its cells"]


def _without_files(entry: dict[str, Any]) -> dict[str, Any]:
    worst = entry["worst_case"]
    kept = None if worst is None else {key: value for key, value in worst.items() if key not in ("trace", "plot")}
    return {**entry, "worst_case": kept}


def _all_runs(store: Store, records: list[Stored]) -> list[Sampled]:
    out = []
    for record in records:
        if record.kind == EVALUATION:
            out += [Sampled(record, place) for place in range(record.content["manifest"]["n_cells"])]
        if record.kind == DAMAGE:
            out += [Sampled(record, place) for place in range(len(record.content["cells"]))]
    return out


def _all_proofs(records: list[Stored]) -> list[Sampled]:
    return [
        Sampled(record, place)
        for record in records
        if record.kind == ENVELOPE
        for place, row in enumerate(record.content["rows"])
        if row["verdict"] == "verified"
    ]


def _drawn(generator: np.random.Generator, items: list[Sampled], count: int) -> list[Sampled]:
    chosen = generator.permutation(len(items))[:count]
    return [items[int(i)] for i in sorted(chosen)]


def _comparable(record: Stored) -> bool:
    """Tell whether a record was made by this code on such a machine."""
    made = record.content if record.kind == DAMAGE else record.content["manifest"]
    return bool(made["code_sha256"] == code_hash() and made["machine"].get("processor") == machine()["processor"])


def _run_again(store: Store, home: Home, entrant: Entrant, item: Sampled) -> bool:
    """Play a run again; tell whether all its numbers are the same to the last bit."""
    record = item.record
    if record.kind == DAMAGE:
        damage = damage_of(record)
        played = suite_of(damage.as_run, item.title)
        if not isinstance(played, Suite):
            raise CcenvError(f"{item.title}: not a suite of the curve engine")
        panel = undisturbed_cells(played)
        adversary: Any = entrant.player
        return item.place < len(panel) and measured(panel[item.place], adversary)[0] == damage.cells[item.place]
    lines = parse_cells(store.file(record.files[CELLS]), FilePath(CELLS))
    with tempfile.TemporaryDirectory() as scratch:
        spec = entrant.write_player(FilePath(scratch))
        player = agent_player(spec, entrant.record.card.spec)
        cells = cells_for(_played_suite(store, home, record), [player])
        if item.place >= len(cells):
            return False
        again = parse_json(canonical_json(cells[item.place].run()), item.title)
    return all(again.get(key) == value for key, value in lines[item.place].items() if key not in ("key", "code_sha256"))


def _decide_again(entrant: Entrant, item: Sampled, time_limit_s: float) -> tuple[bool, str]:
    """Decide a proved bound again; return whether the query is the same text, and the verdict."""
    from ccenv.smt.envelope import EnvelopeRun, check_bound

    content = item.record.content
    row = content["rows"][item.place]
    with tempfile.TemporaryDirectory() as scratch:
        spec = entrant.write_player(FilePath(scratch))
        run = EnvelopeRun(spec, content["T"], content["setting_name"], time_limit_s=time_limit_s, reuse=False)
        sha256, verdict = check_bound(run, row)
    return sha256 == row["query_sha256"], verdict
