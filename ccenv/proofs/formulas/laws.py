"""The network laws on the sample grid, one function per law ([CCmatic] Listing 3, App. C; units C = Rm = 1).

Each function yields the formulas of one law. ``LAWS_OF`` lists the laws of each model, all of which the encoder asserts. Several
flows obey them together; ``BETWEEN_FLOWS`` holds the laws that divide bytes among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from ccenv.proofs.formulas.setting import LARGE_BUFFER_RTTS, LARGEST_ALPHA, SMALL_BUFFER
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, all_of, implies, negate, same_truth, smaller

Law = Callable[[View], Iterator[Formula]]


def segment_size(v: View) -> Iterator[Formula]:
    """0 < MSS < C*Rm/5."""
    yield v.alpha > 0
    yield v.alpha < LARGEST_ALPHA


def buffer_size(v: View) -> Iterator[Formula]:
    """The buffer of the setting."""
    if v.beta is None:
        return
    buffer = v.setting.buffer
    if buffer == "small":
        yield v.beta == SMALL_BUFFER
    elif buffer == "large":
        yield v.beta >= LARGE_BUFFER_RTTS * (1 + v.setting.jitter)
    elif buffer == "arbitrary":
        yield v.beta > 0
    else:
        yield v.beta == buffer


def origin(v: View) -> Iterator[Formula]:
    """Curves are measured from S(0) = 0."""
    yield v.S[0] == 0


def token_rate(v: View) -> Iterator[Formula]:
    """At most C tokens are admitted per unit of time (B.4)."""
    for t in v.setting.times[1:]:
        yield v.admitted(t) <= v.admitted(t - 1) + v.setting.step


def tokens_monotone(v: View) -> Iterator[Formula]:
    """Admitted tokens are not taken back (B.4, W grows at most at rate C)."""
    for t in v.setting.times[1:]:
        yield v.admitted(t) >= v.admitted(t - 1)


def service_monotone(v: View) -> Iterator[Formula]:
    """S does not decrease."""
    for t in v.setting.times[1:]:
        yield v.delivered(t) >= v.delivered(t - 1)


def service_within_tokens(v: View) -> Iterator[Formula]:
    """S(t) <= G(t) (B.1)."""
    for t in v.setting.times:
        yield v.delivered(t) <= v.admitted(t)


def service_within_arrivals(v: View) -> Iterator[Formula]:
    """S(t) <= A(t) - L(t) (B.2)."""
    for t in v.setting.times:
        yield v.delivered(t) <= v.enqueued(t)


def jitter_bound(v: View) -> Iterator[Formula]:
    """S(t) >= G(t - D) (B.3). Before the first sample the law is loosest if no token was wasted: G falls by C per Rm."""
    d, first = v.setting.jitter_steps, v.setting.times[0]
    for t in v.setting.times:
        yield v.delivered(t) >= (v.admitted(t - d) if t - d >= first else v.admitted(first) - v.setting.jitter)


def no_waste_while_queued(v: View) -> Iterator[Formula]:
    """Tokens are wasted only if all bytes have tokens: W(t) > W(t-1) => A - L <= G (B.5, B.6)."""
    for t in v.setting.times[1:]:
        yield implies(v.admitted(t) < v.admitted(t - 1) + v.setting.step, v.enqueued(t) <= v.admitted(t))


def waste_when_empty(v: View) -> Iterator[Formula]:
    """CBR: an empty queue keeps no credit, so tokens are wasted exactly when the queue would go negative ([CCmatic] s.3).

    In the known past E(t) stands for E(t-1) + sent: they differ only where bytes were lost, and there the queue was not empty.
    """
    first = v.setting.times[0]
    yield v.admitted(first) <= v.enqueued(first)
    for t in range(first + 1, 1):
        yield v.admitted(t) == smaller(v.admitted(t - 1) + v.setting.step, v.enqueued(t))
    for t in range(1, v.setting.samples):
        yield v.G[t] == smaller(v.G[t - 1] + v.setting.step, v.E[t - 1] + v.sent[t])


def drop_tail(v: View) -> Iterator[Formula]:
    """Bytes that exceed the buffer are lost, and only those: E(t) = min(E(t-1) + sent, G(t) + beta)."""
    if v.beta is None:
        for t in range(1, v.setting.samples):
            yield v.E[t] == v.E[t - 1] + v.sent[t]
        return
    for t in range(v.setting.times[0], 1):
        yield v.enqueued(t) <= v.admitted(t) + v.beta
    for k in v.setting.losses_before if v.setting.past_steps else (0,):
        yield implies(v.lost_in_past(k), v.enqueued(-k) == v.admitted(-k) + v.beta)
    for t in range(1, v.setting.samples):
        yield v.E[t] == smaller(v.E[t - 1] + v.sent[t], v.G[t] + v.beta)


def past_sending(v: View) -> Iterator[Formula]:
    """E does not decrease before the trace, and grows in the known past at most by what the setting allows.

    Bytes lost in a step were also sent in it, so a lossy step added less than that to the buffer.
    """
    setting = v.setting
    limit = setting.sent_before_at_most
    earlier = [v.E[0], *v.E_before]
    for k, (now, before) in enumerate(pairwise(earlier)):
        yield before <= now
        if limit is not None and (k < setting.past_steps or not setting.past_steps):
            most = limit[0] * setting.step + limit[1] * setting.step * v.alpha
            yield now - before <= most
            if setting.has_loss and k < setting.past_steps and k in setting.losses_before:
                yield implies(v.lost_in_past(k), now - before < most)
        if setting.past_start == "empty" and k >= setting.past_steps:
            yield before == now


def empty_start(v: View) -> Iterator[Formula]:
    """If the past starts empty, nothing was sent, served or lost by its first sample."""
    if v.setting.past_start == "empty":
        first = v.setting.times[0]
        yield v.delivered(first) == v.enqueued(first)
        yield v.admitted(first) == v.enqueued(first)


def delay_of_newest(v: View) -> Iterator[Formula]:
    """late[t][m]: the newest byte delivered by sample t was sent m or more steps before; unchanged while nothing is delivered.

    Where the setting bounds what was sent before the trace without a sample-by-sample past, the same link also ruled the past.
    Then the newest byte was delivered at sample 0 or -1 if bytes that were sent by -1 are still missing: S(-2) = S(0) would need
    G(-2) = G(-1) = S(0) by the jitter bound, so a whole step of wasted tokens, so an empty queue at -1. Hence S(0) < E(-1) and
    S(0) <= E(-1-m) make it late.
    """
    setting = v.setting
    first = setting.times[0]
    for t in setting.times:
        flags = v.newest_late(t)
        for m, flag in flags.items():
            if t == first:
                # The newest byte may be stale at the first sample, so only one direction is sure.
                if setting.past_start == "empty":
                    yield negate(flag)
                elif setting.delay_rule == "sound":
                    yield implies(flag, v.delivered(t) <= v.enqueued(t - m))
                if setting.sent_before_at_most is not None and not setting.past_steps:
                    yield implies(all_of([v.S[0] < v.enqueued(-1), v.S[0] <= v.enqueued(-1 - m)]), flag)
            elif m <= t or setting.delay_rule == "sound":
                served = v.delivered(t) > v.delivered(t - 1)
                yield implies(served, same_truth(flag, v.delivered(t) <= v.enqueued(t - m)))
                yield implies(negate(served), same_truth(flag, v.newest_late(t - 1)[m]))
            else:
                yield implies(v.S[t] == v.S[t - 1], same_truth(flag, v.late[t - 1][m]))
        yield from _longer_is_rarer(flags)
    if v.setting.delay_rule == "artefact":
        yield from _grows_by_one(v.late)
        yield from _within_buffer(v)


def delay_of_first(v: View) -> Iterator[Formula]:
    """first_late[t][m]: the first byte delivered in (t-1, t] was not yet sent m or more steps before t."""
    first = v.setting.times[0]
    for t in v.setting.times:
        flags = v.oldest_late(t)
        for m, flag in flags.items():
            if t > first:
                served = v.delivered(t) > v.delivered(t - 1)
                yield implies(served, same_truth(flag, v.delivered(t - 1) < v.enqueued(t - m)))
                yield implies(negate(served), same_truth(flag, v.oldest_late(t - 1)[m]))
            elif v.setting.past_start == "empty":
                yield negate(flag)
        yield from _longer_is_rarer(flags)


def _longer_is_rarer(flags: dict[int, Formula]) -> Iterator[Formula]:
    ordered = sorted(flags)
    for short, long in pairwise(ordered):
        yield implies(flags[long], flags[short])


def _grows_by_one(late: list[dict[int, Formula]]) -> Iterator[Formula]:
    """A delay below m is below m + 1 one step later; a delay below T, the longest distinguished one, stays below T."""
    for before, now in pairwise(late):
        for m in before:
            yield implies(negate(before[m]), negate(now[min(m + 1, max(now))]))


def _within_buffer(v: View) -> Iterator[Formula]:
    """No delay, stale and earlier ones included, exceeds that of a full buffer plus the jitter."""
    if v.beta is None:
        return
    for flags in v.late:
        for m, flag in flags.items():
            yield implies(flag, v.beta + v.setting.jitter_steps >= m)


def marks(v: View) -> Iterator[Formula]:
    """ECN: bytes that enter in a step are marked if the queue is above the threshold at its end, before any jitter."""
    for t in range(v.setting.samples if v.mark_above is not None else 0):
        yield same_truth(v.marked[t], v.queue(t) > v.mark_above)


ALWAYS: tuple[Law, ...] = (
    segment_size,
    buffer_size,
    origin,
    token_rate,
    tokens_monotone,
    service_monotone,
    service_within_tokens,
    service_within_arrivals,
    jitter_bound,
    drop_tail,
    past_sending,
    empty_start,
    delay_of_newest,
    delay_of_first,
    marks,
)

LAWS_OF: dict[str, tuple[Law, ...]] = {
    "ideal": (*ALWAYS, waste_when_empty),
    "cbr_delay": (*ALWAYS, waste_when_empty),
    "ccac": (*ALWAYS, no_waste_while_queued),
}


def own_bytes(v: View) -> Iterator[Formula]:
    """Each flow receives its own bytes and loses in a step at most what it sent in it; which flow loses is free."""
    for flow in v.flows:
        yield flow.S[0] == 0
        for t in range(v.setting.samples):
            yield flow.S[t] <= flow.E[t]
            if t > 0:
                yield flow.S[t] >= flow.S[t - 1]
                if v.setting.has_loss:
                    yield flow.lost[t] >= 0
                    yield flow.lost[t] <= flow.sent[t]
                else:
                    yield flow.E[t] == flow.E[t - 1] + flow.sent[t]


def first_in_first_out(v: View) -> Iterator[Formula]:
    """Bytes that entered by a sample are served before any that entered later, without multiplying variables.

    If S(t) > E(x), all bytes that entered by sample x are served; if S(t) <= E(x), no later byte is. Bytes that entered in
    one step leave in any order. This relaxes the continuous model, so proofs carry over to it.
    """
    for t in range(v.setting.samples):
        for x in range(t + 1):
            served = v.S[t] > v.E[x]
            yield implies(served, all_of(flow.S[t] >= flow.E[x] for flow in v.flows))
            yield implies(negate(served), all_of(flow.S[t] <= flow.E[x] for flow in v.flows))


def own_delays(v: View) -> Iterator[Formula]:
    """Each flow's bytes leave the queue in FIFO order and are then held at most D, independently of other flows' bytes.

    Bytes that entered in one step leave in any order, as in ``first_in_first_out``.
    """
    d = v.setting.jitter_steps
    for t in range(v.setting.samples):
        yield sum((flow.departed[t] for flow in v.flows[1:]), start=v.flows[0].departed[t]) == v.G[t]
        for x in range(-len(v.E_before), t + 1):
            left = v.G[t] > v.enqueued(x)
            yield implies(left, all_of(flow.departed[t] >= flow.enqueued(x) for flow in v.flows))
            yield implies(negate(left), all_of(flow.departed[t] <= flow.enqueued(x) for flow in v.flows))
        for flow in v.flows:
            yield flow.S[t] <= flow.departed[t]
            if t > 0:
                yield flow.departed[t] >= flow.departed[t - 1]
            if t >= d:
                yield flow.S[t] >= flow.departed[t - d]
    for flow in v.flows:
        yield from past_sending(flow)
        yield from delay_of_newest(flow)


BETWEEN_FLOWS: dict[bool, tuple[Law, ...]] = {False: (own_bytes, first_in_first_out), True: (own_bytes, own_delays)}
"""Laws of several flows, by whether each has a delay element of its own."""


def network(v: View) -> Iterator[tuple[str, Formula]]:
    """Yield (law name, formula) for every law of the setting's model that is not marked broken."""
    for law in (*LAWS_OF[v.setting.model], *(BETWEEN_FLOWS[v.setting.delays_flows_apart] if v.flows else ())):
        if law.__name__ not in v.setting.broken:
            for formula in law(v):
                yield law.__name__, all_of([formula])
