"""Forged exports, hashes and chains made good again: import refuses them with one line and writes nothing."""

import hashlib
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from forging import MOMENT, OTHER_KEY, Content, Forgery, other_seeds, proved, view

from ccenv.agents import make_sender
from ccenv.base.files import canonical_json
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.cli.main import main
from ccenv.leaderboard.audit.contents import _is_encoded
from ccenv.leaderboard.evaluate.damage import DamageCell, compute_score
from ccenv.leaderboard.store.entry import make_card
from ccenv.leaderboard.submission.document import DOCUMENT, SIGNATURE
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.leaderboard.submission.signature import available, read_fingerprint, sign


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def refused(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Import a file into a new board; return the one line that refuses it."""
    before = tree(file.parent)
    assert main(["board", "import", str(file), "--board", str(file.parent / "new")]) == 2
    assert tree(file.parent) == before and not (file.parent / "new").exists()
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    return err


def edit(kind: str, change: Callable[[Content], Any], name: str = "", stage: str = "") -> Callable[[Forgery], None]:
    return lambda forged: forged.edit(forged.record(kind, name, stage), change)


def document(change: Callable[[Content], Any], **consistent: bool) -> Callable[[Forgery], None]:
    """Replace the document of an entry that was not evaluated; card and hash of the submission follow where asked."""

    def forge(forged: Forgery) -> None:
        row = forged.record("submission", "plain")
        data = json.loads(forged.file_of(row, DOCUMENT))
        change(data)
        content = json.dumps(data).encode()

        def follow(record: Content) -> None:
            record["files"][DOCUMENT] = forged.add_file(content)
            if consistent.get("card"):
                record["card"].update({key: data[key] for key in ("name", "author", "licence", "summary")})
            if consistent.get("sha256"):
                record["submission"] = row["subject"] = hashlib.sha256(content).hexdigest()

        forged.edit(row, follow)

    return forge


def other_payload(forged: Forgery) -> None:
    other = forged.file_of(forged.record("submission", "cc_qdel"), "program.json")
    forged.edit(forged.record("submission", "plain"), lambda c: c["files"].update({"program.json": forged.add_file(other)}))


def other_payload_and_document(forged: Forgery) -> None:
    other = forged.file_of(forged.record("submission", "cc_qdel"), "program.json")
    document(lambda d: d["files"].update({"program.json": hashlib.sha256(other).hexdigest()}))(forged)
    other_payload(forged)


def path_key(key: str) -> Callable[[Forgery], None]:
    def change(content: Content) -> None:
        content["files"][key] = content["files"].pop("program.json")

    return edit("submission", change, "plain")


def handed_in(spec: str, name: str, author: str = "Someone Else") -> Callable[[Forgery, Path], None]:
    """Add a submission that this board would not have taken, with everything about it in order."""

    def forge(forged: Forgery, folder: Path) -> None:
        pack(spec, Authorship(author, "MIT", "quick/1", name=name), folder / "more")
        submission = read_submission(folder / "more")
        shutil.rmtree(folder / "more")
        content = {"submission": submission.sha256, "player_sha256": submission.player_sha256, "round": 1, "recorded_at": MOMENT}
        content |= {"card": make_card(submission.document), "signed_by": None}
        slot = f"submission/{submission.player_sha256}"
        forged.add_record("submission", submission.sha256, slot, content, submission.files)
        added = forged.records.pop()  # while its round is open
        forged.records.insert(forged.records.index(forged.record("reveal")), added)

    return forge


def of_another(kind: str, stage: str = "") -> Callable[[Forgery], None]:
    """Put one entry's evidence under another entry."""

    def forge(forged: Forgery) -> None:
        row, other = forged.record(kind, "cc_qdel", stage), forged.record("submission", "plain")
        row["subject"] = other["subject"]
        forged.records.append(forged.records.pop(forged.records.index(row)))
        forged.edit(row, lambda content: content.update(submission=other["subject"], name="plain"))

    return forge


def withdrawal(by: str) -> Callable[[Forgery], None]:
    def forge(forged: Forgery) -> None:
        subject = forged.record("submission", "plain")["subject"]
        content = {"submission": subject, "name": "plain", "by": by, "reason": "", "recorded_at": MOMENT}
        forged.add_record("withdrawal", subject, f"withdrawal/{subject}", content)

    return forge


def agents(**change: Any) -> Callable[[Content], None]:
    return lambda content: content["manifest"]["agents"][0].update(change)


def worst(**change: Any) -> Callable[[Content], None]:
    return lambda content: content["manifest"]["summary"][0]["worst_case"].update(change)


def cells(change: Callable[[list[Content]], Any]) -> Callable[[Forgery], None]:
    return lambda forged: forged.cells("reno", change, again=False)


def kept(stage: str, share: int, again: bool = True) -> Callable[[Forgery], None]:
    """Keep every so many of the runs of an evaluation, the summary and all counts made good again."""
    return lambda forged: forged.cells("reno", lambda lines: lines.__delitem__(slice(len(lines) // share, None)), stage, again)


def fewer_seeds(forged: Forgery) -> None:
    def change(content: Content) -> None:
        content["manifest"]["suite"]["seeds"].pop()
        content["manifest"]["suite_sha256"] = validate_suite(content["manifest"]["suite"], "x").sha256

    forged.edit(forged.record("evaluation", "reno", "small"), change)
    forged.cells("reno", lambda lines: lines.__delitem__(slice(1, None, 2)))


def posing(forged: Forgery) -> None:
    """A suite that is easier than the one of ccenv whose name and version it bears, in every record of it."""
    for row in [row for row in forged.records if row["kind"] == "evaluation" and '"stage":"small"' in row["content"]]:
        content = json.loads(row["content"])
        for suite in (content["suite"], content["manifest"]["suite"]):
            suite["name"] = "standard-v1"
        content["stage"] = "standard-v1"
        content["suite_sha256"] = validate_suite(content["suite"], "x").sha256
        content["manifest"]["suite_sha256"] = validate_suite(content["manifest"]["suite"], "x").sha256
        row["slot"] = f"evaluation/{row['subject']}/{content['suite_sha256']}/{content['manifest']['code_sha256']}"
        row["content"] = canonical_json(content)


def panel_cells(change: Callable[[list[Content]], Any]) -> Callable[[Forgery], None]:
    def follow(content: Content) -> None:
        change(content["cells"])
        content["score"] = compute_score([DamageCell(**cell) for cell in content["cells"]])

    return edit("damage", follow)


def moved(kind: str, name: str, to: str) -> Callable[[Forgery], None]:
    """Put a record, and all that is about its submission, behind the first one of another kind."""

    def forge(forged: Forgery) -> None:
        row = forged.record(kind, name)
        own = [other for other in forged.records if other is row or (other["subject"] and other["subject"] == row["subject"])]
        rest = [other for other in forged.records if not any(other is one for one in own)]
        place = next(i for i, other in enumerate(rest) if other["kind"] == to) + 1
        forged.records[:] = [*rest[:place], *own, *rest[place:]]

    return forge


def round_number(number: int) -> Callable[[Forgery], None]:
    def forge(forged: Forgery) -> None:
        last = [row for row in forged.records if row["kind"] == "round"][-1]
        last["slot"] = f"round/{number}"
        forged.edit(last, lambda content: content.update(number=number))

    return forge


def slot(kind: str, text: str, name: str = "") -> Callable[[Forgery], None]:
    return lambda forged: forged.record(kind, name).update(slot=text)


def summary(**change: Any) -> Callable[[Content], None]:
    return lambda content: content["manifest"]["summary"][0].update(change)


def manifest(**change: Any) -> Callable[[Forgery], None]:
    return edit("evaluation", lambda content: content["manifest"].update(change), "reno")


def repeated(kind: str, key: str, name: str = "") -> Callable[[Forgery], None]:
    """Give a key of a record twice; only the second value is what the record said."""

    def forge(forged: Forgery) -> None:
        row = forged.record(kind, name)
        row["content"] = row["content"].replace(f'"{key}":', f'"{key}":0,"{key}":', 1)

    return forge


def repeated_in_file(kind: str, file: str, key: str, name: str = "") -> Callable[[Forgery], None]:
    def forge(forged: Forgery) -> None:
        row = forged.record(kind, name)
        content = forged.file_of(row, file).replace(f'"{key}":'.encode(), f'"{key}":0,"{key}":'.encode(), 1)
        forged.edit(row, lambda data: data["files"].update({file: forged.add_file(content)}))

    return forge


def audit_record(**change: Any) -> Callable[[Forgery], None]:
    """Add an audit that did nothing again, but for what it claims."""

    def forge(forged: Forgery) -> None:
        counts = ("n_rerun", "n_equal", "n_incomparable", "n_proofs", "n_confirmed", "n_undecided", "n_same_query")
        content = {"n_records": len(forged.records), "head": None, **dict.fromkeys(counts, 0), "sample_seed": 1}
        content |= {"problems": [], "foreign": [], "recorded_at": MOMENT, **change}
        forged.add_record("audit", "", f"audit/{content['n_records']}", content)

    return forge


def damage_of_sender(forged: Forgery) -> None:
    row, sender = forged.record("damage"), forged.record("submission", "plain")
    forged.edit(row, lambda content: content.update(submission=sender["subject"], name="plain"))
    row["slot"] = row["slot"].replace(row["subject"], sender["subject"])
    row["subject"] = sender["subject"]
    forged.records.append(forged.records.pop(forged.records.index(row)))


FORGED: list[tuple[str, Callable[..., None], str]] = [
    ("path_up", path_key("../../../overwritten.html"), "not a file of a submission"),
    ("path_absolute", path_key("/tmp/overwritten.html"), "not a file of a submission"),
    ("path_html", path_key("index.html"), "not a file of a submission"),
    ("path_long", path_key("x" * 5000), "files"),
    ("document_author", document(lambda d: d.update(author="Mallory")), "its card has author 'Ada Lovelace'; .* says 'Mallory'"),
    ("document_and_card", document(lambda d: d.update(author="Mallory"), card=True), "its submission is "),
    ("document_extra", document(lambda d: d.update(code="x")), "unknown key 'code'"),
    ("document_version", document(lambda d: d.update(format_version=True)), "version is True"),
    ("document_html", document(lambda d: d.update(summary="<script>"), card=True, sha256=True), "no HTML"),
    ("document_author_kept", document(lambda d: d.update(name="reno"), card=True, sha256=True), "kept for ccenv's own 'reno'"),
    ("card_author", edit("submission", lambda c: c["card"].update(author="Mallory"), "plain"), "its card has author 'Mallory'"),
    ("card_name", edit("submission", lambda c: c["card"].update(name="vegas"), "plain"), "kept for ccenv's own 'vegas'"),
    ("card_kind", edit("submission", lambda c: c["card"].update(kind="policy"), "plain"), "its card has kind 'policy'"),
    ("card_track", edit("submission", lambda c: c["card"].update(track="adversary"), "plain"), "its card has track"),
    ("card_url", edit("submission", lambda c: c["card"].update(url="javascript:alert(1)"), "plain"), "https://host/path"),
    ("card_becomes_classic", edit("submission", lambda c: c["card"].update(spec="reno"), "plain"), "has no files|its card has"),
    ("classic_author", edit("submission", lambda c: c["card"].update(author="Mallory"), "reno"), "its card has author 'Mallory'"),
    ("classic_other_spec", edit("submission", lambda c: c["card"].update(spec="cubic"), "reno"), "its card has"),
    ("classic_no_spec", edit("submission", lambda c: c["card"].update(spec="os.system"), "reno"), "os.system"),
    ("player", edit("submission", lambda c: c.update(player_sha256="0" * 64), "plain"), "its player_sha256 is '000"),
    ("player_of_classic", edit("submission", lambda c: c.update(player_sha256="0" * 64), "reno"), "its player_sha256 is '000"),
    ("payload", other_payload, "changed after packing"),
    ("payload_and_document", other_payload_and_document, "its submission is|its player_sha256 is"),
    ("signer_added", edit("submission", lambda c: c.update(signed_by="SHA256:" + "A" * 43), "plain"),
     "its signed_by is 'SHA256:A"),
    ("round", edit("submission", lambda c: c.update(round=True), "plain"), "round"),
    ("alike", handed_in("cc_probe_fast", "P1-ain"), "record .* has a name that looks like its own already"),
    ("alike_classic", handed_in("cc_probe_fast", "Ren0"), "kept for ccenv's own 'reno'"),
    ("equal_player", handed_in("cc_qdel", "mine"), "which may exist once"),
    ("evaluation_of_another", of_another("evaluation", "small"), "played by cc_qdel .*; the submission is plain"),
    ("envelope_of_another", of_another("envelope"), "about the player .*; the submission is"),
    ("label", edit("evaluation", agents(label="vegas"), "reno"), "played by vegas"),
    ("label_sha256", edit("evaluation", agents(sha256="0" * 64), "reno"), "played by reno 000"),
    ("label_kind", edit("evaluation", agents(kind="program"), "reno"), "played by reno"),
    ("name", edit("evaluation", lambda c: c.update(name="vegas"), "reno"), "calls the submission 'vegas'"),
    ("envelope_name", edit("envelope", lambda c: c.update(name="vegas")), "calls the submission 'vegas'"),
    ("damage_name", edit("damage", lambda c: c.update(name="vegas")), "calls the submission 'vegas'"),
    ("summary_of_another", edit("evaluation", lambda c: c["manifest"]["summary"][0].update(agent="vegas"), "reno"),
     "one is needed, about reno"),
    ("cell_of_another", cells(lambda lines: lines[0].update(agent="vegas")), "a run of vegas"),
    ("cell_twice", cells(lambda lines: lines.__setitem__(1, lines[0])), "run 2 is one/reno/kind/"),
    ("cell_left_out", cells(lambda lines: lines.pop()), "cells; the manifest says"),
    ("cell_key", cells(lambda lines: lines[0].update(key="../../../../overwritten")), "key"),
    ("cell_nan", cells(lambda lines: lines[0]["metrics"].update(power=float("nan"))), "NaN"),
    ("worst_key", edit("evaluation", worst(key="../../../overwritten"), "reno"), "key"),
    ("worst_trace", edit("evaluation", worst(trace="../../../overwritten.npz"), "reno"), "trace"),
    ("worst_plot", edit("evaluation", worst(plot="/tmp/overwritten.png"), "reno"), "plot"),
    ("scenario_html", edit("evaluation", worst(scenario="<script>alert(1)</script>"), "reno"), "scenario"),
    ("manifest_version", edit("evaluation", lambda c: c["manifest"].update(format_version=True), "reno"), "manifest.format_v"),
    ("other_round", edit("evaluation", lambda c: c.update(round=7), "reno"), "of round 7; the submission is of round 1"),
    ("other_suite", edit("evaluation", lambda c: c["manifest"]["suite"].update(duration_s=1), "reno"), "played is not the suite"),
    ("foreign_model", edit("envelope", lambda c: c["rows"][0].update(model="elsewhere")), "the 33 of its table in order"),
    ("foreign_buffer", edit("envelope", lambda c: c["rows"][0].update(buffer="elsewhere")), "the 33 of its table in order"),
    ("foreign_metric", edit("envelope", lambda c: c["rows"][0].update(metric="luck")), "the 33 of its table in order"),
    ("no_bound", edit("envelope", lambda c: proved(c).update(bound=None)), "a verified row has its bound"),
    ("promises", edit("envelope", lambda c: c.update(promises=True)), "promises: it must be a whole number"),
    ("envelope_player", edit("envelope", lambda c: c.update(player_sha256="0" * 64)), "about the player 000"),
    ("not_on_the_panel", edit("damage", lambda c: c["cells"][0].update(sender="bbr1")), "run 1 is one/bbr1/kind/"),
    ("panel", edit("damage", lambda c: c["suite"].update(agents=["reno"])), "the suite was edited"),
    ("no_commitment", edit("round", lambda c: c.pop("commitment")), "record .*commitment: missing"),
    ("round_as_text", edit("round", lambda c: c.update(number="1")), "record .*number"),
    ("card_of_a_number", edit("submission", lambda c: c.update(card=3)), "record .*card"),
    ("no_manifest", edit("evaluation", lambda c: c.pop("manifest")), "record .*manifest: missing"),
    ("no_cells_file", edit("evaluation", lambda c: c.update(files={})), "record .*cells.jsonl: missing"),
    ("empty_summary", edit("evaluation", lambda c: c["manifest"].update(summary=[{}])), "record .*summary.0"),
    ("no_damage_cells", edit("damage", lambda c: c.update(cells=[])), "record .*cells"),
    ("kind", lambda forged: forged.records[-1].update(kind="plugin"), "unknown kind 'plugin'"),
    ("subject", lambda forged: forged.record("evaluation", "reno").update(subject="0" * 64), "its subject is '000"),
    ("before_it", lambda forged: forged.drop(forged.record("submission", "reno")), "there is no submission .* before it"),
    # B1: exactly the runs of the suite, with the seeds that follow from the secret
    ("third_of_the_runs", kept("small", 3), "runs; suite 'small' with its seeds has"),
    ("half_of_the_hard_runs", kept("hard", 2), "runs; suite 'hard' with its seeds has"),
    ("no_runs", kept("small", 1000, again=False), "cells; the manifest says"),
    ("fewer_seeds", fewer_seeds, "1 seeds; suite 'small' has 2"),
    ("other_seeds", other_seeds, "seeds do not follow from the submission and the secret of round 1"),
    ("runs_in_another_order", cells(lambda lines: lines.reverse()), "run 1 is"),
    ("run_of_another_seed", cells(lambda lines: lines[0].update(seed=7)), "run 1 is one/reno/kind/7"),
    ("run_of_another_adversary", cells(lambda lines: lines[0].update(adversary="slowest")), "run 1 is one/reno/slowest/"),
    ("run_of_another_code", cells(lambda lines: lines[1].update(code_sha256="0" * 64)), "a run of code 000"),
    ("panel_run_left_out", panel_cells(lambda runs: runs.pop()), "1 runs; suite 'panel' with its seeds has 2"),
    ("panel_run_twice", panel_cells(lambda runs: runs.__setitem__(1, runs[0])), "run 2 is one/reno/kind/"),
    ("panel_seed", panel_cells(lambda runs: runs[0].update(seed=7)), "run 1 is one/reno/kind/7"),
    ("posing_suite", posing, "is not the one that ccenv ships"),
    # B2: bounds that were tried, in a setting that an audit can decide
    ("long_traces", edit("envelope", lambda c: c.update(T=40)), "T: "),
    ("bound_between_steps", edit("envelope", lambda c: proved(c).update(bound=0.99)), "utilisation of 0.99; what is tried is"),
    ("bound_above_1", edit("envelope", lambda c: proved(c).update(bound=1.5)), "utilisation of 1.5; what is tried is"),
    ("no_query", edit("envelope", lambda c: proved(c).update(query_sha256=None)), "has its bound and the hash of its query"),
    ("weaker_setting", edit("envelope", lambda c: c.update(setting_name="artefact")), "setting_name"),
    ("rows_left_out", edit("envelope", lambda c: c["rows"].pop(0)), "rows: 32; an envelope has the 33 of its table"),
    ("row_twice", edit("envelope", lambda c: c["rows"].insert(0, c["rows"][0])), "rows: 34; an envelope has the 33"),
    ("other_unit", edit("envelope", lambda c: proved(c).update(unit="of everything")), "its unit is 'fraction of C'"),
    # B3: what a page reads is what import has checked
    ("empty_against", edit("evaluation", summary(against={}), "reno"), "against has not the adversaries and metrics"),
    ("empty_path", cells(lambda lines: lines[0].update(path={})), "path.flows"),
    ("path_without_flows", cells(lambda lines: lines[0]["path"].update(flows=[])), "path.flows"),
    ("path_of_no_length", cells(lambda lines: lines[0]["path"]["flows"][0].update(rtt_s=0)), "rtt_s"),
    ("huge_metric", cells(lambda lines: lines[0]["metrics"].update(power=1e308)), "metrics.power"),
    ("empty_machine", edit("evaluation", lambda c: c["manifest"].update(machine={}), "reno"), "machine.processor: missing"),
    ("empty_machine_of_damage", edit("damage", lambda c: c.update(machine={})), "machine.processor: missing"),
    ("no_players", edit("evaluation", lambda c: c["manifest"].update(agents=[]), "reno"), "manifest.agents"),
    ("two_summaries", edit("evaluation", lambda c: c["manifest"]["summary"].extend(c["manifest"]["summary"]), "reno"), "one is"),
    ("other_score", edit("evaluation", lambda c: c["manifest"]["summary"][0]["score"].update(metric="x"), "reno"), "score is"),
    ("huge_score", edit("damage", lambda c: c["score"].update(iqm=1e308)), "score.iqm"),
    ("huge_damage", edit("damage", lambda c: c["cells"][0].update(utilisation=1e308)), "utilisation"),
    ("text_turned_round", edit("damage", lambda c: c["machine"].update(processor="a\u202eb")), "direction-changing character"),
    ("more_than_a_record_has", edit("damage", lambda c: c.update(note="x")), "unknown key 'note'"),
    ("view_without_a_column", view("evaluation", lambda v: v.pop("queue_ms"), "reno"), "queue_ms: missing"),
    ("view_of_two_lengths", view("evaluation", lambda v: v["queue_ms"].pop(), "reno"), "different lengths"),
    ("view_of_nothing", view("damage", lambda v: v.update(flows=[])), "flows"),
    ("view_without_capacity", view("damage", lambda v: v.update(link_mbps=[0.0] * len(v["link_mbps"]))), "no capacity"),
    ("view_backwards", view("damage", lambda v: v["time_s"].reverse()), "times rise"),
    ("damage_of_a_sender", damage_of_sender, "damage of an entry of the track 'sender'"),
    # B4: rounds begin and end in order
    ("submitted_after_the_reveal", moved("submission", "plain", "reveal"), "of round 1, but round 1 is revealed"),
    ("submitted_before_the_round", lambda forged: forged.records.insert(0, forged.records.pop(1)), "but no round has begun"),
    ("submitted_in_a_later_round", edit("submission", lambda c: c.update(round=2), "plain"), "of round 2, but round 1 is open"),
    ("secret_of_another_round", edit("reveal", lambda c: c.update(secret="00" * 32)), "not the one that was committed to"),
    ("round_1000000", round_number(1_000_000), "round 1000000 begins; round 2 is next"),
    ("round_twice", round_number(1), "which may exist once"),
    ("round_without_a_beginning", lambda forged: forged.drop(forged.record("round")), "but no round has begun"),
    ("revealed_twice", lambda f: f.records.append({**f.record("reveal"), "slot": "reveal/2"}), "but round 2 is open"),
    # B5: what may exist once is what the content says
    ("slot_of_a_submission", slot("submission", "submission/x", "plain"), "its slot is 'submission/x'"),
    ("slot_of_the_next_round", slot("envelope", "round/3"), "its slot is 'round/3'"),
    ("slot_of_another_code", slot("evaluation", "evaluation/x", "reno"), "its slot is 'evaluation/x'"),
    ("slot_of_a_reveal", slot("reveal", "reveal/2"), "its slot is 'reveal/2'"),
    ("slot_of_an_envelope", slot("envelope", "envelope/x"), "its slot is 'envelope/x'"),
    ("name_without_separator", handed_in("cc_probe_fast", "ccqdel"), "kept for ccenv's own 'cc_qdel'"),
    ("name_with_separator", handed_in("cc_probe_fast", "bbr_3"), "kept for ccenv's own 'bbr3'"),
    ("withdrawn_without_request", withdrawal("key"), "by key it has withdraw.json"),
    ("withdrawn_by_nobody", withdrawal("submitter"), "by"),
    # B6: counts that the suite and the board can have, keys once, dates of the calendar
    ("summary_n_cells", edit("evaluation", summary(n_cells=10**9), "reno"), "record .* summary of reno: n_cells is 1000000000"),
    ("summary_n_cells_below_0", edit("evaluation", summary(n_cells=-1), "reno"), "manifest.summary.0.n_cells.*-1"),
    ("score_n_runs", edit("evaluation", lambda c: c["manifest"]["summary"][0]["score"].update(n_runs=999), "reno"),
     "record .* summary of reno: score.n_runs is 999"),
    ("n_missing", manifest(n_missing=3), "manifest: n_missing is 3, but complete is true"),
    ("n_missing_of_a_whole_run", manifest(n_missing=3, complete=False), "record .*: n_cells is .* and n_missing 3; suite 'sm"),
    ("n_missing_below_0", manifest(n_missing=-1), "manifest.n_missing.*-1"),
    ("incomplete_without_missing", manifest(complete=False), "manifest: n_missing is 0, but complete is false"),
    ("damage_n_runs", edit("damage", lambda c: c["score"].update(n_runs=7)), "record .*: score.n_runs is 7; its cells are 2"),
    ("audit_n_records", audit_record(n_records=10**6), "record .*: n_records is 1000000; before it there are"),
    ("audit_n_rerun", audit_record(n_rerun=1000, n_equal=1000), "record .*: n_rerun is 1000; before it there are"),
    ("audit_n_proofs", audit_record(n_proofs=2), "record .*: n_proofs is 2; before it there are 1"),
    ("audit_n_equal", audit_record(n_rerun=2, n_equal=2, n_incomparable=1), "n_equal is 2 and n_incomparable is 1; n_rerun is o"),
    ("audit_n_confirmed", audit_record(n_proofs=1, n_confirmed=1), "n_confirmed is 1; n_same_query is only 0"),
    ("audit_n_same_query", audit_record(n_same_query=1), "n_same_query is 1; n_proofs is only 0"),
    ("audit_n_undecided_below_0", audit_record(n_undecided=-1), "record .*: n_undecided.*-1"),
    ("key_twice", repeated("round", "number"), "record 1: .*'number' is given twice"),
    ("key_of_a_manifest_twice", repeated("evaluation", "n_cells", "reno"), "record .*: .*'n_cells' is given twice"),
    ("key_of_a_cell_twice", repeated_in_file("evaluation", "cells.jsonl", "seed", "reno"), "line 1: .*'seed' is given twice"),
    ("key_of_a_document_twice", repeated_in_file("submission", DOCUMENT, "author", "plain"), "record .*'author' is given twice"),
    ("day_that_is_none", edit("reveal", lambda c: c.update(recorded_at="2026-02-30T00:00:00Z")), "recorded_at: no date.*02-30"),
    ("hour_that_is_none", edit("damage", lambda c: c.update(recorded_at="2026-02-03T24:00:00Z")), "recorded_at: no date.*T24:00"),
    ("digits_of_another_script", edit("reveal", lambda c: c.update(recorded_at="\uff12026-02-03T00:00:00Z")), "recorded_at"),
    ("before_any_board", audit_record(recorded_at="2025-12-31T23:59:59Z"), "record .*: recorded_at: before 2026.*2025-12-31"),
    ("finished_before_any_board", manifest(finished_at="0001-01-01T00:00:00Z"), "manifest.finished_at: before 2026.*0001-01-01"),
]  # fmt: skip


def strip(content: Content) -> None:
    content["files"].pop(SIGNATURE)


def other_signature(entry: str) -> Callable[[Forgery, Path], None]:
    """Somebody signs another one's document: that key is not the one that the document names."""

    def forge(forged: Forgery, workshop: Path) -> None:
        row = forged.record("submission", entry)
        signature = forged.add_file(sign(forged.file_of(row, DOCUMENT), workshop / OTHER_KEY))
        forged.edit(row, lambda content: content.update(signed_by=read_fingerprint(workshop / OTHER_KEY)))
        forged.edit(row, lambda content: content["files"].update({SIGNATURE: signature}))

    return forge


def withdrawn_by_another(forged: Forgery, workshop: Path) -> None:
    row = forged.record("submission", "signed")
    request = json.dumps({"format": "ccenv-withdrawal", "format_version": 1, "submission": row["subject"]}).encode()
    signature = sign(request, workshop / OTHER_KEY, "ccenv-withdrawal")
    content = {"submission": row["subject"], "name": "signed", "by": "key", "reason": "", "recorded_at": MOMENT}
    files = {"withdraw.json": request, "withdraw.json.sig": signature}
    forged.add_record("withdrawal", row["subject"], "withdrawal/x", content, files)


SIGNED: list[tuple[str, Callable[..., None], str]] = [
    ("stripped", edit("submission", strip, "signed"), "is signed with"),
    ("stripped_and_forgotten", edit("submission", lambda c: (strip(c), c.update(signed_by=None)), "signed"), "is signed with"),
    *((f"signed_by_another_{entry}", other_signature(entry), "as signed_with") for entry in ("signed", "plain")),
    *((f"author_{n}", handed_in("cc_probe_fast", "mine", author), "signed by nobody, but 'Grace Hopper' signed 'signed'")
      for n, author in enumerate(("Grace Hopper", "grace-hopper", "Gr\u0430ce Hopper"))),
    ("withdrawn_by_another_key", withdrawn_by_another, "'signed' was signed by SHA256:"),
]  # fmt: skip
KEYS_NEEDED = pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")


@pytest.mark.parametrize(
    ("forge", "message"),
    [*(pytest.param(*row[1:], id=row[0]) for row in FORGED),
     *(pytest.param(*row[1:], id=row[0], marks=KEYS_NEEDED) for row in SIGNED)],
)  # fmt: skip
def test_hostile_exports_are_refused(forgery, workshop, tmp_path, capsys, forge, message):
    given = {"folder": tmp_path, "workshop": workshop}
    forge(forgery, *(given[name] for name in forge.__code__.co_varnames[1 : forge.__code__.co_argcount]))
    line = refused(forgery.write(tmp_path / "forged.jsonl"), capsys)
    assert re.search(message, line), line


SMALL_AUDIT = ["-s", "sample=3", "-s", "proofs=0"]


def test_the_export_that_hostile_ones_are_made_from_is_good(forgery, tmp_path, capsys):
    assert main(["board", "import", str(forgery.write(tmp_path / "good.jsonl")), "--board", str(tmp_path / "new")]) == 0
    assert main(["board", "audit", "--board", str(tmp_path / "new"), *SMALL_AUDIT, "--expect-head", forgery.head]) == 0


def lines(change: Callable[[list[bytes]], Any]) -> Callable[[bytes], bytes]:
    def raw(content: bytes) -> bytes:
        parts = content.splitlines()
        change(parts)
        return b"\n".join(parts) + b"\n"

    return raw


def first_number(text: bytes) -> Callable[[bytes], bytes]:
    """Write the first record's number in another way."""
    return lines(lambda parts: parts.__setitem__(1, parts[1].replace(b'"number":1', b'"number":' + text)))


def line_two(text: bytes) -> Callable[[bytes], bytes]:
    return lines(lambda parts: parts.__setitem__(1, text))


COUNT_TRUE = b'{"format":"ccenv-board-export","format_version":1,"records":true}'
TEXTS = [
    ("huge_line", lines(lambda parts: parts.insert(1, b" " * (49 << 20))), "bytes"),
    ("version_true", lines(lambda parts: parts.__setitem__(0, parts[0].replace(b'n":1', b'n":true'))), "version is True"),
    ("count_true", lines(lambda parts: parts.__setitem__(0, COUNT_TRUE)), "truncated"),
    ("nested", lines(lambda parts: parts.insert(1, b"[" * 5000 + b"]" * 5000)), "values; at most"),
    ("deep", lines(lambda parts: parts.insert(1, b"[" * 30 + b"]" * 30)), "nesting"),
    ("many_values", lines(lambda parts: parts.insert(1, b'{"record":[' + b"0," * 100_000 + b"0]}")), "values"),
    ("twice_a_key", line_two(b'{"record":{},"record":{}}'), "given twice"),
    ("number", first_number(b"9" * 5000), "number"),
    ("number_true", first_number(b"true"), "a record needs"),
    ("number_float", first_number(b"1.0"), "a record needs"),
    ("not_utf8", line_two(b'"\xff"'), "UTF-8"),
    ("lone_surrogate", line_two(b'{"file":"\\ud800","text":"\\ud800"}'), "line 2"),
    ("base64", lines(lambda parts: parts.append(b'{"file":"' + b"0" * 64 + b'","base64":"%%%"}')),
     "not what its hash says|damaged"),
    ("file_list", lines(lambda parts: parts.append(b'{"file":[],"text":""}')), "hash|neither|damaged"),
    ("empty", lambda content: b"", "truncated|not an export"),
    ("null", lambda content: b"\x00" * 100, "line 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), TEXTS, ids=[t[0] for t in TEXTS])
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.xz"])
def test_hostile_texts_of_exports_are_refused(workshop, tmp_path, capsys, name, change, message, suffix):
    content = change((workshop / "export.jsonl").read_bytes())
    file = tmp_path / f"forged.{suffix}"
    file.write_bytes(lzma.compress(content, preset=0) if suffix.endswith("xz") else content)
    line = refused(file, capsys)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("cubic", False), ("reno", True), ("cc_qdel", True), ("cc_probe_slow_k", False), ("learned_nominal", False)],
)
def test_hostile_proofs_of_what_has_no_encoding(name: str, encoded: bool) -> None:
    """The rows of an envelope are only of senders of which the solver can speak."""
    card = SimpleNamespace(spec=name, name=name)
    known: Any = SimpleNamespace(player=make_sender(name), record=SimpleNamespace(card=card))
    assert _is_encoded(known) == encoded
