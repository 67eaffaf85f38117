"""What the checker can tell apart: round-off is forgiven, and no number of bytes counted before hides a broken law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from legal_traces import MODEL_NAMES

from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, make_path
from ccenv.network.trace import Trace

K = 4


def run_of_reno(model: str) -> Trace:
    path = make_path(link_rate_mbps=8, rtt_ms=40, jitter_ms=0 if model == "ideal" else 20, buffer_bdp=2)
    engine = CurveEngine([path], model=model, senders=[make_sender("reno")], steps_per_rtt=K, record=True)
    engine.advance(400)
    return engine.trace(0)


def shifted(trace: Trace, offset_bytes: float, silent_rows: int) -> Trace:
    """Return a trace whose past is unknown, its curves higher by an offset, with nothing delivered in the last rows."""
    served = trace.S.copy()
    served[len(served) - silent_rows :] = served[-silent_rows - 1]
    header = trace.header.model_copy(update={"history": "free"})
    return replace(trace, header=header, A=trace.A + offset_bytes, G=trace.G + offset_bytes, S=served + offset_bytes)


@pytest.mark.parametrize("model", MODEL_NAMES)
@pytest.mark.parametrize("decades", range(19))
def test_no_offset_hides_what_was_not_delivered(model: str, decades: int) -> None:
    """Under any offset 62 Rm without delivery are illegal, and a legal run is legal, or neither is judged."""
    trace = run_of_reno(model)
    for silent_rows in (0, 62 * K):
        moved = shifted(trace, 10.0**decades, silent_rows)
        if decades <= 13:
            assert bool(check_trace(moved)) == (silent_rows > 0)
        else:
            with pytest.raises(InputError, match=r"float64 is off by up to .* at most 0.001 of"):
                check_trace(moved)


@pytest.mark.parametrize(("factor", "judged"), [(10.0, True), (1e4, True), (1e15, False)])
def test_losses_that_dwarf_the_link_are_not_judged(factor: float, judged: bool) -> None:
    """Lost bytes count in the curves too: at 1e15 times the link's rate they would hide all that it does."""
    path = make_path(link_rate_mbps=8, rtt_ms=40, buffer_bdp=2)
    engine = CurveEngine([path], model="ideal", senders=[ExternalSender()], steps_per_rtt=K, record=True)
    engine._flow["receive_window_bytes"] = np.inf
    engine.advance(200, actions=np.full((1, 1), factor * path.link_rate_Bps))
    if judged:
        assert check_trace(engine.trace(0)) == []
    else:
        with pytest.raises(InputError, match="float64"):
            check_trace(engine.trace(0))


def test_round_off_of_a_long_run_is_forgiven() -> None:
    """60,000 steps against random moves: sums round off by a thousand units of the last place, and every law holds."""
    rng = np.random.default_rng(5)
    path = make_path(link_rate_mbps=80, rtt_ms=40, jitter_ms=20, buffer_bdp=2, n_flows=3)
    moves = RecordedAdversary("random", rng.random((199, 8)), periodic=True)
    for model in MODEL_NAMES[1:]:
        engine = CurveEngine([path], model=model, senders=[make_sender("cubic")] * 3, adversary=moves, record=True)
        engine.advance(60_000)
        assert check_trace(engine.trace(0)) == []


@pytest.mark.parametrize("link_rate_Bps", [1e5, 1e9, 1e12, 1e15])
@pytest.mark.parametrize("sender", ["reno", "cc_probe_drain"])
def test_fast_links_with_spare_tokens_keep_their_laws(link_rate_Bps: float, sender: str) -> None:
    """Kept tokens of ccac may exceed what a flow has sent by far; what is left of them when they expire is exact."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        flow = FlowPath(rtt_s=0.04, jitter_s=0.02)
        path = Path(link_rate_Bps=link_rate_Bps, buffer_bytes=80 * link_rate_Bps, flows=(flow,) * (1 + seed % 2))
        moves = rng.random((200, 2 + 2 * path.n_flows))
        moves = np.where(rng.random(moves.shape) < 0.3, np.round(moves), moves)
        engine = CurveEngine(
            [path],
            model="ccac",
            senders=[make_sender(sender)] * path.n_flows,
            adversary=RecordedAdversary("random", moves),
            record=True,
        )
        engine.advance(600)
        assert check_trace(engine.trace(0), tolerance=1e-12) == []
