"""Learned policies on disk: round trip, agreement with the safetensors package, and refusal of everything else."""

import itertools
import json

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import load_policy, save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.base.foreign.tensors import MAX_TENSORS, read_tensors, tensor_file


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
    [
        (b"abc", "not a safetensors file"),
        ((2**62).to_bytes(8, "little") + b"{}", "the header claims"),
        ((70_000).to_bytes(8, "little") + b" " * 80_000, "the header claims 70000 bytes"),
        (_file(b"{"), "not valid JSON"),
        (_file(b"[" * 5000), "5000 levels of nesting; at most 3 are allowed"),
        (_file([]), "the header is not an object"),
        (_file(b'{"a": 1, "a": 2}'), "given twice"),
        (_file({"a": {"dtype": "F64"}}), "needs dtype, shape and data_offsets"),
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
        (_file({f"t{i}": _entry([0], 0, 0) for i in range(MAX_TENSORS + 1)}), "65 tensors; at most 64"),
    ],
)
def test_bad_tensor_files_are_refused(content, message):
    with pytest.raises(InputError) as caught:
        read_tensors(content, "file")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format is 'other'"),
        ({"version": True}, "version is True"),
        ({"name": "../x"}, "name: String should match pattern"),
        ({"activation": "gelu"}, "activation: Input should be 'tanh' or 'relu' (got 'gelu')"),
        ({"observation_version": 99}, "observation_version: it must be 1 (got 99)"),
        ({"observation_version": True}, "observation_version: it must be a number (got True)"),
        ({"layers": [N_OBSERVATION, 8, 1]}, "the card asks for finite {'w0': (10, 8), 'b0': (8,), 'w1': (8, 1), 'b1': (1,)}"),
        ({"layers": [N_OBSERVATION, 8, 5, 1]}, "the card asks for finite"),
        ({"layers": "x"}, "layers: Input should be a valid tuple"),
        ({"layers": [N_OBSERVATION, 1.0]}, "layers.1: Input should be a valid integer"),
        ({"sha256": "0" * 64}, "does not belong to its card"),
        ({"sha256": 1}, "sha256: Input should be a valid string"),
        ({"notes": []}, "notes: Input should be a valid dictionary"),
        ({"nots": {}}, "unknown key 'nots'. Did you mean 'notes'"),
        ({"name": None}, "name: Input should be a valid string"),
    ],
)
def test_bad_cards_are_refused(tmp_path, changes, message):
    save_policy(tmp_path, policy())
    card = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(card | changes))
    with pytest.raises(InputError) as caught:
        load_policy(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_key_and_missing_files(tmp_path):
    with pytest.raises(InputError, match=r"policy\.safetensors: cannot be read"):
        make_sender(str(tmp_path))
    save_policy(tmp_path, policy())
    card = json.loads((tmp_path / "policy.json").read_text())
    del card["layers"]
    (tmp_path / "policy.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="layers: missing"):
        load_policy(tmp_path)
    (tmp_path / "policy.json").unlink()
    with pytest.raises(InputError, match=r"policy\.json: cannot be read"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        (policy((N_OBSERVATION, 4, 2)), "1 output"),
        (policy((N_OBSERVATION + 1, 4, 1)), "inputs"),
        (policy((N_OBSERVATION, 300, 1)), "at most 256 units"),
        (policy((N_OBSERVATION, 2, 2, 2, 2, 2, 2, 1)), "1 to 6 layers"),
        (policy(activation="gelu"), "activation: Input should be"),
        (PolicySender("x", (np.full((N_OBSERVATION, 1), np.nan),), (np.zeros(1),), "tanh"), "is not finite"),
        (PolicySender("x", (np.zeros((N_OBSERVATION, 1)),), (np.zeros(2),), "tanh"), "biases of shape (2,)"),
    ],
)
def test_policies_that_could_not_be_read_back_are_not_written(tmp_path, sender, message):
    with pytest.raises(InputError) as caught:
        save_policy(tmp_path, sender)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("notes", [{"score": float("nan")}, {"when": object()}])
def test_notes_must_be_json(tmp_path, notes):
    with pytest.raises(InputError, match="the notes are not JSON"):
        save_policy(tmp_path, policy(), notes=notes)
    assert not list(tmp_path.iterdir())
