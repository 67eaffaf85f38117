"""Belief sets and values of games by replay of whole histories: the slow plain reference of ccenv.proofs.games.

Nothing is carried from step to step: for every path and every way in which a bucket may have been wasted, the cumulative curves
of the whole history are checked against the laws of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ccenv.proofs.games.game import Game

History = tuple[tuple[int, int, int], ...]
"""Packets sent, delivered and lost, step by step."""


def _cbr(game: Game, rate: int, buffer: int, history: History) -> Iterator[tuple[int, int]]:
    """Yield level and what is due at the end of a history, if a path of CBR-delay explains it."""
    served, admitted, delivered = [0], 0, 0
    for sent, got, lost in history:
        at_most = served[-1] + rate
        if lost != max(0, admitted + sent - at_most - buffer):
            return
        admitted += sent - lost
        served.append(min(admitted, at_most))
        delivered += got
        released = served[max(0, len(served) - 1 - game.jitter_steps)]
        if not released <= delivered <= served[-1]:
            return
    due = max(0, served[max(0, len(served) - 2)] - delivered) if game.jitter_steps == 2 else 0
    yield served[-1] - admitted, due


def _ccac(rate: int, buffer: int, history: History) -> Iterator[tuple[int, int]]:
    """Yield the levels that a path of CCAC may have at the end of a history: over all waste W(0), W(1), ... that explains it."""
    for wasted in product(range(rate + 1), repeat=len(history) + 1):
        tokens = rate - wasted[0]  # C t - W(t), the bucket being full before the first step
        admitted, delivered, good = 0, 0, True
        for (sent, got, lost), waste in zip(history, wasted[1:], strict=True):
            least, most = tokens, tokens + rate
            lost_there = max(0, admitted + sent - most - buffer)
            admitted += sent - lost_there
            delivered += got
            tokens = most - waste
            good = lost == lost_there and min(admitted, least) <= delivered <= min(admitted, most)
            # Tokens are wasted only where none is missing, and a bucket of C D holds no more.
            good = good and (waste == 0 or tokens >= admitted)
            if not good:
                break
        # A bucket may overflow by more than its size: what is above C D is wasted too.
        if good:
            yield min(tokens - admitted, rate), 0


def belief_set(game: Game, history: History) -> set[tuple[int, int, int, int]]:
    """Return all (C, beta, level, due) that explain a history."""
    found = set()
    for rate, buffer in game.paths:
        ends = _ccac(rate, buffer, history) if game.model == "ccac" else _cbr(game, rate, buffer, history)
        found |= {(rate, buffer, *end) for end in ends}
    return found


def answers(game: Game, history: History, sent: int) -> dict[tuple[int, int], set[tuple[int, int, int, int]]]:
    """Return the belief set after each answer (delivered, lost) that some path may give to an action."""
    inflight = sum(a - s - lost for a, s, lost in history)
    found = {}
    for got in range(inflight + sent + 1):
        for lost in range(sent + 1):
            after = belief_set(game, (*history, (sent, got, lost)))
            if after:
                found[got, lost] = after
    return found


def is_legal(game: Game, history: History, sent: int, after: dict[tuple[int, int], set[tuple[int, int, int, int]]]) -> bool:
    """Return whether an action keeps to the allowance and the cap whatever the network answers."""
    allowed = game.allowed_loss
    inflight = sum(a - s - lost for a, s, lost in history) + sent
    return all(
        inflight - got - lost <= game.inflight_cap and lost <= min(int(allowed[rate]) for rate, *_ in paths)
        for (got, lost), paths in after.items()
    )


def regret(game: Game, horizon_steps: int, history: History = ()) -> int:
    """Return the value of the game by minimax over whole histories."""
    if len(history) == horizon_steps:
        fastest = max(rate for rate, *_ in belief_set(game, history))
        return fastest * horizon_steps - sum(got for _, got, _ in history)
    best = 10**9
    for sent in range(game.most_sent + 1):
        after = answers(game, history, sent)
        if not is_legal(game, history, sent, after):
            break
        best = min(best, max(regret(game, horizon_steps, (*history, (sent, *answer))) for answer in after))
    return best


def steps_to(game: Game, rate: int, most: int, history: History = ()) -> int | None:
    """Return the fewest steps that surely exclude all rates below one that explains all answers; None: more than ``most``."""
    if min(slower for slower, *_ in belief_set(game, history)) >= rate:
        return 0
    best = None
    for sent in range(game.most_sent + 1 if most else 0):
        after = answers(game, history, sent)
        if not is_legal(game, history, sent, after):
            break
        worst: int | None = 0
        for answer, paths in after.items():
            if any(held == rate for held, *_ in paths):
                left = steps_to(game, rate, most - 1, (*history, (sent, *answer)))
                worst = None if left is None else max(worst, left)
                if worst is None:
                    break
        if worst is not None:
            best, most = worst + 1, worst  # only fewer steps count from here on
    return best
