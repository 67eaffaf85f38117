"""Runs in virtual time: what a stack's senders meet is legal, what exported programs do equals their twins, and runs repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from quic_runs import STEPS, random_moves, small_path, small_run

from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace
from ccenv.quic.link import Queue, TokenLink, make_trace
from ccenv.quic.run import QuicResult, slack_bytes
from ccenv.quic.stacks import STACKS


def on(stack: str) -> Any:
    """Return a parameter of a test that is skipped where the stack is missing, with what it says."""
    reason = STACKS[stack].missing()
    return pytest.param(stack, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))


needs_aioquic = pytest.mark.skipif(STACKS["aioquic"].missing() is not None, reason=str(STACKS["aioquic"].missing()))
each_stack = pytest.mark.parametrize("stack", [on(name) for name in STACKS])


def play(moves: np.ndarray, seed: int, rtts_ms: tuple[float, ...] = (20.0,), buffer_bdp: float = 1.0) -> Trace:
    draw = np.random.default_rng(seed)
    path = small_path(buffer_bdp, rtts_ms=rtts_ms)
    queue = Queue(TokenLink(path, 8, moves), len(rtts_ms))
    for _ in range(STEPS):
        queue.step([[(float(draw.choice([60, 1500])), object()) for _ in range(draw.integers(0, 8))] for _ in rtts_ms])
    return make_trace(queue, 8, ["random"] * len(rtts_ms), "random")


@pytest.mark.parametrize("seed", range(12))
def test_the_link_is_legal_whatever_comes(seed: int) -> None:
    """Random packets and moves, one flow and two; the slack is a packet of each flow."""
    rtts_ms = ((20.0,), (20.0, 80.0))[seed % 2]
    trace = play(random_moves(seed), seed, rtts_ms, buffer_bdp=(0.2, 1.0, 6.0)[seed % 3])
    assert check_trace(trace, slack_bytes=slack_bytes(trace)) == []
    assert trace.S[-1].min() > 0


MUTANTS: dict[str, Callable[[Trace], Trace]] = {
    "a stolen token": lambda t: replace(t, G=np.where(np.arange(len(t.G)) > 100, t.G - 6000, t.G)),
    "bytes out of nothing": lambda t: replace(t, S=t.S + np.where(np.arange(len(t.S)) > 100, 60_000, 0)[:, None]),
    "a smaller D": lambda t: replace(t, header=t.header.model_copy(update={"path": small_path(1.0, jitter_ms=2.5)})),
    "a faster link": lambda t: replace(t, G=t.G * 1.2),
    "a loss with room": lambda t: replace(t, L=t.L + np.where(np.arange(len(t.L)) > 100, 6000, 0)[:, None]),
}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("stack", [None, *(on(name) for name in STACKS)])
def test_the_checker_catches_mutants(stack: str | None, name: str) -> None:
    """Of random packets, and of the runs of each stack."""
    trace = play(random_moves(1), 1) if stack is None else kept_run(stack).trace
    assert check_trace(trace, slack_bytes=slack_bytes(trace)) == []
    assert check_trace(MUTANTS[name](trace), slack_bytes=slack_bytes(trace))


@cache
def kept_run(stack: str) -> QuicResult:
    return small_run("cubic", small_path(1.0), stack=stack, moves=random_moves(1))


@pytest.mark.parametrize(
    ("name", "value"), [("D", 12), ("buffer_bytes", 15_000.0), ("buffer_bytes", 60_000.0), ("E", 30_000.0), ("served", 60_000.0)]
)
def test_a_link_with_one_wrong_field_breaks_a_law(name: str, value: float) -> None:
    """The network itself is at fault, from a third of the run on: of the path are D 8 steps, and a buffer of 30,000 bytes."""
    draw = np.random.default_rng(3)
    link = TokenLink(small_path(), 8, np.array([[0.0, 1.0, 0.0, 0.0]]))
    link.buffer_bytes = 30_000.0
    link.path = link.path.model_copy(update={"buffer_bytes": 30_000.0})
    queue = Queue(link, 1)
    for k in range(STEPS):
        if k == STEPS // 3:
            setattr(link, name, value if name in ("D", "buffer_bytes") else getattr(link, name) + value)
        queue.step([[(1500.0, None)] * int(draw.integers(0, 8))])
    assert check_trace(make_trace(queue, 8, ["random"], "random"), slack_bytes=1500.0)


@pytest.mark.slow
@each_stack
def test_a_thousand_runs_break_no_law(stack: str) -> None:
    """Random moves, three buffers, one flow and two; the programs equal their twins at each ACK, and alone, their bounds hold."""
    names = [*STACKS[stack].controls[:4], "cc_qdel", "cc_probe_drain"]
    for seed in range(1000):
        rtts_ms = ((20.0,), (20.0, 80.0))[seed % 7 == 0]
        path = small_path((0.3, 1.0, 6.0)[seed % 3], rtts_ms=rtts_ms)
        senders = [names[(seed + flow) % len(names)] for flow in range(len(rtts_ms))]
        moves = random_moves(seed, 160)
        if len(rtts_ms) == 2:
            moves = np.hstack([moves[:, :3], moves[:, 2:3], np.zeros((len(moves), 2))])
        result = small_run(senders, path, stack=stack, moves=moves, steps=160)
        assert result.violations == [], (seed, senders)
        assert result.difference() is None, (seed, senders)
        assert all(one.get("hold") is not False for one in result.beliefs()), (seed, senders)


@each_stack
def test_a_run_repeats_is_legal_and_equals_its_twin(stack: str) -> None:
    first, again = (small_run("cc_probe_drain", stack=stack, moves=random_moves(3)) for _ in range(2))
    summary = first.summary()
    assert (summary["legal"], summary["twin"], first.hash) == (True, True, again.hash)
    assert summary["beliefs"][0]["acks"] > 100
    assert summary["beliefs"][0]["hold"]
    assert 0.3 < first.utilisation <= 1
    assert small_run("cc_probe_drain", stack=stack, moves=random_moves(4)).hash != first.hash


@each_stack
def test_two_flows_share_a_link_legally(stack: str) -> None:
    """RTTs of 20 and 80 ms; a program beside a control of the stack."""
    result = small_run(["cubic", "cc_qdel"], small_path(1.0, rtts_ms=(20.0, 80.0)), stack=stack)
    assert result.violations == []
    assert result.utilisation > 0.8
    assert min(result.shares) > 0.02
    assert result.difference() is None
    again = small_run(["cc_probe_drain", "cc_probe_drain"], small_path(2.0, rtts_ms=(20.0, 20.0)), stack=stack)  # overflows
    assert (again.difference(), again.violations) == (None, [])
    assert result.losses > 0


@needs_aioquic
def test_an_understated_D_is_unsound() -> None:
    """ACK delay and grid belong to D: held at the network's D alone, C_L passes C."""
    moves = np.tile(np.array([[0.0, 1.0, 0.0, 0.0]] * 8 + [[0.0, 1.0, 1.0, 0.0]], np.float64), (60, 1))
    path = small_path()
    told, wide = (small_run("cc_qdel", path, moves=moves, jitter_s=jitter_s) for jitter_s in (0.002, None))
    assert not told.summary()["beliefs"][0]["hold"]
    assert wide.summary()["beliefs"][0]["hold"]
