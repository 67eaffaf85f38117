"""Networks of few features run without the others, to the same bits. With a packet log they run as all networks do."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from ccenv.agents import make_sender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.kernel import network_of
from ccenv.engine.packet.single import copies_of, fits, is_single, put_back
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.envs.packet.sender import PacketVectorEnv

LINK = {"rate_Bps": 1.5e6, "buffer_bytes": 40_000.0}
FLOW = {"sender": "cubic", "rtt_s": 0.03}
OWN_PLACES = ("packet_log_at", "packet_log_rows", "packet_log_limit")


@njit
def runs_alone(arrays: Any) -> bool:
    a = network_of(arrays, 0)
    return is_single(a, a.run[0])


def records(arrays: Any) -> dict[str, np.ndarray]:
    """Return all fields of a batch that are no addresses."""
    found = {}
    for table in ("run", "links", "flows", "monitors", "measures", "flow_log", "link_log"):
        array = getattr(arrays, table)
        for name in array.dtype.names:
            if not name.endswith("_at") and name not in OWN_PLACES:
                found[f"{table}.{name}"] = array[name]
    return found


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def engine(link: dict[str, Any], flow: dict[str, Any], packet_log: int, seconds: float = 4.0) -> PacketEngine:
    network = NetworkSpec.model_validate({"links": [LINK | link], "flows": [FLOW | flow]})
    made = PacketEngine(network, [make_sender(network.flows[0].sender)], duration_s=seconds, seed=5, packet_log=packet_log)
    made.advance(seconds)
    return made


@settings(max_examples=40, deadline=None)
@given(
    sender=st.sampled_from(["reno", "cubic", "bbr1", "copa", "vegas", "cc_qdel"]), rate_Bps=st.sampled_from([1e5, 1.5e6, 2e7]),
    buffer=st.sampled_from([1500.0, 9000.0, 60_000.0, 1e7]), loss_rate=st.sampled_from([0.0, 0.0, 0.01, 0.3]),
    bursts=st.sampled_from([None, {"enter": 0.01, "leave": 0.2}]),
    receiver=st.sampled_from([{}, {"ack_every": 2}, {"ack_every": 4, "ack_timeout_s": 0.004}]),
    work=st.sampled_from([{}, {"kind": "finite", "size_bytes": 1.0}, {"kind": "finite", "size_bytes": 300_000.0}]),
    times=st.sampled_from([{}, {"start_s": 0.5}, {"start_s": 0.1, "stop_s": 1.7}]),
    steps=st.sampled_from([[], [(0.5, 4e5), (1.0, 0.0), (1.5, 3e6)]]),
)  # fmt: skip
def test_one_flow_over_one_plain_link(sender, rate_Bps, buffer, loss_rate, bursts, receiver, work, times, steps) -> None:
    link = {"rate_Bps": rate_Bps, "buffer_bytes": buffer, "rate_steps": [{"time_s": t, "rate_Bps": r} for t, r in steps]}
    flow = {"sender": sender, "loss_rate": loss_rate, "loss_bursts": bursts, "receiver": receiver, "workload": work, **times}
    fast, slow = (engine(link, flow, packet_log) for packet_log in (0, 500_000))
    assert runs_alone(fast._batch.arrays) and not runs_alone(slow._batch.arrays)
    assert_same(records(fast._batch.arrays), records(slow._batch.arrays))


@pytest.mark.parametrize(("link", "flow"), [
    ({"discipline": "codel"}, {}), ({"policer": {"rate_Bps": 1e6, "burst_bytes": 1e5}}, {}), ({}, {"sender": "bbr3"}),
    ({}, {"access_s": 0.01}), ({}, {"burst_s": 0.001}), ({}, {"mss_bytes": 1000.0}),
    ({}, {"reordering": {"share": 0.01, "extra_s": 0.01}}), ({}, {"ack_path": {"loss_rate": 0.1}}),
    ({}, {"jitter": {"kind": "constant", "max_s": 0.01}}), ({}, {"receiver": {"aggregation": "interval", "aggregate_s": 0.01}}),
    ({}, {"workload": {"kind": "rate", "rate_Bps": 1e5}}),
])  # fmt: skip
def test_what_has_more_runs_with_all_features(link, flow) -> None:
    assert not runs_alone(engine(link, flow, 0, 0.1)._batch.arrays)


@pytest.mark.parametrize("settings", [
    {}, {"clock": {"every": "acks", "count": 7}}, {"action": "cwnd_exp2", "signals": "company"},
    {"action": "rate_log2", "signals": "beliefs"}, {"action": "cwnd_exp2_over", "inner": "cubic", "signals": "orca"},
])  # fmt: skip
def test_decisions_of_a_flow_alone(settings: dict[str, Any]) -> None:
    scenario = {
        "duration_s": 20,
        "links": [{"rate_mbps": [2, 20], "buffer_bdp": [0.2, 2]}],
        "flows": [{"sender": "external", "rtt_ms": 30, "loss_rate": 0.01}],
    }
    seen = []
    for render_mode in (None, "rgb_array"):  # with a picture, the packets are logged
        env = PacketVectorEnv(num_envs=3, scenario=scenario, episode_decisions=30, render_mode=render_mode, **settings)
        actions = np.random.default_rng(1)
        rows = [env.reset(seed=2)[0]]
        for _ in range(70):
            observations, rewards, *_ = env.step(actions.uniform(-1, 1, (3, 1)).astype(np.float32))
            rows += [observations, rewards]
        arrays = env.unwrapped.task.core.batch.arrays
        assert runs_alone(arrays) == (render_mode is None)
        seen.append({str(i): row for i, row in enumerate(rows)} | records(arrays))
    assert_same(*seen)


PAIR = np.dtype([("count", "<i8"), ("size_bytes", "<f8"), ("kind", "<i8")])


def test_a_local_copy_knows_fields_and_is_written_back() -> None:
    copy, right = copies_of({"kind": 3}), fits({"kind": 3, "size_bytes": 0.5})

    @njit
    def work(records: Any) -> int:
        if not right(records[0]):
            return -1
        local = copy(records[0])
        for _ in range(10):
            local.count += local.kind
        before = records[0].count
        put_back(local, records[0])
        return before

    pairs = np.array([(1, 0.5, 3), (2, 0.25, 4)], PAIR)
    assert work(pairs) == 1 and tuple(pairs[0]) == (31, 0.5, 3) and tuple(pairs[1]) == (2, 0.25, 4)
    assert work(np.array([(1, 0.25, 3)], PAIR)) == work(np.array([(1, 0.5, 2)], PAIR)) == -1


def test_a_known_field_is_not_set() -> None:
    copy = copies_of({"kind": 3})

    @njit
    def wrong(records: Any) -> None:
        copy(records[0]).kind = 4

    with pytest.raises(TypeError, match="'kind' is known to be 3"):
        wrong(np.zeros(1, PAIR))
