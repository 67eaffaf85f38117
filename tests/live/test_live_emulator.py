"""The emulator over sockets, in given times: link, boxes, tokens, the way back. Needs no rights and no devices."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import Wire, ack_of, late_s, packet, reference, scenario

from ccenv.adversaries import ADVERSARIES
from ccenv.adversaries.learned import save_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH, PATH_QUEUE, TRUE_C_L, TRUE_RATE
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.agents.sender import ExternalSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.live.attacks import shipped_moves
from ccenv.live.emulator.layout import STALLS
from ccenv.live.emulator.link import SYN
from ccenv.live.emulator.loop import judge_turn
from ccenv.live.scenario import LiveScenario, load_jitter_adversary
from ccenv.network.adversary import MlpAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path
from ccenv.simulation.packet_trace import packet_slack_bytes

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

D_S = 0.04
PLAYERS = [*ADVERSARIES.names("scripted"), *ADVERSARIES.names("learned")]
BOXES = {
    "none": {},
    "constant": {"kind": "constant", "max_s": D_S},
    "batch": {"kind": "batch", "max_s": D_S},
    "interval": {"kind": "interval", "max_s": D_S, "interval_s": 0.03},
    "early": {"kind": "early", "max_s": D_S, "at_s": 0.1, "every_s": 0.2},
    "replay": {"kind": "replay", "max_s": D_S, "interval_s": 0.02, "delays_s": [0.0, 0.03, 0.01]},
}
wires: list[Wire] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while wires:
        wires.pop().close()


def wire(wanted: LiveScenario) -> Wire:
    wires.append(Wire(wanted))
    return wires[-1]


def steady(every_s: float, until_s: float = 0.9) -> list[float]:
    return [k * every_s for k in range(int(until_s / every_s))]


def assert_legal(one: Wire) -> None:
    trace = one.trace()
    assert trace.A[-1].sum() > 0 and check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4000), min_size=1, max_size=60), st.booleans())
def test_link_is_the_plain_one(gaps_us: list[int], with_steps: bool) -> None:
    """Service, drops and a rate that changes: all delivery times are those of a link in plain Python."""
    steps = [{"time_s": 0.02, "rate_mbps": 3}, {"time_s": 0.05, "rate_mbps": 24}] if with_steps else []
    one = wire(scenario(link={"rate_steps": steps, "buffer_packets": 5}))
    arrivals_s = list(np.cumsum(gaps_us) * 1e-6)
    one.play(arrivals_s)
    expected = [(at_s, number) for number, at_s in enumerate(reference(one.scenario, arrivals_s)) if at_s < math.inf]
    assert [number for _, number in one.delivered()] == [number for _, number in expected]
    assert np.allclose([at_s for at_s, _ in one.delivered()], [at_s for at_s, _ in expected], atol=1e-9)
    assert one.free_slots() == len(one.memory.free)


def test_full_queue_drops() -> None:
    one = wire(scenario(link={"buffer_packets": 5}))
    one.play([0.0] * 30)
    assert [number for _, number in one.delivered()] == list(range(6))  # five wait, one is served
    assert one.memory.run["dropped_bytes"][0] == 24 * 1500
    assert_legal(one)


@pytest.mark.parametrize("kind", BOXES)
def test_boxes_hold_in_order_and_at_most_d(kind: str) -> None:
    one = wire(scenario(BOXES[kind]))
    arrivals_s = steady(0.0021)
    one.play(arrivals_s)
    late = late_s(one.delivered(), reference(one.scenario, arrivals_s))
    assert [number for _, number in one.delivered()] == list(range(len(arrivals_s)))
    assert late.min() >= -1e-9 and late.max() <= D_S + 5e-9 and (late.max() > 0.01) == (kind != "none")
    assert_legal(one)


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize("model", ["cbr_delay", "ccac"])
def test_every_adversary_is_legal(model: str, name: str) -> None:
    """All packets come, in order and in time, and the checker accepts the trace; with a queue that overflows."""
    jitter = {"kind": "adversary", "max_s": D_S, "adversary": name}
    one = wire(scenario(jitter, model=model, link={"buffer_packets": 8}))
    arrivals_s = sorted(steady(0.0013, 0.8) + [0.3] * 80)
    one.play(arrivals_s)
    numbers = [number for _, number in one.delivered()]
    assert numbers == sorted(numbers)
    dropped = int(one.memory.run["dropped_bytes"][0] / 1500)
    assert dropped > 0 and len(numbers) == len(arrivals_s) - dropped
    if model == "cbr_delay":
        late = late_s(one.delivered(), reference(one.scenario, arrivals_s))
        assert -1e-9 <= late.min() <= late.max() <= D_S + 5e-9
    assert_legal(one)


def engine_beside(one: Wire) -> CurveEngine:
    """Return the curve engine of the same path and adversary."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=1e3 * D_S, buffer_bdp=100 * 1500 / (1.5e6 * 0.04))
    adversary = load_jitter_adversary(one.scenario.flows[0].jitter)
    return CurveEngine([path], model="ccac", senders=[ExternalSender("given")], adversary=adversary, record=True)


@pytest.mark.parametrize("name", ["slowest", "square", "hoard", "recorded"])
def test_tokens_are_those_of_the_curve_engine(name: str) -> None:
    """The same bytes in each step and the same moves: equal tokens, and as many whole packets as the engine's service holds."""
    jitter = {"kind": "adversary", "max_s": D_S, "adversary": name if name != "recorded" else str(shipped_moves()["reno"])}
    one = wire(scenario(jitter, model="ccac", link={"buffer_packets": 100}))
    step_s, counts = 0.005, [1 + (7 * k) % 9 if k % 40 < 30 else 1 for k in range(200)]
    engine = engine_beside(one)
    number = 0
    for k, count in enumerate(counts):
        engine.advance(1, actions=np.array([[count * 1500 / step_s]]))
        one.run((k + 0.5) * step_s)
        for _ in range(count):
            one.send(packet(0, number))
            number += 1
        one.run((k + 0.5) * step_s)
    one.run(1.0)
    trace, expected = one.trace(), engine.trace(0)
    assert expected.L[-1, 0] == 0.0 and np.allclose(trace.G, expected.G, atol=1e-3)
    assert np.allclose(trace.S[:, 0], np.floor(expected.S[:, 0] / 1500 + 1e-9) * 1500, atol=1e-3)


def test_a_learned_adversary_sees_what_the_curve_engine_shows(tmp_path: Path) -> None:
    """Moves that follow the queue, the true rate and C_L: as many whole packets in each step as in the engine, up to one."""
    weights = np.zeros((N_PATH + N_FLOW, 2))
    weights[PATH_QUEUE] = [-0.1, 0.05]
    weights[N_PATH + TRUE_RATE] = [0.1, -0.2]
    weights[N_PATH + TRUE_C_L] = [0.05, 0.1]
    player = MlpAdversary("follower", (weights,), (np.array([0.6, 0.5]),), "tanh", OBSERVATION_VERSION, (0, 2))
    save_adversary(tmp_path / "follower", player)
    jitter = {"kind": "adversary", "max_s": D_S, "adversary": str(next(tmp_path.glob("*.safetensors")))}
    one = wire(scenario(jitter, model="ccac", link={"buffer_packets": 100}))
    step_s, count, number, heard, services = 0.005, 6, 0, 0, []
    engine = engine_beside(one)
    for k in range(200):
        engine.advance(1, actions=np.array([[count * 1500 / step_s]]))
        one.run((k + 0.5) * step_s)
        for _ in range(count):
            one.send(packet(0, number))
            number += 1
        one.run((k + 1) * step_s)
        for content_at_s, _ in one.there[heard:]:
            assert content_at_s <= one.now_s
            one.send_back(packet(0, number, back=True, payload=0))
        heard = len(one.there)
        one.run((k + 1) * step_s)
        services.append(float(one.memory.moves["service"][0]))
    one.run(1.0)
    trace, expected = one.trace(), engine.trace(0)
    assert len({round(service, 3) for service in services}) > 5
    settled = slice(60, 195)
    seen, theirs = one.memory.beliefs["C_L_Bps"][0], expected.beliefs["C_L"][-1, 0]
    assert seen == pytest.approx(theirs, rel=0.02)
    assert np.abs(trace.S[settled, 0] - expected.S[settled, 0]).max() <= 2 * 1500
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def test_an_adversary_that_lets_nothing_go_holds_for_d() -> None:
    one = wire(scenario({"kind": "adversary", "max_s": D_S, "adversary": "slowest"}))
    arrivals_s = steady(0.0051)
    one.play(arrivals_s)
    late = late_s(one.delivered(), reference(one.scenario, arrivals_s))
    assert np.allclose(late, D_S, atol=1e-9)


def test_two_flows_share_the_link() -> None:
    one = wire(scenario(flows=2, duration_s=0.5))
    for number in range(10):
        one.send(packet(0, number))
        one.send(packet(1, number))
        one.run(one.now_s + 0.0005)
    one.run(0.5)
    assert len(one.there) == 20 and one.memory.flows["transmissions"].tolist() == [10, 10]
    assert_legal(one)


def test_the_way_back_takes_what_is_left_of_the_round_trip() -> None:
    one = wire(scenario(link={"delay_s": 0.01}))
    one.run(0.1)
    one.send_back(packet(0, 0, back=True, payload=0, ack=77))
    one.run(0.2)
    assert [at_s for at_s, _ in one.here] == pytest.approx([0.1 + 0.03])


@pytest.mark.parametrize("merge", [False, True])
def test_acks_are_collected(merge: bool) -> None:
    receiver = {"aggregation": "interval", "aggregate_s": 0.05, "merge": merge}
    one = wire(scenario(flow={"receiver": receiver}))
    for number in range(20):
        one.run(0.01 * number)
        one.send_back(packet(0, number, back=True, payload=0))
    one.run(0.5)
    times_s = np.array([at_s for at_s, _ in one.here])
    assert np.allclose(times_s / 0.05, np.round(times_s / 0.05), atol=1e-6)
    assert len(times_s) == (len(set(np.round(times_s, 6))) if merge else 20)


ACKED_EVERY = 4
SACK = bytes([1, 1, 5, 10]) + bytes(8)


def thinned() -> Wire:
    """Return a network whose receiver acknowledges every fourth packet, or after 50 ms; the connection is made."""
    receiver = {"ack_every": ACKED_EVERY, "ack_timeout_s": 0.05}
    one = wire(scenario(flow={"receiver": receiver}))
    one.send(packet(0, 999, payload=0, flags=SYN))
    one.run(0.0)
    one.send_back(packet(0, 0, back=True, payload=0, ack=1000, flags=SYN | 0x10))
    one.run(0.05)
    assert len(one.here) == 1
    return one


def says(one: Wire, packets: int, options: bytes = b"") -> None:
    """Let the kernel's receiver acknowledge so many packets."""
    size = int(one.memory.flows["segment_bytes"][0])
    one.send_back(packet(0, 0, back=True, payload=0, ack=1000 + packets * size, options=options))
    one.run(one.now_s)


def acks(one: Wire) -> list[tuple[float, int]]:
    """Return when ACKs came to the sender, and for how many packets."""
    size = int(one.memory.flows["segment_bytes"][0])
    return [(round(at_s, 6), (ack_of(content) - 1000) // size) for at_s, content in one.here[1:]]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        # every fourth, the last one when the oldest has waited for 50 ms
        ([(0.1 + 0.001 * number, number) for number in range(1, 11)], [(0.144, 4), (0.148, 8), (0.199, 10)]),
        # ACKs for several packets; the last one says nothing new, a larger window perhaps: it takes the older one's place
        ([(0.1, 2), (0.11, 3), (0.12, 5), (0.13, 6), (0.14, 6)], [(0.16, 5), (0.22, 6)]),
        # duplicates go one by one, the one that ends the gap too; what was kept goes with the first of them
        (
            [(0.1, 1), (0.11, 2, SACK), (0.12, 2, SACK), (0.13, 6), (0.14, 7), (0.15, 10)],
            [(0.15, 2), (0.16, 2), (0.17, 6), (0.19, 10)],
        ),
    ],
    ids=["fourth", "several", "gap"],
)
def test_thinned_acks_count_packets_and_tell_gaps_at_once(said: list[tuple], heard: list[tuple[float, int]]) -> None:
    one = thinned()
    for at_s, *told in said:
        one.run(at_s)
        says(one, *told)
    one.run(1.0)
    assert acks(one) == heard and one.free_slots() == len(one.memory.free)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 3), st.binary(max_size=12)), min_size=1, max_size=30))
def test_kept_acks_are_never_lost(given: list[tuple[int, int, bytes]]) -> None:
    """Whatever receivers send, with whatever options: nothing waits longer than 50 ms, no slot is lost."""
    one = thinned()
    sent, now_s = [], 0.1
    for gap_us, more, options in given:
        now_s = min(0.8, now_s + gap_us * 1e-6)
        one.run(now_s)
        sent.append((now_s, (sent[-1][1] if sent else 0) + more))
        says(one, sent[-1][1], options + bytes(-len(options) % 4))
    one.run(1.0)
    heard = acks(one)
    assert [packets for _, packets in heard] == sorted(packets for _, packets in heard)
    for at_s, packets in sent:
        assert any(there >= packets and came_s <= at_s + 0.04 + 0.05 + 1e-6 for came_s, there in heard)
    assert one.free_slots() == len(one.memory.free)


def test_data_wait_and_what_holds_none_passes_beside() -> None:
    """The handshake of a flow does not wait in the queue of others: its RTT is Rm."""
    one = wire(scenario())
    for number in range(15):
        one.send(packet(0, number))
    one.send(packet(0, 99, payload=0, flags=SYN))
    one.run(0.0)
    assert [number for _, number in one.delivered()] == [99] and one.memory.flows["first_seq"][0] == 99
    assert one.memory.flows["transmissions"][0] == 15


@pytest.mark.parametrize(
    "content",
    [b"", b"\x45", b"\x60" + bytes(60), packet(9, 0), b"\x45" + bytes(19), b"\x4f" + bytes(39), packet(0, 0)[:39], bytes(1600)],
)
def test_what_is_no_packet_of_a_flow_is_thrown_away(content: bytes) -> None:
    one = wire(scenario())
    if content:
        one.send(content)
        one.send_back(content)
    one.run(0.1)
    assert (one.there, one.here) == ([], []) and one.free_slots() == len(one.memory.free)


def test_random_loss_is_that_of_the_seed() -> None:
    runs = []
    for seed in (1, 1, 2):
        one = wire(scenario(flow={"loss_rate": 0.2}, seed=seed))
        one.play(steady(0.002))
        runs.append([number for _, number in one.delivered()])
        assert_legal(one)
    assert runs[0] == runs[1] != runs[2] and 0.1 < 1 - len(runs[0]) / 450 < 0.3


@pytest.mark.parametrize(
    ("jump_s", "queued_ns", "blamed"),
    [(0.008, 100_000, "host"), (0.008, 6_000_000, "machine"), (0.0005, 100_000, "emulator"), (0.008, None, "unknown")],
)
def test_who_made_it_late(tmp_path: Path, jump_s: float, queued_ns: int | None, blamed: str) -> None:
    """Late by 8 ms: the clock jumped; the thread waited for its core meanwhile, or not; the kernel may not count that."""
    one = wire(scenario())
    run, file = one.memory.run, tmp_path / "schedstat"
    file.write_text(f"1000000000 {5_000_000 + (queued_ns or 0)} 77\n", encoding="ascii")
    with file.open("rb") as schedule:
        run["schedule_fd"] = schedule.fileno() if queued_ns is not None else -1
        run["turn_late_s"], run["jump_s"], run["queued_s"] = 0.008, jump_s, 0.005
        judge_turn(one.memory, 1.0)
    counts = dict(zip(STALLS, one.memory.stalls["count"].tolist(), strict=True))
    assert counts == {**dict.fromkeys(STALLS, 0), blamed: 1} and one.memory.stalls["longest_s"].max() == 0.008
    assert (run["turn_late_s"][0], run["jump_s"][0]) == (0.0, 0.0)


def test_a_slow_reader_is_late_and_says_so() -> None:
    one = wire(scenario())
    one.send(packet(0, 0))
    one.run(0.0)
    one.now_s = 0.5
    one.run(0.5)
    assert one.memory.run["late_max_s"][0] == pytest.approx(0.499) and one.memory.errors.sum() == 1
