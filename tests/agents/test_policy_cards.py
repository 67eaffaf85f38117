"""Cards that name an interface, stages and a head: what is written is read again, and what is forged is refused in one line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_zoo import AURORA, ZOO, interface, random_policy

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.learned import load_policy, save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError, InputError
from ccenv.engine.compiled.policies import pack_policies, require_signals


@pytest.mark.parametrize("name", ZOO)
def test_round_trip(tmp_path, name):
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
    ("interface", None, "either interface or observation_version"),
    ("observation_version", 1, "either interface or observation_version"),
    ("observation_version", 2, "observation_version"),
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
    [
        ("cc_qdel", "is no classic CCA"),
        ("../x.py", "is no classic CCA"),
        ("cubic:window=1", "unknown parameter 'window'"),
        ("", "needs inner"),
    ],
)
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
