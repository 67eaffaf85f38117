"""The steps of the proofs in docs/games.md (the quadratic law on CCAC), each asked of z3 for all whole numbers."""

from itertools import product
from typing import Any

import pytest

from ccenv.proofs.games import kernels
from ccenv.proofs.games.boards import explore
from ccenv.proofs.games.game import Game
from ccenv.proofs.games.values import convergence

z3 = pytest.importorskip("z3")

j, beta, z, i, a, k, left_after, i_after = z3.Ints("j beta z i a k left_after i_after")


def least(x: Any, y: Any) -> Any:
    return z3.If(x < y, x, y)


def most(x: Any, y: Any) -> Any:
    return z3.If(x < y, y, x)


LEFT = most(z + j - a, -beta)
LOST = most(0, -beta - (z + j - a))
WHOLE = i + a - LOST
FACTS = (LOST, least(WHOLE, most(0, z + i)), WHOLE + least(0, LEFT), z3.If(LEFT <= 0, LEFT, 0), least(LEFT, j))
"""What a step can do to a path of rate j with z tokens (minus its queue) and i packets in flight: ``kernels.step``."""
DELIVERED = WHOLE - i_after
STEP = z3.And(
    *(j >= 1, beta >= 0, -beta <= z, z <= j, i >= 0, z >= -i, a >= 0),  # z >= -i: nothing was delivered without a token
    *(FACTS[1] <= DELIVERED, FACTS[2] >= DELIVERED, left_after >= FACTS[3], left_after <= FACTS[4], left_after >= -i_after),
)


def test_the_step_of_the_proof_is_the_step_of_the_solver() -> None:
    for rate, buffer, tokens, inflight, sent in product(range(1, 4), range(3), range(-2, 4), range(4), range(7)):
        if -buffer <= tokens <= rate and tokens >= -inflight:
            values = [(j, rate), (beta, buffer), (z, tokens), (i, inflight), (a, sent)]
            expected = kernels.step.py_func(kernels.CCAC, 1, (rate, buffer, tokens, 0), inflight, sent)[:5]
            found = [z3.simplify(z3.substitute(fact, *((v, z3.IntVal(x)) for v, x in values))) for fact in FACTS]
            assert tuple(fact.as_long() for fact in found) == expected


PREMISES_AND_CLAIMS = {
    "tokens grow by no more than what a step does not send": (LOST == 0, z3.And(left_after <= j, left_after <= z + j - a)),
    "with a network in time they grow by just that": (z3.And(LOST == 0, i == 0, z + j >= a), FACTS[4] == least(j, z + j - a)),
    "lateness takes tokens: at most j - i' are left": (z3.BoolVal(True), left_after <= j - i_after),
    "a path loses a packet of k + 1 only if its rate is k": (z3.And(a == k + 1, j >= k, LOST > 0), z3.And(j == k, LOST == 1)),
    "a path that can carry what is sent queues nothing": (z3.And(z >= 0, a <= j), z3.And(LOST == 0, left_after >= 0)),
    "and is late by no more than what is sent": (z3.And(z >= 0, a <= j), i_after <= a),
    "a loss without a buffer leaves no token: j + z": (z3.And(beta == 0, LOST > 0), z3.And(left_after == 0, j + z == a - LOST)),
    "without tokens and buffer the next loss tells the rate": (z3.And(beta == 0, z == 0, LOST > 0), j == a - LOST),
}


@pytest.mark.parametrize("name", PREMISES_AND_CLAIMS)
def test_each_step_of_the_proofs_holds_for_all_whole_numbers(name: str) -> None:
    premise, claim = PREMISES_AND_CLAIMS[name]
    solver = z3.Solver()
    solver.add(STEP, premise)
    assert solver.check() == z3.sat  # it says something
    solver.add(z3.Not(claim))
    assert solver.check() == z3.unsat


def test_lateness_takes_tokens_on_every_board() -> None:
    boards = explore(Game(model="ccac", rates=(1, 2, 3, 4), buffers=(0, "C"), loss=1))
    for board in range(len(boards)):
        assert all(level <= rate - boards.inflight[board] for rate, _, level, *_ in boards.members(board))


@pytest.mark.parametrize("buffers", [(0, 1), (0, 2), (0, "C"), (0, 1, 2), (1,), (2,), ("C",), ("up to C",), (1, "2C")])
def test_theorem_3_bounds_the_steps_with_buffers(buffers: tuple[int | str, ...]) -> None:
    """At most C (C + 1)/2 - 1 + min(C, b) steps, proved; with a buffer of 0 among them at least C (C + 1)/2 - 1."""
    game = Game(model="ccac", rates=(1, 2, 3, 4, 5), buffers=buffers, loss=1)
    for rate, steps in convergence(game).items():
        largest = max(size for slower, size in game.paths if slower == rate - 1)
        assert steps is not None and steps <= rate * (rate + 1) // 2 - 1 + min(rate, largest)
        if (1, 0) in game.paths:
            assert steps == rate * (rate + 1) // 2 - 1 + min(rate, largest)


def test_the_quadratic_law_to_a_rate_of_sixteen() -> None:
    found = convergence(Game(model="ccac", rates=tuple(range(1, 17)), buffers=(0,), loss=1))
    assert found == {rate: rate * (rate + 1) // 2 - 1 for rate in range(2, 17)}


@pytest.mark.parametrize("loss", [1, 2, 4, "sqrt(C)", "C/2+1", "2C"])
def test_theorem_2_bounds_the_steps_by_those_without_loss(loss: int | str) -> None:
    """G <= T <= G + 1, G the steps that sending k + f(k) takes while nothing is lost: the two halves of the proof."""
    game = Game(model="ccac", rates=(1, 2, 4, 5, 7, 8), buffers=(0,), loss=loss)
    for rate, steps in convergence(game).items():
        tokens, free = {slower: slower for slower in game.rates if slower < rate}, 0
        while tokens:
            sent = min(tokens) + int(game.allowed_loss[min(tokens)])
            drained = {slower: min(slower, left + slower - sent) for slower, left in tokens.items()}
            tokens, free = {slower: left for slower, left in drained.items() if left >= 0}, free + 1
        assert steps is not None and free <= steps <= free + 1
