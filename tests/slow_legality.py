"""The laws once more, as scalar loops over exact rationals: the reference that holds ``ccenv.network.laws`` in place."""

from fractions import Fraction as Q

from ccenv.network.path import GRID_TOLERANCE
from ccenv.network.trace import Trace


def is_legal(trace: Trace, tolerance: float = 1e-9) -> bool:
    """Tell whether a trace with an empty history and a bulk workload is legal."""
    path, model = trace.header.path, trace.header.model
    dt = Q(trace.header.dt_s)
    flows, steps = range(trace.n_flows), range(1, trace.n_steps + 1)
    A, L, F, S = ([[Q(float(x)) for x in row] for row in curve] for curve in (trace.A, trace.L, trace.L_free, trace.S))
    G, C = ([Q(float(x)) for x in curve] for curve in (trace.G, trace.link_rate_Bps))
    E = [[a - lost for a, lost in zip(A[k], L[k], strict=True)] for k in range(trace.n_steps + 1)]
    beta = path.buffer_bytes

    eps, largest = [], Q(0)
    for k in range(trace.n_steps + 1):
        largest = max(largest, *(sum(abs(x) for x in curve[k]) for curve in (A, L, S)), abs(G[k]))
        stake = abs(G[k] - sum(E[k]))
        for i in flows:
            stake += abs(E[k][i] - S[k][i]) + (abs(A[k][i] - A[k - 1][i]) if k else 0)
        eps.append(Q(tolerance) * stake + (1024 + 2 * k) * Q(2) ** -52 * largest)

    if max(abs(x) for row in (A[0], L[0], F[0], S[0]) for x in row) > eps[0] or abs(G[0]) > eps[0]:
        return False
    queue_average = Q(0)
    for k in steps:
        small = eps[k]
        sent = [A[k][i] - A[k - 1][i] for i in flows]
        lost = [L[k][i] - L[k - 1][i] for i in flows]
        free = [F[k][i] - F[k - 1][i] for i in flows]
        congestive = [lost[i] - free[i] for i in flows]
        reached = [sent[i] - free[i] for i in flows]
        wasted = C[k] * dt - (G[k] - G[k - 1])
        for i in flows:
            if min(sent[i], lost[i], free[i], S[k][i] - S[k - 1][i], congestive[i], sent[i] - lost[i]) < -small:
                return False
            if trace.rate_Bps[k, i] < float("inf") and sent[i] > Q(float(trace.rate_Bps[k, i])) * dt + small:
                return False
            if F[k][i] > Q(path.flows[i].loss_budget) * A[k][i] + small or S[k][i] > E[k][i] + small:
                return False
            if k * dt <= Q(path.flows[i].start_s) + Q(GRID_TOLERANCE) * dt and sent[i] > small:
                return False
        if G[k] - G[k - 1] < -small or wasted < -small or sum(S[k]) > G[k] + small:
            return False
        if not _rate_is_legal(trace, k, tolerance):
            return False
        queue = sum(E[k]) - G[k]
        if wasted > small and queue > small:
            return False
        if model != "ccac" and queue < -small:
            return False
        if beta < float("inf") and queue > Q(beta) + small:
            return False
        # What the buffer must have lost.
        overflow = max(Q(0), sum(E[k - 1]) + sum(reached) - G[k] - Q(beta)) if beta < float("inf") else Q(0)
        least = most = overflow
        if path.red is not None:
            w = Q(path.red.weight)
            queue_average = (1 - w) * queue_average + w * max(Q(0), sum(E[k - 1]) - G[k - 1])
            least = max(overflow, _red_share(trace, queue_average - small) * sum(reached))
            most = max(overflow, _red_share(trace, queue_average + small) * sum(reached))
        if not least - small <= sum(congestive) <= most + small:
            return False
        for i in flows:
            part = reached[i] / sum(reached) if sum(reached) > 0 else Q(0)
            if abs(congestive[i] - part * sum(congestive)) > small:
                return False
    return _service_is_legal(trace, E, S, G, eps)


def _rate_is_legal(trace: Trace, k: int, tolerance: float) -> bool:
    path, dt_s = trace.header.path, trace.header.dt_s
    rate = float(trace.link_rate_Bps[k])
    low = high = path.link_rate_Bps
    for change in path.rate_changes:
        if round(change.time_s / dt_s) <= k - 1:
            low = high = change.link_rate_Bps
    if trace.header.model == "strong":
        low, high = path.link_rate_min_Bps or low, path.link_rate_max_Bps or high
    return low - tolerance * rate <= rate <= high + tolerance * rate


def _red_share(trace: Trace, average: Q) -> Q:
    red = trace.header.path.red
    if average > Q(red.max_bytes):
        return Q(1)
    share = Q(red.max_probability) * (average - Q(red.min_bytes)) / (Q(red.max_bytes) - Q(red.min_bytes))
    return min(Q(1), max(Q(0), share))


def _service_is_legal(trace: Trace, E: list, S: list, G: list, eps: list) -> bool:
    model, flows, jitter_steps = trace.header.model, range(trace.n_flows), trace.grid.jitter_steps
    departed: list[list[Q]] = []
    for k in range(trace.n_steps + 1):
        if model == "ccac":
            D = max(jitter_steps)
            if k >= D and sum(S[k]) < G[k - D] - eps[k]:
                return False
            place = first_bytes(E, sum(S[k]))
            if any(abs(S[k][i] - place[i]) > eps[k] for i in flows):
                return False
            continue
        departed.append(first_bytes(E, min(G[k], sum(E[k]))))
        for i in flows:
            D = 0 if model == "ideal" else jitter_steps[i]
            if S[k][i] > departed[k][i] + eps[k] or (k >= D and S[k][i] < departed[k - D][i] - eps[k]):
                return False
    return True


def first_bytes(E: list, total: Q) -> list[Q]:
    """Return each flow's part of the first ``total`` bytes that entered, in order of arrival."""
    for j in range(1, len(E)):
        before, after = sum(E[j - 1]), sum(E[j])
        if after >= total:
            share = max(Q(0), (total - before) / (after - before)) if after > before else Q(1)
            return [e0 + share * (e1 - e0) for e0, e1 in zip(E[j - 1], E[j], strict=True)]
    return E[-1]
