"""Choosers inside contracts in both engines, against the plain references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compare import run_both
from contracts_data import contract, inside, policy
from oracles.packet import PacketReference
from random_setup import random_setup

from ccenv.agents.programs import parse_program, to_data
from ccenv.agents.sender import ContractSender, HeldSender
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path

CHOOSERS = ("lo", "hi", "middle", "random", "policy")
PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=4)


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_curve_engine_and_reference_choose_alike(chooser):
    for trial in range(12):
        path, run = random_setup(5000 + trial, n_flows=1 + trial % 2, models=("ideal", "cbr_delay", "ccac"))
        run["senders"] = [inside(chooser, seed=trial)] * path.n_flows
        engine, _ = run_both(path, steps=120, **run)
        assert check_trace(engine.trace(0)) == [], f"trial {trial}"


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_packet_engine_and_reference_choose_alike(chooser):
    flows = [
        {"sender": "inside", "rtt_s": 0.02},
        {"sender": "inside", "rtt_s": 0.03, "start_s": 0.05, "jitter": {"kind": "early", "max_s": 0.01}},
    ]
    network = NetworkSpec.model_validate({"links": [{"rate_Bps": 1.5e6, "buffer_bytes": 60_000}], "flows": flows})
    senders = [inside(chooser)] * 2
    engine = PacketEngine(network, senders, duration_s=0.6, seed=5)
    reference = PacketReference(network, senders, seed=5)
    engine.advance(0.6)
    reference.advance(0.6)
    for index, flow in enumerate(reference.flows):
        assert engine.flow("sent_bytes")[index] == flow.sent_bytes > 0


def test_random_choices_depend_on_the_seed_alone():
    def positions(seed, threads=1):
        engine = CurveEngine([PATH] * 64, model="ccac", senders=[inside("random")], seed=seed, threads=threads)
        engine.advance(400)
        return engine.flow("position")[:, 0]

    assert np.array_equal(positions(1), positions(1, threads=2))
    assert not np.array_equal(positions(1), positions(2))
    assert len(set(positions(1))) == 64  # each environment draws its own
    assert 0 <= positions(1).min() < 0.1 and 0.9 < positions(1).max() < 1


@pytest.mark.parametrize(
    ("asked", "chooser"), [(np.nan, "lo"), (-5.0, "lo"), (0.0, "lo"), (1.0, "hi"), (7.0, "hi"), (0.5, "middle")]
)
def test_an_external_chooser_is_clipped_into_the_interval(asked, chooser):
    engine = CurveEngine([PATH], model="ccac", senders=[inside("external")])
    other = CurveEngine([PATH], model="ccac", senders=[inside(chooser)])
    for _ in range(60):
        engine.advance(8, actions=np.array([[asked]]))
        other.advance(8)
        assert engine.totals()["S"] == other.totals()["S"]
    assert engine.totals()["S"][0, 0] > 0


def test_an_external_position_counts_from_the_decision_that_it_answers():
    """The rate of a step is inside the interval of the beliefs that the chooser saw, at the position that it asked for."""
    engine = CurveEngine([PATH], model="ccac", senders=[inside("external")])
    rng = np.random.default_rng(0)
    engine.advance(8, actions=np.array([[0.5]]))
    for _ in range(80):
        lo, hi = engine.flow("lo_Bps")[0, 0], engine.flow("hi_Bps")[0, 0]
        asked = rng.random()
        engine.advance(8, actions=np.array([[asked]]))
        assert engine.flow("rate_Bps")[0, 0] == min(max(lo + asked * (hi - lo), lo), hi)


def test_a_policy_whose_output_is_no_number_chooses_the_lower_end():
    first, last = policy().weights
    signs = np.where(np.arange(len(last)) % 2, -1.0, 1.0)[:, None]
    broken = replace(policy(), activation="relu", weights=(np.full_like(first, 1e308), 1e308 * signs * np.ones_like(last)))
    broken = replace(broken, biases=(np.full(8, 1e308), np.zeros(1)))  # infinity minus infinity
    engine = CurveEngine([PATH], model="ccac", senders=[ContractSender("c", contract(), "policy", broken)])
    other = CurveEngine([PATH], model="ccac", senders=[inside("lo")])
    for each in (engine, other):
        each.advance(480)
    assert engine.totals()["S"] == other.totals()["S"]


def test_a_contract_stands_behind_a_proxy_unless_it_is_driven_from_outside():
    held = HeldSender("held", inside("middle"), "fixed", 0.02)
    engine = CurveEngine([PATH], model="ccac", senders=[held])
    engine.advance(400)
    assert engine.totals()["S"][0, 0] > 0
    with pytest.raises(InputError, match="cannot stand behind a proxy"):
        HeldSender("held", inside("external"), "fixed", 0.02)


def test_a_choice_is_held_as_long_as_the_leaf_says():
    data = to_data(contract())
    data["rule"]["else"]["then"]["else"]["hold_rtts"] = 3
    engine = CurveEngine([PATH], model="ccac", senders=[inside("random", program=parse_program(data))], record=True)
    engine.advance(240)
    trace = engine.trace(0)
    changes = np.flatnonzero(np.diff(trace.rate_Bps[:, 0])) + 1
    assert 24 in np.diff(changes)
