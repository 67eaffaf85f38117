"""Lines of play as traces, which the checker of laws judges and the curve engine replays (``ccenv.proofs.formulas.moves``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.network.path import DEFAULT_MSS_BYTES, Path
from ccenv.network.trace import Trace, TraceHeader
from ccenv.proofs.formulas.view import RTT_S
from ccenv.proofs.games import kernels
from ccenv.proofs.games.boards import MODELS, Boards
from ccenv.proofs.games.game import UNLIMITED


def trace_of(boards: Boards, rows: Sequence[dict[str, Any]], sender: str) -> Trace:
    """Return a line of play (``ccenv.proofs.games.players.line``) as a trace of the fastest path that explains all of it.

    It is that path which makes the regret. Packets are of DEFAULT_MSS_BYTES, a step is RTT_S. Row 0 is the state before the first
    step. Raises InputError for a game whose Rm is not known.
    """
    game = boards.game.with_known_delay("a trace")
    sent = [int(boards.pending[row["board"]]) if game.feedback_steps else row["sent"] for row in rows]
    last = boards.answers(rows[-1]["board"], rows[-1]["sent"])
    answers = [(int(boards.delivered[edge]), int(boards.lost[edge])) for edge in last]
    end = int(boards.target[last[answers.index((rows[-1]["delivered"], rows[-1]["lost"]))]])
    states = [max(boards.members(end))]
    model = MODELS.index(game.model)
    for row, step_sent in zip(reversed(rows), reversed(sent), strict=True):
        rate, buffer, level, due, _ = states[-1]
        for before in boards.members(row["board"]):
            facts = kernels.step.py_func(model, game.jitter_steps, before, row["inflight"], step_sent)
            lost, fewest, most, low, high, held = facts
            left = max(0, held - row["delivered"]) if game.jitter_steps == 2 else 0
            same = before[:2] == (rate, buffer) and lost == row["lost"] and left == due
            if same and fewest <= row["delivered"] <= most and low <= level <= high:
                states.append(before)
                break
    rate, buffer = states[0][:2]
    levels = np.array([level for _, _, level, *_ in reversed(states)])
    A, S, L = (
        np.cumsum([0, *steps]) * float(DEFAULT_MSS_BYTES)
        for steps in (sent, [row["delivered"] for row in rows], [row["lost"] for row in rows])
    )
    rates = np.array([0, *sent])[:, None] * DEFAULT_MSS_BYTES / RTT_S
    link_rate_Bps = rate * DEFAULT_MSS_BYTES / RTT_S
    delays = {"rtt_s": RTT_S, "jitter_s": RTT_S * game.jitter_steps}
    size = math.inf if buffer >= UNLIMITED else max(1e-9, float(buffer * DEFAULT_MSS_BYTES))  # a path has a buffer
    header = TraceHeader(
        path=Path.from_dict({"link_rate_Bps": link_rate_Bps, "buffer_bytes": size, "flows": [delays]}),
        model={"cbr": "cbr_delay"}.get(game.model, game.model),
        timing="smt",
        steps_per_rtt=1,
        dt_s=RTT_S,
        history="free" if levels[0] else "empty",  # tokens in stock are from before
        senders=(sender,),
        adversary="solver",
        notes=f"game {game.name}",
    )
    G, constant = A - L + levels * float(DEFAULT_MSS_BYTES), np.full(len(A), link_rate_Bps)
    none, unbounded = np.zeros_like(rates), np.full_like(rates, np.inf)
    return Trace(header, A[:, None], L[:, None], none, S[:, None], G, constant, rates, unbounded)
