"""The contract of learned_robust_v3: that of learned_robust_v2 up to D = Rm, more in flight where D is known to be larger."""

import numpy as np
import pytest

from ccenv.adversaries import make_adversary
from ccenv.agents.learned.zoo import learned_robust_v2, learned_robust_v3
from ccenv.agents.sender import Sender
from ccenv.attacks.run import attack
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.settings import EnvSettings
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.network.path import make_path
from ccenv.network.trace import Trace

K = 8


@pytest.fixture(scope="module")
def senders() -> tuple[Sender, Sender]:
    before, after = learned_robust_v2(), learned_robust_v3()
    EnvSettings(contract=after.program)  # no interval is empty
    assert canonical_hash(before.policy) == canonical_hash(after.policy)
    return before, after


def played(sender: Sender, jitter_rtts: float, adversary: str, buffer_bdp: float = 4) -> Trace:
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40 * jitter_rtts, buffer_bdp=buffer_bdp)
    engine = CurveEngine(
        [path], model="ccac", senders=[sender], adversary=make_adversary(adversary), steps_per_rtt=K, record=True
    )
    engine.advance(100 * K)
    return engine.trace(0)


@pytest.mark.parametrize("adversary", ["kind", "slowest", "uniform", "square:period_rtts=4,duty=0.5", "hoard"])
@pytest.mark.parametrize("jitter_rtts", [0, 0.5, 1])
def test_nothing_changes_where_jitter_is_short(senders: tuple[Sender, Sender], jitter_rtts: float, adversary: str) -> None:
    before, after = (played(sender, jitter_rtts, adversary) for sender in senders)
    np.testing.assert_array_equal(before.rate_Bps, after.rate_Bps)
    np.testing.assert_array_equal(before.S, after.S)


@pytest.mark.parametrize("jitter_rtts", [1.5, 2])
def test_the_same_attack_takes_less_where_jitter_is_long(senders: tuple[Sender, Sender], jitter_rtts: float) -> None:
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40 * jitter_rtts, buffer_bdp=4)
    before, after = (attack(one, path=path, adversaries=["policy_cem"], budget_flow_steps=300_000, seed=3) for one in senders)
    assert before.legal and after.legal
    assert after.worst_utilisation > before.worst_utilisation + 0.01
