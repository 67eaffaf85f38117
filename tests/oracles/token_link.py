"""Random runs of the token link of [CCAC] in whole numbers, and the work-conserving queue of the same rate and arrivals.

One unit arrives as a token per step and D is a number of steps. Written from the model's three lines, without the engines:
tokens G(t) = t - W(t); W rises only where A(t) <= G(t), so that no byte waits; G(t - D) <= S(t) <= min(A(t), G(t)).
"""

from __future__ import annotations

import random


def arrivals(dice: random.Random, steps: int) -> list[int]:
    """Return A, what has arrived by each step: idle times, a load near one, and bursts, in turns."""
    total, out, mean = 0, [], 0.0
    for step in range(steps):
        if step % 40 == 0 or dice.random() < 0.05:
            mean = dice.choice([0.0, 0.0, 0.6, 1.0, 1.4, 6.0])
        total += dice.choice([0, int(2 * mean), int(2 * mean) + 1]) if mean else 0
        out.append(total)
    return out


def token_link(
    dice: random.Random, arrived: list[int], delay: int, *, waste_backlog: bool = False, save_all: bool = False
) -> list[int]:
    """Return S of a random run: who wastes tokens and who holds bytes changes their minds now and then.

    Tokens are wasted where the bytes that G(t) stands for will not have arrived by t + D, or nothing legal could be served then.
    With ``waste_backlog`` tokens are wasted while bytes wait, with ``save_all`` none ever is: both are no token links.
    """
    steps, saved, served = len(arrived), [0], [0]
    wasteful = holding = False
    for t in range(1, steps):
        if dice.random() < 0.05:
            wasteful, holding = dice.random() < 0.5, dice.random() < 0.5
        tokens = saved[-1] + 1
        later = arrived[min(t + delay, steps - 1)]
        most = 1 if waste_backlog and wasteful else max(0, min(1, tokens - arrived[t]))
        least = 0 if save_all else max(0, min(1, tokens - later))
        saved.append(tokens - (max(least, most if wasteful else least)))
        low = max(served[-1], min(saved[max(0, t - delay)], arrived[t]))
        high = max(low, min(arrived[t], saved[t]))
        served.append(low if holding else dice.choice([high, dice.randint(low, high)]))
    return served


def work_conserving(arrived: list[int]) -> list[int]:
    """Return what a FIFO queue of one unit per step has served of these arrivals."""
    served = [0]
    for t in range(1, len(arrived)):
        served.append(min(arrived[t], served[-1] + 1))
    return served


def shifts(served: list[int], other: list[int]) -> tuple[int, int]:
    """Return by how many steps, at most, bytes leave earlier and later than in the other run; of bytes that leave in both."""
    early = late = 0
    there = here = 0
    for byte in range(1, min(served[-1], other[-1]) + 1):
        while served[here] < byte:
            here += 1
        while other[there] < byte:
            there += 1
        early, late = max(early, there - here), max(late, here - there)
    return early, late
