"""Learned policies on disk: what is written is read again, agrees with safetensors; what is forged is refused in one line."""

import itertools
import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_zoo import AURORA, ZOO, interface, random_policy

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import load_policy, save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.foreign.tensors import MAX_TENSORS, read_tensors, tensor_file
from ccenv.engine.compiled.policies import pack_policies, require_signals


def policy(widths=(N_OBSERVATION, 8, 4, 1), activation="tanh", seed=0):
    rng = np.random.default_rng(seed)
    weights = tuple(rng.normal(size=(a, b)) for a, b in itertools.pairwise(widths))
    return PolicySender("mine", weights, tuple(rng.normal(size=b) for b in widths[1:]), activation)


def same(one, other):
    assert (one.name, one.activation, one.interface) == (other.name, other.activation, other.interface)
    for a, b in zip(one.weights + one.biases, other.weights + other.biases, strict=True):
        assert a.dtype == np.float64
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("target", ["", "best", "best.json", "best.safetensors"])
def test_round_trip(tmp_path, target):
    sender = policy()
    save_policy(tmp_path / target, sender, notes={"seed": 3})
    same(load_policy(tmp_path / target), sender)
    if target != "best":
        same(make_sender(str(tmp_path / target)), sender)
    stem = "policy" if not target else "best"
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{stem}.json", f"{stem}.safetensors"]
    assert json.loads((tmp_path / f"{stem}.json").read_text())["notes"] == {"seed": 3}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reads_what_the_safetensors_package_writes(dtype):
    from safetensors.numpy import load, save

    tensors = {f"{letter}{i}": np.arange(3.0 * (i + 1)).reshape(shape).astype(dtype)
               for i in range(2) for letter, shape in (("w", (3, i + 1)), ("b", (3 * (i + 1),)))}  # fmt: skip
    ours = read_tensors(save(tensors, metadata={"made": "elsewhere"}), "x")
    assert sorted(ours) == sorted(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(ours[name], tensor)
    theirs = load(tensor_file(tensors))
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(theirs[name], tensor)


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(shape, start, stop, dtype="F64"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"abc", "not a safetensors file"), ((2**62).to_bytes(8, "little") + b"{}", "the header claims"),
     ((70_000).to_bytes(8, "little") + b" " * 80_000, "the header claims 70000 bytes"), (_file(b"{"), "not valid JSON"),
     (_file(b"[" * 5000), "5000 levels of nesting; at most 3 are allowed"), (_file([]), "the header is not an object"),
     (_file(b'{"a": 1, "a": 2}'), "given twice"), (_file({"a": {"dtype": "F64"}}), "needs dtype, shape and data_offsets"),
     (_file({"a": _entry([1], 0, 8, "I64")}, bytes(8)), "F32 or F64 are allowed"),
     (_file({"a": _entry([1], 0, 8, ["F64"])}, bytes(8)), "F32 or F64 are allowed"),
     (_file({"a": _entry([2], 0, 8)}, bytes(8)), "has shape [2] but 8 bytes"),
     (_file({"a": _entry([-1], 0, 8)}, bytes(8)), "has shape [-1]"),
     (_file({"a": _entry([True], 0, 8)}, bytes(8)), "has shape [True]"),
     (_file({"a": _entry("1", 0, 8)}, bytes(8)), "has shape '1'"),
     (_file({"a": _entry([2**40, 2**40], 0, 8)}, bytes(8)), "has shape"),
     (_file({"a": _entry([1], 8, 16)}, bytes(16)), "a gap, an overlap"),
     (_file({"a": _entry([1], 0, 8), "b": _entry([1], 0, 8)}, bytes(8)), "a gap, an overlap"),
     (_file({"a": _entry([1], 0, 8)}), "truncated data"),
     (_file({"a": _entry([1], 0, 8)}, bytes(9)), "1 bytes after the last tensor"),
     (_file({f"t{i}": _entry([0], 0, 0) for i in range(MAX_TENSORS + 1)}), "65 tensors; at most 64")],
)  # fmt: skip
def test_bad_tensor_files_are_refused(content, message):
    with pytest.raises(InputError) as caught:
        read_tensors(content, "file")
    assert message in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(InputError, match=r"policy\.safetensors: cannot be read"):
        make_sender(str(tmp_path))
    save_policy(tmp_path, policy())
    (tmp_path / "policy.json").unlink()
    with pytest.raises(InputError, match=r"policy\.json: cannot be read"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("sender", "message"),
    [(policy((N_OBSERVATION, 4, 2)), "1 output"), (policy((N_OBSERVATION + 1, 4, 1)), "inputs"),
     (policy((N_OBSERVATION, 300, 1)), "at most 256 units"), (policy((N_OBSERVATION, 2, 2, 2, 2, 2, 2, 1)), "1 to 6 layers"),
     (policy(activation="gelu"), "activation: Input should be"),
     (PolicySender("x", (np.full((N_OBSERVATION, 1), np.nan),), (np.zeros(1),), "tanh"), "is not finite"),
     (PolicySender("x", (np.zeros((N_OBSERVATION, 1)),), (np.zeros(2),), "tanh"), "biases of shape (2,)")],
)  # fmt: skip
def test_policies_that_could_not_be_read_back_are_not_written(tmp_path, sender, message):
    with pytest.raises(InputError) as caught:
        save_policy(tmp_path, sender)
    assert message in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("notes", [{"score": float("nan")}, {"when": object()}])
def test_notes_must_be_json(tmp_path, notes):
    with pytest.raises(InputError, match="the notes are not JSON"):
        save_policy(tmp_path, policy(), notes=notes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ZOO)
def test_every_kind_of_card_round_trips(tmp_path, name):
    sender = ZOO[name](7)
    save_policy(tmp_path, sender, {"made": "by chance"})
    again = make_sender(str(tmp_path))
    assert isinstance(again, PolicySender)
    assert (again.interface, again.head, again.stage_kinds) == (sender.interface, sender.head, sender.stage_kinds)
    assert sender_hash(again) == sender_hash(sender) and (again.inner is None) == (sender.inner is None)
    for mine, theirs in zip(again.arrays, sender.arrays, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_decides_is_part_of_the_hash():
    base = random_policy(AURORA, (4,))
    others = [
        random_policy(interface(signals="aurora", action="rate_exp2"), (4,)),
        random_policy(interface(signals="aurora", action="rate_delta", parameters={"scale": 4.0}), (4,)),
        random_policy(interface(signals="aurora", action="rate_delta", clock={"count": 2.0}), (4,)),
        random_policy(AURORA, (4,), head="squashed"),
        random_policy(AURORA, (4,), activation="relu"),
        random_policy(AURORA, (4,), seed=1),
    ]
    assert len({sender_hash(policy) for policy in (base, *others)}) == 1 + len(others)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy")
    save_policy(path, random_policy(AURORA, (6, 5), stages=("dense", "gru")))
    return path


def put(card, place, value):
    """Return a card with another value at a place, such as ``interface.clock.every``; None takes it away."""
    copy = json.loads(json.dumps(card))
    target, *parents = copy, *place.split(".")[:-1]
    for name in parents:
        target = target[name]
    if value is None:
        target.pop(place.split(".")[-1], None)
    else:
        target[place.split(".")[-1]] = value
    return copy


FORGED = [
    ("format", "other", "format is 'other'"),
    ("version", True, "version is True"),
    ("name", "../x", "name: String should match pattern"),
    ("name", 3, "name: Input should be a valid string"),
    ("layers", None, "layers: missing"),
    ("layers", "x", "layers: Input should be a valid tuple"),
    ("layers", [30, 1.0], "layers.1: Input should be a valid integer"),
    ("sha256", "0" * 64, "does not belong to its card"),
    ("sha256", 1, "sha256: Input should be a valid string"),
    ("notes", [], "notes: Input should be a valid dictionary"),
    ("nots", {}, "unknown key 'nots'. Did you mean 'notes'"),
    ("interface", None, "either interface or observation_version"),
    ("observation_version", 1, "either interface or observation_version"),
    ("observation_version", 2, "observation_version"),
    ("observation_version", True, "observation_version: it must be a number"),
    ("interface.version", 2, "interface.version"),
    ("interface.signals", ["sendratio"], "Did you mean 'send_ratio'"),
    ("interface.signals", ["true_others"] * 3, "'true_others' is for critics: no sender can measure it"),
    ("interface.signals", [], "interface.signals"),
    ("interface.signals", ["loss_rate"], "10 inputs"),
    ("interface.signals", 3, "interface.signals"),
    ("interface.history", 9, "27 inputs"),
    ("interface.history", True, "interface.history"),
    ("interface.history", 10**9, "interface.history"),
    ("interface.action", "rate_dleta", "Did you mean 'rate_delta'"),
    ("interface.action", "cwnd_exp2_over", "needs inner CCA"),
    ("interface.parameters", {"alfa": 0.1}, "no parameter 'alfa'"),
    ("interface.parameters", {"alpha": 1e9}, "must be in"),
    ("interface.parameters", {"alpha": "x"}, "interface.parameters.alpha"),
    ("interface.inner", "cubic", "takes no inner CCA"),
    ("interface.clock.every", "tick", "interface.clock.every"),
    ("interface.clock.count", 0, "interface.clock.count"),
    ("interface.clock.common", True, "a sender decides for itself"),
    ("interface.seen", 1, "unknown key 'interface.seen'"),
    ("stages", ["dense", "gru"], "one each is needed"),
    ("stages", ["dense", "gru", "gru"], "the last 'dense'"),
    ("stages", ["dense", "lstm", "dense"], "the card asks for finite"),
    ("stages", ["dense", "mamba", "dense"], "stages.1"),
    ("head", "categorical", "2 or more outputs"),
    ("head", "softmax", "head"),
    ("layers", [30, 6, 5, 2], "1 output"),
    ("layers", [30, 10**6, 5, 1], "at most 256 units"),
    ("layers", [30, 6, 4, 1], "the card asks for finite"),
    ("activation", "gelu", "activation"),
]


@pytest.mark.parametrize(("place", "value", "words"), FORGED)
def test_forged_cards_are_refused_in_one_line(folder, tmp_path, place, value, words):
    shutil.copy(folder / "policy.safetensors", tmp_path)
    card = json.loads((folder / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(put(card, place, value)))
    with pytest.raises(InputError) as failure:
        load_policy(tmp_path)
    assert words in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("inner", "words"),
    [("cc_qdel", "is no classic CCA"), ("../x.py", "is no classic CCA"), ("cubic:window=1", "unknown parameter 'window'"),
     ("", "needs inner")],
)  # fmt: skip
def test_only_registered_ccas_stand_inside(tmp_path, inner, words):
    save_policy(tmp_path, random_policy(interface(signals=["loss_rate"], action="cwnd_exp2_over", inner="cubic"), (4,)))
    card = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(put(card, "interface.inner", inner)))
    with pytest.raises(InputError, match=words):
        load_policy(tmp_path)


NONSENSE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats()
    | st.sampled_from(["", "aurora", "gru", "cubic", "loss_rate", "x" * 70]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["every", "count", "alpha", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES = [
    "name", "activation", "layers", "stages", "head", "sha256", "notes", "observation_version", "interface", "interface.version",
    "interface.signals", "interface.history", "interface.action", "interface.parameters", "interface.inner", "interface.clock",
    "interface.clock.every", "interface.clock.count", "interface.clock.common",
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=NONSENSE)
def test_any_card_is_a_policy_that_can_be_played_or_one_line(folder, tmp_path, place, value):
    shutil.copy(folder / "policy.safetensors", tmp_path)
    card = json.loads((folder / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(put(card, place, value)))
    try:
        policy = load_policy(tmp_path)
    except CcenvError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
        return
    pack_policies([policy])
    require_signals(policy, "packet")
