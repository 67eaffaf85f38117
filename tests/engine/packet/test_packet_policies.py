"""Policies on the packet engine: what they do is what their network says of what their monitors measured."""

import numpy as np
import pytest
from policy_zoo import ZOO, interface, random_policy

from ccenv.agents.interface.actions import set_by_action
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, fill_signals
from ccenv.agents.learned.convert import PolicyReference
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import has_belief_interface
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import FlowSpec, LinkSpec, NetworkSpec, WorkloadSpec

LINK = LinkSpec(rate_Bps=1.5e6, buffer_bytes=45_000)


def run(policies, until_s=3.0, **flow):
    specs = tuple(FlowSpec(sender=f"mine {i}", rtt_s=0.04 * (i + 1), **flow) for i in range(len(policies)))
    return PacketEngine(NetworkSpec(links=(LINK,), flows=specs), policies, duration_s=until_s, seed=1)


def seen_by(engine, flow):
    """Return the signals of a flow's newest decision."""
    m, out = np.zeros(1, MEASURES), np.zeros(N_SIGNALS)
    for name, value in engine.measures(flow).items():
        m[name] = value
    fill_signals(m[0], out)
    return m[0], out


@pytest.mark.parametrize("name", [name for name in ZOO if name != "beliefs_gru"])
def test_each_decision_is_that_of_the_network(name):
    policies = [ZOO[name](seed) for seed in (1, 2)]
    engine = run(policies)
    references, counts = [PolicyReference(policy) for policy in policies], [0, 0]
    for step in range(1, 1500):
        engine.advance(step * 0.002)
        for flow, (policy, reference) in enumerate(zip(policies, references, strict=True)):
            count = int(engine._batch.arrays.monitors[0, flow]["decisions"])
            if count == counts[flow]:
                continue
            counts[flow] = count
            m, signals = seen_by(engine, flow)
            wanted = reference.decide(signals)
            monitor = engine._batch.arrays.monitors[0, flow]
            assert monitor["action"] == pytest.approx(wanted, abs=1e-9), f"decision {count} of flow {flow}"
            if policy.inner is None:
                number, first, second = policy.interface.action_row
                rate, cwnd = set_by_action(number, first, second, wanted, m)
                assert engine.flow("rate_Bps")[flow] == pytest.approx(rate, rel=1e-9)
                assert engine.flow("cwnd_bytes")[flow] == pytest.approx(cwnd, rel=1e-9)
    assert sum(counts) > 30


def test_policies_repeat_themselves_and_share_nothing():
    policy = ZOO["gru"](3)
    one, two = run([policy, policy]), run([policy, policy])
    for engine in (one, two):
        engine.advance(3.0)
    assert (one.flow("sent_bytes") == two.flow("sent_bytes")).all() and one.flow("sent_bytes").min() > 0


def test_beliefs_are_known_to_a_policy_that_sees_more():
    policy = random_policy(interface(signals=["bounds_log2", "loss_rate"], action="rate_log2"), (4,))
    assert not has_belief_interface(policy)
    engine = run([policy])
    engine.advance(3.0)
    measured = engine.measures(0)
    assert 0 < measured["C_L_Bps"] <= 1.5e6 * 1.05 and measured["told_rtt_s"] == pytest.approx(0.04)


def test_what_a_flow_does_not_have_is_refused_in_one_line():
    left = random_policy(interface(signals=["app_left"], action="rate_exp2"))
    with pytest.raises(InputError, match="sees 'app_left', which only a flow of finite size has"):
        run([left])
    run([left], workload=WorkloadSpec(kind="finite", size_bytes=1e6)).advance(1.0)
    for sees, words in (
        (interface(signals=["true_others"], action="rate_exp2"), "no sender can measure"),
        (interface(signals=["loss_rate"], action="rate_between"), "needs a shield"),
    ):
        with pytest.raises(InputError, match=words):
            run([random_policy(sees)])
