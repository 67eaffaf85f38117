"""Belief sets and values of games by replay of whole histories: the slow plain reference of ccenv.proofs.games.

Nothing is carried from step to step: for every path and every way in which a bucket may have been wasted, the cumulative curves
of the whole history are checked against the laws of the model.
"""

from collections.abc import Iterator
from fractions import Fraction
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


def _ideal(game: Game, rate: int, buffer: int, delay: int, history: History) -> Iterator[tuple[int, int]]:
    """Yield level and what is under way at the end of a history, over all that may have been under way and queued before it."""
    for past in product(range(rate + 1), repeat=delay - 1):
        queue, served = game.start_inflight - sum(past), [*past]
        if not 0 <= queue <= buffer or (queue and served and served[-1] < rate):
            continue
        good = True
        for sent, got, lost in history:
            served.append(min(rate, queue + sent))
            left = queue + sent - served[-1]
            queue = min(left, buffer)
            good = good and lost == left - queue and got == served[-delay]
        if good:
            under_way = served[len(served) - delay + 1 :]
            yield -queue, sum(packets * (rate + 1) ** age for age, packets in enumerate(reversed(under_way)))


def belief_set(game: Game, history: History) -> set[tuple[int, int, int, int, int]]:
    """Return all (C, beta, level, due, Rm) that explain a history."""
    found = set()
    for (rate, buffer), delay in product(game.paths, game.delays):
        if game.model == "ideal":
            ends = _ideal(game, rate, buffer, delay, history)
        else:
            ends = _ccac(rate, buffer, history) if game.model == "ccac" else _cbr(game, rate, buffer, history)
        found |= {(rate, buffer, *end, delay) for end in ends}
    return found


def in_flight(game: Game, history: History) -> int:
    """Return the packets in flight at the end of a history."""
    return game.start_inflight + sum(a - s - lost for a, s, lost in history)


def answers(game: Game, history: History, sent: int) -> dict[tuple[int, int], set[tuple[int, int, int, int, int]]]:
    """Return the belief set after each answer (delivered, lost) that some path may give to an action."""
    inflight = in_flight(game, history)
    found = {}
    for got in range(inflight + sent + 1):
        for lost in range(sent + 1):
            after = belief_set(game, (*history, (sent, got, lost)))
            if after:
                found[got, lost] = after
    return found


def is_legal(game: Game, history: History, sent: int, after: dict[tuple[int, int], set[tuple[int, int, int, int, int]]]) -> bool:
    """Return whether an action keeps to the allowance and the cap whatever the network answers."""
    allowed = game.allowed_loss
    inflight = in_flight(game, history) + sent
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


def delay_kept(game: Game, steps: int, busy: bool, history: History = ()) -> Fraction:
    """Return the largest queueing delay that the network can keep possible for so many steps, whatever is sent.

    ``busy``: the sender leaves no link idle that is still possible.
    """
    paths = belief_set(game, history)
    now = max(Fraction(max(0, -level), rate) for rate, _, level, *_ in paths)
    best = now
    for sent in range(game.most_sent + 1 if steps else 0):
        after = answers(game, history, sent)
        if not is_legal(game, history, sent, after):
            break
        if not busy or all(sent - level >= rate for rate, _, level, *_ in paths):
            best = min(best, max(delay_kept(game, steps - 1, busy, (*history, (sent, *answer))) for answer in after))
    return best
