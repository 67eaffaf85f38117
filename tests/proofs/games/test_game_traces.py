"""Lines of play outside the solver: judged by the checker of laws, replayed in the curve engine, and asked of an SMT solver."""

from fractions import Fraction
from itertools import product

import pytest

from ccenv.network.laws import check_trace
from ccenv.proofs.formulas.encode import encode
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.game import Game, load_game
from ccenv.proofs.games.players import line, sender_on
from ccenv.proofs.games.traces import trace_of
from ccenv.proofs.games.values import Solved, regret
from ccenv.proofs.senders.rate_based import AnySender

GAMES = [
    *(load_game(name) for name in ("cbr_small", "ccac_small", "ideal", "cbr_late")),
    Game(model="cbr", jitter_steps=2, rates=(1, 2, 3), buffers=(0, "2C"), loss=1, horizon_steps=20),
    Game(model="ccac", rates=(1, 2, 3), buffers=("C",), loss=1, horizon_steps=20),
    Game(model="cbr", rates=(1, 2, 3), buffers=("inf",), loss=0, horizon_steps=20, most_inflight=9),
]


@pytest.mark.parametrize("game", GAMES, ids=lambda g: f"{g.name}-{g.model}{g.jitter_steps}")
def test_lines_of_play_are_legal_traces_that_the_engine_reproduces(game: Game) -> None:
    solved = Solved(explore(game))
    for name in ("optimal", "C_L+1", "bounds:cc_qdel"):
        rows = line(sender_on(name, solved), solved)
        trace = trace_of(solved.boards, rows, name)
        assert check_trace(trace) == [] and engine_replay(trace)[1] <= REPLAY_TOLERANCE
        carried = trace.header.path.link_rate_Bps * trace.header.dt_s * len(rows)
        if name == "optimal":
            assert (carried - trace.S[-1, 0]) / trace.header.path.mss_bytes == pytest.approx(solved.value)


def smt_value_is_at_least(game: Game, steps: int, value: int) -> bool:
    """Ask whether answers to all sequences of actions, each explained by a path of the encoding, make the regret so large.

    An answer depends on the actions up to it alone. With free loss every action is legal, so the sender's strategies are what
    sequences of actions can tell apart. In the encoding C = 1: a packet is 1/C.
    """
    import z3

    solver, known = z3.Solver(), {}
    for path in game.paths:
        model = {"cbr": "cbr_delay"}.get(game.model, game.model)
        setting = Setting(model=model, buffer=Fraction(path[1], path[0]), samples=steps + 1, past_steps=1, past_start="empty")
        known[path] = encode(setting, AnySender())
    for actions in product(range(game.most_sent + 1), repeat=steps):
        sent, got, lost = [0], [z3.IntVal(0)], [z3.IntVal(0)]
        for t in range(1, steps + 1):
            name = "_".join(map(str, actions[:t]))
            sent.append(sent[-1] + actions[t - 1])
            got.append(z3.Int(f"got_{name}"))
            lost.append(z3.Int(f"lost_{name}"))
        explained = []
        for (rate, _), encoding in known.items():
            view = encoding.view
            pairs = [(view.sent[t], z3.RealVal(Fraction(actions[t - 1], rate))) for t in range(1, steps + 1)]
            pairs += [(view.S[t], z3.ToReal(got[t]) / rate) for t in range(steps + 1)]
            pairs += [(view.E[t], z3.ToReal(sent[t] - lost[t]) / rate) for t in range(steps + 1)]
            fresh = [
                (v, z3.FreshConst(v.sort())) for v in encoding.variables.all.values() if not any(v.eq(old) for old, _ in pairs)
            ]
            formulas = [z3.substitute(f, *pairs, *fresh) for _, f in encoding.network.parts if z3.is_expr(f)]
            explained.append(z3.And(rate * steps - got[-1] >= value, *formulas))
        solver.add(z3.Or(explained))
    return bool(solver.check() == z3.sat)


@pytest.mark.parametrize(
    ("small", "steps"),
    [
        (Game(model="cbr", rates=(1, 2), buffers=("C",), most_inflight=40), 2),
        (Game(model="cbr", rates=(1, 3), buffers=(1, "C"), most_inflight=40), 2),
        (Game(model="ideal", jitter_steps=0, rates=(1, 2), buffers=("C",), most_inflight=40), 2),
        pytest.param(Game(model="cbr", rates=(1, 2), buffers=(1, "C"), most_inflight=40), 3, marks=pytest.mark.slow),
    ],
    ids=("cbr", "cbr-1-3", "ideal", "cbr-3"),
)
def test_the_value_of_a_small_game_is_that_of_the_smt_encoding(small: Game, steps: int) -> None:
    """Where the models coincide: a buffer, which the encoding wants above 0, and no tokens in stock."""
    value = regret(explore(small), steps)
    assert smt_value_is_at_least(small, steps, value) and not smt_value_is_at_least(small, steps, value + 1)
