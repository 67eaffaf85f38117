"""Submissions: folders, documents, policies and shields; what is accepted, what is refused."""

import dataclasses
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_zoo import AURORA, interface, random_policy
from shields_data import document, inside
from small_suite import small_suite
from submission_folders import CARD

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from hostile import FIXTURES, Hostile, board_refusals, refusal_of
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_traces import legal_trace
from submission_folders import WEIGHTS, make_good, one_weight, payload, weights

from ccenv.adversaries import make_adversary
from ccenv.adversaries.learned import save_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.interface.interface import OBSERVATION_VERSION, SENDER_V0
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import PolicySender, ProgramSender, ShieldSender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.foreign import STRANGER, measure_depth, parse_json, read_folder
from ccenv.base.foreign.tensors import read_tensors, tensor_file
from ccenv.cli.main import main
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, SuiteStage
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.submit import submit_folder
from ccenv.leaderboard.submission.document import CAPS, DOCUMENT, SIGNATURE, json_schema
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import parse_submission, read_submission
from ccenv.leaderboard.submission.signature import available
from ccenv.leaderboard.submission.weights import GRID, quantise
from ccenv.network.adversary import MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.proofs.formulas.moves import as_adversary

DOCS = Path(__file__).parents[2] / "docs"
KINDS = {
    "program": ProgramSender, "policy": PolicySender, "scripted": ScriptedAdversary, "moves": RecordedAdversary,
    "network": MlpAdversary,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_good_submissions_pass(kind: str, tmp_path: Path) -> None:
    """The reader takes them, and the published schema, which refuses bad documents of the kind."""
    submission = read_submission(make_good(kind, tmp_path / "good"))
    assert isinstance(submission.player, KINDS[kind])
    assert submission.document.track == ("sender" if kind in ("program", "policy") else "adversary")
    content = (tmp_path / "good" / DOCUMENT).read_bytes()
    assert submission.sha256 == hashlib.sha256(content).hexdigest() and submission.signed_by is None
    schema = json_schema()
    assert json.loads((DOCS / "submission.schema.json").read_text(encoding="utf-8")) == schema
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(content), schema)
    for change in ({"name": "../x"}, {"url": "javascript:x"}, {"extra": 1}, {"author": "<b>"}, {"summary": "a\u202eb"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**json.loads(content), **change}, schema)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_each_rule_refuses_what_it_is_for(fixture: Hostile, tmp_path: Path) -> None:
    begin = time.perf_counter()
    message = refusal_of(fixture, tmp_path)
    assert fixture.refusal in message and message.startswith("DIR") and "\n" not in message
    assert len(message) < 500 and all(character.isprintable() for character in message)
    assert time.perf_counter() - begin < 60  # a hang would take hours


def test_a_board_refuses_what_a_folder_alone_cannot_show(tmp_path: Path) -> None:
    refusals = {name: message for name, _, message in board_refusals(tmp_path)}
    assert len(refusals) == 10 and all("\n" not in message for message in refusals.values())


def test_weights_are_scored_on_the_grid(tmp_path: Path) -> None:
    submission = read_submission(make_good("policy", tmp_path / "good"))
    assert isinstance(submission.player, PolicySender)
    raw = weights()
    for i, (weight, bias) in enumerate(zip(submission.player.weights, submission.player.biases, strict=True)):
        for array, given_ in ((weight, raw[f"w{i}"]), (bias, raw[f"b{i}"])):
            assert np.array_equal(array * GRID, np.round(array * GRID)) and np.abs(array - given_).max() <= 0.5 / GRID
    assert not np.array_equal(submission.player.weights[0], raw["w0"])


@given(st.floats(-1024, 1024))
def test_the_grid_is_idempotent_and_near(value: float) -> None:
    once = quantise(np.array([value]))
    assert np.array_equal(once, quantise(once)) and abs(once[0] - value) <= 0.5 / GRID


def test_packing_a_checkpoint(tmp_path: Path) -> None:
    raw = weights()
    sender = PolicySender("learned", (raw["w0"], raw["w1"]), (raw["b0"], raw["b1"]), "relu")
    (tmp_path / "run").mkdir()
    save_policy(tmp_path / "run", sender)
    submission, change = pack(str(tmp_path / "run"), CARD, tmp_path / "out")
    assert 0 < change <= 0.5 / GRID
    assert submission.document.architecture is not None and submission.document.architecture.layers == (10, 3, 1)
    assert submission.document.architecture.activation == "relu"
    again = read_submission(tmp_path / "out")
    assert again.player_sha256 == submission.player_sha256 and isinstance(again.player, PolicySender)
    assert np.array_equal(again.player.weights[0], quantise(raw["w0"]))


def test_packing_a_learned_adversary_by_its_name_and_with_discrete_moves(tmp_path: Path) -> None:
    submission, change = pack("network_nominal", CARD, tmp_path / "shipped")
    assert submission.document.kind == "network" and isinstance(submission.player, MlpAdversary)
    assert 0 < change <= 0.5 / GRID
    assert submission.player.columns == make_adversary("network_nominal").columns and submission.player.levels == 0
    arrays = (np.full((N_PATH + N_FLOW, 6), 0.25),), (np.arange(6.0),)
    save_adversary(tmp_path, MlpAdversary("grid", *arrays, "tanh", OBSERVATION_VERSION, (0, 2), levels=3))
    submission, _ = pack(str(tmp_path), CARD, tmp_path / "out")
    assert isinstance(submission.player, MlpAdversary)
    assert submission.player.levels == 3 and submission.player.columns == (0, 2)


def test_packing_a_solvers_trace(tmp_path: Path) -> None:
    """A counterexample becomes moves: each sample is kept for the steps of one Rm."""
    trace = legal_trace("ccac", 3, steps_per_rtt=1, n_steps=12)
    trace.save(tmp_path / "trace.npz")
    submission, _ = pack(str(tmp_path / "trace.npz"), CARD, tmp_path / "out")
    assert isinstance(submission.player, RecordedAdversary)
    assert np.array_equal(submission.player.moves[::8], as_adversary(trace).moves)
    assert np.array_equal(submission.player.moves[7::8], as_adversary(trace).moves) and submission.player.periodic


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    for spec, message in (("reno", "is code, not data"), ("cc_qdell", "Did you mean 'cc_qdel'"), ("squere", "'square'")):
        with pytest.raises(InputError, match=message):
            pack(spec, CARD, tmp_path / "out")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("x")
    with pytest.raises(InputError, match="not a submission"):
        pack("cc_qdel", CARD, tmp_path / "home")
    with pytest.raises(InputError, match="author: not allowed"):
        pack("cc_qdel", Authorship(author="x & y", licence="MIT", suite="quick/1"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    older, _ = pack("cc_qdel", CARD, tmp_path / "out")
    with pytest.raises(InputError, match="author: not allowed"):
        pack("cc_qdel", Authorship(author="x & y", licence="MIT", suite="quick/1"), tmp_path / "out")
    assert read_submission(tmp_path / "out").sha256 == older.sha256


def test_the_name_of_a_program_does_not_change_what_it_is(tmp_path: Path) -> None:
    first, _ = pack("cc_qdel", CARD, tmp_path / "a")
    second, _ = pack("cc_qdel", Authorship("Someone Else", "MIT", "quick/1", name="mine"), tmp_path / "b")
    assert first.sha256 != second.sha256 and first.player_sha256 == second.player_sha256
    assert isinstance(second.player, ProgramSender) and second.player.name == second.player.program.name == "mine"


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_signatures(tmp_path: Path) -> None:
    for kind in ("ed25519", "rsa"):
        command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "test", "-f", str(tmp_path / kind)]
        subprocess.run(command, check=True, capture_output=True)
    submission, _ = pack("cc_qdel", CARD, tmp_path / "out", key=tmp_path / "ed25519")
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(tmp_path / "ed25519.pub")], check=True, capture_output=True, text=True)
    assert submission.signed_by is not None and submission.signed_by in shown.stdout
    document = json.loads((tmp_path / "out" / DOCUMENT).read_text())
    (tmp_path / "out" / DOCUMENT).write_text(json.dumps({**document, "author": "Someone Else"}))
    with pytest.raises(InputError, match="not a valid ed25519 signature"):
        read_submission(tmp_path / "out")
    with pytest.raises(InputError, match="not a valid ed25519 signature"):
        pack("cc_qdel", CARD, tmp_path / "rsa_signed", key=tmp_path / "rsa")
    (tmp_path / "no_key").write_text("nothing")
    with pytest.raises(CcenvError, match="ssh-keygen does not sign with it"):
        pack("cc_qdel", CARD, tmp_path / "not_signed", key=tmp_path / "no_key")
    assert not (tmp_path / "rsa_signed").exists() and not (tmp_path / "not_signed").exists()


def test_an_unchecked_signature_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_good("program", tmp_path / "good")
    (folder / SIGNATURE).write_text("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(CcenvError, match="ssh-keygen is not installed"):
        read_submission(folder)


def test_nothing_submitted_is_imported_or_run(tmp_path: Path) -> None:
    """A canary: files that would leave a mark if anything executed them, under every name that an importer would look for."""
    folder = make_good("policy", tmp_path / "canary")
    mark = tmp_path / "executed"
    code = f"open({str(mark)!r}, 'w').close()\n".encode()
    reduced = b"cbuiltins\nexec\n(V" + code.strip() + b"\ntR."
    for name in ("__init__.py", "conftest.py", "policy.py", "sitecustomize.py", "json.py", "numpy.py"):
        (folder / name).write_bytes(code)
        with pytest.raises(InputError, match="unknown file"):
            read_submission(folder)
        (folder / name).unlink()
    payload(WEIGHTS, reduced)(folder)
    with pytest.raises(InputError):
        read_submission(folder)
    assert not mark.exists()
    inside = [m for m in list(sys.modules.values()) if str(tmp_path) in str(getattr(m, "__file__", "") or "")]
    assert inside == []


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


HEAD = {"format": "ccenv-submission", "format_version": 1, "name": "x", "author": "Ada", "licence": "MIT", "suite": "quick/1"}


@settings(max_examples=150)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for name in CAPS:
        try:
            parse_submission({name: content} if name == DOCUMENT else {DOCUMENT: b"{}", name: content}, "DIR")
        except CcenvError:
            continue
        pytest.fail("nonsense was accepted")


@settings(max_examples=150)
@given(st.sampled_from(["kind", "name", "files", "architecture", "training", "suite", "url", "format_version"]), VALUES)
def test_any_value_in_a_document_is_read_or_refused(key: str, value: object) -> None:
    good = HEAD | {"kind": "program", "files": {"program.json": hashlib.sha256(b"{}").hexdigest()}}
    with pytest.raises(CcenvError):
        parse_submission({DOCUMENT: json.dumps({**good, key: value}).encode(), "program.json": b"{}"}, "DIR")


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_policy_is_refused_or_still_finite(data: st.DataObject) -> None:
    content = bytearray(tensor_file(weights()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    architecture = {"family": "mlp", "activation": "tanh", "layers": [10, 3, 1], "observation_version": 1}
    files = {WEIGHTS: hashlib.sha256(bytes(content)).hexdigest()}
    document = json.dumps(HEAD | {"kind": "policy", "architecture": architecture, "files": files}).encode()
    try:
        submission = parse_submission({DOCUMENT: document, WEIGHTS: bytes(content)}, "DIR")
    except InputError:
        return
    assert isinstance(submission.player, PolicySender)
    assert all(np.isfinite(w).all() and np.abs(w).max() <= 1024 for w in submission.player.weights)


@given(VALUES)
def test_the_depth_of_any_document(value: object) -> None:
    def nesting(item: object) -> int:
        if isinstance(item, dict):
            return 1 + max((nesting(v) for v in item.values()), default=0)
        return 1 + max((nesting(v) for v in item), default=0) if isinstance(item, list) else 0

    assert measure_depth(json.dumps(value).encode()) == nesting(value)


RULES = dataclasses.replace(STRANGER, max_bytes=100, max_depth=2)


def test_strict_json_accepts_what_people_write() -> None:
    content = b'{"a": [1, -2.5, 0.000000001, 999999999999999999, true, null, "\\u00e9 [{"]}'
    assert parse_json(content, "x", RULES)["a"][3] == 999999999999999999
    for bad in (b"[1e3]", b"[1.0000000001]", b"[1000000000.5]", b"[9999999999999999999]", b"[[[1]]]"):
        with pytest.raises(InputError):
            parse_json(bad, "x", RULES)


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    folder = make_good("program", tmp_path / "good")
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(InputError, match="it is a link"):
        read_folder(tmp_path / "link", CAPS)
    with pytest.raises(InputError, match="not a folder"):
        read_folder(tmp_path / "absent", CAPS)


def test_command_line(tmp_path: Path, refused, answer) -> None:
    out = str(tmp_path / "sub")
    packed = answer(["board", "pack", "cc_qdel", "--author", "Ada", "-s", "suite=quick/1", "--out", out, "--json"])
    checked = answer(["board", "check", out, "--json"])
    assert checked["sha256"] == packed["sha256"] == read_submission(tmp_path / "sub").sha256
    assert checked["name"] == "cc_qdel"
    document_file = tmp_path / "sub" / "submission.json"
    original = document_file.read_text()
    document_file.write_text(original.replace('"name": "cc_qdel"', '"name": "cubic"'))
    refused(["board", "check", out], "kept for ccenv's own 'cubic'")
    document_file.write_text(original)
    payload(WEIGHTS, one_weight(np.nan))(tmp_path / "sub")
    refused(["board", "check", out], "ccenv: error:")


SUITE = small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind"])
POLICIES = {
    "gru": random_policy(interface(signals="company", action="rate_exp2"), (8, 6), stages=("dense", "gru"), name="my_gru"),
    "deep": random_policy(AURORA, (64, 64, 32), name="my_deep"),
    "categorical": random_policy(interface(signals=["queue_log2", "loss_rate"], action="cwnd_exp2_over", inner="cubic"),
            head="categorical", outputs=5, name="my_cat"),
}  # fmt: skip


def packed(sender: PolicySender, folder: Path) -> Path:
    (folder / "files").mkdir(parents=True)
    save_policy(folder / "files", sender)
    pack(str(folder / "files"), Authorship("Ada Lovelace", "MIT", "quick/1"), folder / "out")
    return folder / "out"


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_what_it_was_but_for_the_grid(tmp_path: Path, name: str) -> None:
    sender, submission = POLICIES[name], read_submission(packed(POLICIES[name], tmp_path))
    player = submission.player
    assert isinstance(player, PolicySender)
    assert (player.interface, player.head, player.stage_kinds) == (sender.interface, sender.head, sender.stage_kinds)
    for mine, theirs in zip(sender.arrays, player.arrays, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.5 / 4096)


def test_how_an_interface_is_written_makes_no_new_policy() -> None:
    sees = interface(signals=["loss_rate", "queue_log2"], history=2, action="rate_exp2")
    one = random_policy(sees, (4,), seed=3)
    turned = one.weights[0].reshape(2, 2, 4)[:, ::-1].reshape(4, 4)
    other = interface(signals=["queue_log2", "loss_rate"], history=2, action="rate_exp2", parameters={"step": 0.3})
    same = PolicySender("other", (turned, *one.weights[1:]), one.biases, "tanh", other)
    assert canonical_hash(same) == canonical_hash(one)
    moved = random_policy(interface(signals=["loss_rate", "queue_log2"], history=2, action="rate_delta"), (4,), seed=3)
    assert canonical_hash(moved) != canonical_hash(one)
    first = random_policy(SENDER_V0, (4,))
    written_out = interface(**{**SENDER_V0.model_dump(), "parameters": {"range": 3.0}})
    assert canonical_hash(PolicySender("x", first.weights, first.biases, "tanh", written_out)) == canonical_hash(first)


def change(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / DOCUMENT).read_text())
    document["architecture"] = {k: v for k, v in {**document["architecture"], **changes}.items() if v is not None}
    (folder / DOCUMENT).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"family": "mlp"}, "observation_version"), ({"observation_version": 1}, "no observation_version"),
     ({"interface": None}, "has stages, head and interface"), ({"head": "categorical"}, "2 or more outputs"),
     ({"stages": ["dense", "lstm", "dense"]}, "tensor"), ({"stages": ["dense", "dense", "dense"]}, "tensors"),
     ({"interface": {"signals": ["true_share_log2"], "action": "rate_exp2"}}, "for critics"),
     ({"interface": {"signals": ["sendratio"], "action": "rate_exp2"}}, "Did you mean 'send_ratio'"),
     ({"interface": {"signals": "company", "action": "cwnd_exp2_over", "inner": "os.system"}}, "no classic CCA")],
)  # fmt: skip
def test_forged_architectures_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = packed(POLICIES["gru"], tmp_path)
    change(folder, **changes)
    with pytest.raises(InputError) as failure:
        read_submission(folder)
    assert words in str(failure.value) and "\n" not in str(failure.value)


def test_policies_are_taken_in_and_evaluated(tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    players = set()
    with home.open() as store:
        for name, sender in POLICIES.items():
            folder = packed(sender, tmp_path / name)
            submit_folder(store, home, folder)
            players.add(sender_hash(read_submission(folder).player))  # type: ignore[arg-type]
        records = evaluate(store, home, list_tasks(store, [SuiteStage(SUITE)]))
    assert {record.content["manifest"]["agents"][0]["sha256"] for record in records} == players


SHIELD_SUITE = small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind", "slowest"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pack("learned_shield_u80", CARD, tmp_path / "sub")
    return tmp_path / "sub"


def test_a_shield_is_packed_with_its_weights_and_read_back(folder: Path) -> None:
    submission = read_submission(folder)
    assert sorted(submission.files) == ["contract.json", "policy.safetensors", "submission.json"]
    assert submission.document.kind == "contract" and submission.document.track == "sender"
    player = submission.player
    assert isinstance(player, ShieldSender) and player.chooser == "policy"
    assert player.program.rule == make_sender("learned_shield_u80").program.rule


@pytest.mark.parametrize(
    ("content", "said"),
    [(json.dumps(document(rule={"rate_between": [{"C_L": 2}, {"C_L": 1}]})), "above its upper end"),
     (json.dumps({**document(version=1), "rule": {"rate": {"C_L": 1}}}), "is no shield"),
     (json.dumps(document(version=9)), "version"), ("{", "JSON")],
)  # fmt: skip
def test_a_forged_shield_is_refused(folder: Path, content: str, said: str) -> None:
    payload("contract.json", content.encode())(folder)
    with pytest.raises(InputError, match=said):
        read_submission(folder)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_command_line_checks_weights_and_shield(folder: Path, refused, bad: float) -> None:
    assert main(["board", "check", str(folder)]) == 0
    tensors = read_tensors((folder / "policy.safetensors").read_bytes(), "weights")
    tensors["w0"][0, 0] = bad
    payload("policy.safetensors", tensor_file(tensors))(folder)
    refused(["board", "check", str(folder)], "not finite")
    assert main(["board", "submit", str(folder), "--board", str(folder.parent / "board")]) == 2
    assert not list((folder.parent / "board").rglob("policy.safetensors"))


def test_each_file_is_needed_and_hashed(folder: Path) -> None:
    good = (folder / "contract.json").read_bytes()
    (folder / "contract.json").write_bytes(good + b" ")
    with pytest.raises(InputError, match="changed after packing"):
        read_submission(folder)
    (folder / "contract.json").unlink()
    with pytest.raises(InputError, match=r"there is no contract\.json"):
        read_submission(folder)
    (folder / "contract.json").write_bytes(good)
    (folder / "program.json").write_bytes(good)
    with pytest.raises(InputError, match="does not belong to kind 'contract'"):
        read_submission(folder)


def test_a_shield_is_no_program(tmp_path: Path) -> None:
    pack("cc_qdel", CARD, tmp_path / "sub")
    payload("program.json", json.dumps(document()).encode())(tmp_path / "sub")
    with pytest.raises(InputError, match="decides no rate"):
        read_submission(tmp_path / "sub")


def test_what_plays_is_hashed_with_its_shield(tmp_path: Path) -> None:
    one, other = inside("policy", 1), inside("policy", 2)
    wider = ShieldSender("x", make_sender("learned_shield_u80").program, "policy", one.policy)
    assert len({canonical_hash(player) for player in (one, other, wider)}) == 3
    save_policy(tmp_path, one)
    first, _ = pack(str(tmp_path), CARD, tmp_path / "a")
    save_policy(tmp_path, ShieldSender("inside", wider.program, "policy", one.policy))
    second, _ = pack(str(tmp_path), CARD, tmp_path / "b")
    assert first.player_sha256 != second.player_sha256


def test_a_shield_goes_through_the_board_and_its_verdict_says_what_it_rests_on(folder: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    with home.open() as store:
        submit_folder(store, home, folder, own=True)
        evaluate(store, home, list_tasks(store, [SuiteStage(SHIELD_SUITE), EnvelopeStage(budget_s=2.0, samples=5)]))
        (record,) = store.records("evaluation")
        assert record.content["manifest"]["agents"][0]["kind"] == "contract"
        (envelope,) = store.records("envelope")
        assert envelope.content["reason"] == "" and envelope.content["rows"]
    assert main(["board", "build", "--board", str(home.folder), "--out", str(tmp_path / "site")]) == 0
    page = next((tmp_path / "site").rglob(f"{CARD.name or 'learned_shield_u80'}*.html")).read_text()
    assert "It rests on the shield of" in page and "of its shield" in (tmp_path / "site" / "index.html").read_text()
