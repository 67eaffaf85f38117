"""PIE (RFC 8033): drops at random on arrival, with a probability that a controller moves by the queueing delay. Compiled.

The delay is what waits over the link rate (s.4.2). The controller has no timer: it catches up with its updates before
every arrival and every departure, between which nothing changes.
"""

from __future__ import annotations

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import LINK_KEY
from ccenv.base.kernels.decorator import kernel

ACCEPT, MARK, DROP = 0, 1, 2
MOST_MARKED = 0.1  # RFC 8033 s.5.1: mark_ecnth
SMALL_PROBABILITY = 0.2  # s.4.1: below it a queue of half the target is left alone
FEW_PACKETS = 2.0  # s.4.1: 2 * MEAN_PKTSIZE
LEAST_ACCUMULATED, MOST_ACCUMULATED = 0.85, 8.5  # s.5.4, derandomization
DECAY = 0.98  # s.4.2
LARGE_PROBABILITY, LARGEST_STEP = 0.1, 0.02  # s.5.5
# s.4.2: below a probability the step is divided by so much.
SCALES = ((0.000001, 2048.0), (0.00001, 512.0), (0.0001, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0))


@kernel
def catch_up(ln, now_s, mss_bytes):
    """Make the controller's updates up to now (s.4.2, s.4.4)."""
    while ln.next_update_s <= now_s:
        delay_s = (ln.waiting_bytes if ln.mixed == 1 else (ln.tail - ln.head) * mss_bytes) / ln.rate_Bps
        step = ln.alpha * (delay_s - ln.target_s) + ln.beta * (delay_s - ln.old_delay_s)
        for bound, divisor in SCALES:
            if ln.probability < bound:
                step /= divisor
                break
        if ln.probability >= LARGE_PROBABILITY:
            step = min(step, LARGEST_STEP)
        ln.probability += step
        if delay_s == 0.0 and ln.old_delay_s == 0.0:
            ln.probability *= DECAY
        ln.probability = min(1.0, max(0.0, ln.probability))
        ln.old_delay_s = delay_s
        ln.burst_left_s = max(0.0, ln.burst_left_s - ln.update_s)
        if ln.probability == 0.0 and delay_s < 0.5 * ln.target_s and ln.old_delay_s < 0.5 * ln.target_s:
            ln.burst_left_s = ln.burst_s
        ln.next_update_s += ln.update_s


@kernel
def pie_verdict(ln, now_s, mss_bytes, seed, codepoint):
    """Decide about an arriving packet (s.4.1, s.5.1, s.5.4)."""
    catch_up(ln, now_s, mss_bytes)
    if ln.burst_left_s > 0.0:
        return ACCEPT
    few = ln.waiting_bytes <= FEW_PACKETS * mss_bytes if ln.mixed == 1 else ln.tail - ln.head <= FEW_PACKETS
    if (ln.old_delay_s < 0.5 * ln.target_s and ln.probability < SMALL_PROBABILITY) or few:
        return ACCEPT
    ln.accumulated = 0.0 if ln.probability == 0.0 else ln.accumulated + ln.probability
    if ln.accumulated < LEAST_ACCUMULATED:
        return ACCEPT
    draw = uniform(seed, 0.0, LINK_KEY + ln.index, ln.draws)
    ln.draws += 1.0
    if ln.accumulated < MOST_ACCUMULATED and draw >= ln.probability:
        return ACCEPT
    ln.accumulated = 0.0
    return MARK if ln.ecn == 1 and codepoint > 0 and ln.probability <= MOST_MARKED else DROP
