"""Runs in virtual time: what a stack's senders meet is legal, what exported programs do equals their twins, and runs repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from quic_runs import STEPS, random_moves, small_path, small_run

from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace
from ccenv.quic.link import Queue, TokenLink, make_trace
from ccenv.quic.run import slack_bytes
from ccenv.quic.stacks import STACKS


def on(stack: str) -> Any:
    """Return a parameter of a test that is skipped where the stack is missing, with what it says."""
    reason = STACKS[stack].missing()
    return pytest.param(stack, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))


needs_aioquic = pytest.mark.skipif(STACKS["aioquic"].missing() is not None, reason=str(STACKS["aioquic"].missing()))
each_stack = pytest.mark.parametrize("stack", [on(name) for name in STACKS])


def play(moves: np.ndarray, seed: int, rtts_ms: tuple[float, ...] = (20.0,), buffer_bdp: float = 1.0) -> Trace:
    """Bring random packets to a link."""
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


MUTANTS = {
    "a stolen token": lambda t: replace(t, G=np.where(np.arange(len(t.G)) > 100, t.G - 6000, t.G)),
    "bytes out of nothing": lambda t: replace(t, S=t.S + np.where(np.arange(len(t.S)) > 100, 60_000, 0)[:, None]),
    "a smaller D": lambda t: replace(t, header=t.header.model_copy(update={"path": small_path(1.0, jitter_ms=2.5)})),
    "a faster link": lambda t: replace(t, G=t.G * 1.2),
    "a loss with room": lambda t: replace(t, L=t.L + np.where(np.arange(len(t.L)) > 100, 6000, 0)[:, None]),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_checker_catches_mutants(name: str) -> None:
    trace = play(random_moves(1), 1)
    assert check_trace(MUTANTS[name](trace), slack_bytes=slack_bytes(trace))


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
