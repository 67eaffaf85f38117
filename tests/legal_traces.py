"""Legal traces by the plainest means: the step of the network models as a scalar loop, for tests of what reads traces.

It shares no code with the engine or the checker. Random players, one flow or several, every model and option.
"""

import math
import random

import numpy as np

from ccenv.network.path import Path, make_grid
from ccenv.network.trace import Trace, TraceHeader

MODEL_NAMES = ("ideal", "cbr_delay", "ccac", "strong")
LINK_RATE_Bps = 1e6
RTT_S = 0.04


def random_path(model: str, rng: random.Random, *, n_flows: int, red: bool, loss_budget: float, buffer_bdp: float) -> Path:
    """Draw a path whose delays are whole numbers of steps for K = 1 and above."""
    bdp_bytes = LINK_RATE_Bps * RTT_S
    common_jitter = rng.choice([0, 1, 2]) if model != "ccac" else rng.choice([1, 2])
    flows = []
    for i in range(n_flows):
        jitter = common_jitter if model == "ccac" else rng.choice([0, 1, 2])
        flows.append(
            {
                "rtt_s": RTT_S * (1 if i == 0 else rng.choice([1, 2])),
                "jitter_s": RTT_S * jitter,
                "loss_budget": loss_budget,
                "start_s": RTT_S * (0 if i == 0 else rng.choice([0, 1])),
            }
        )
    data: dict = {"link_rate_Bps": LINK_RATE_Bps, "buffer_bytes": buffer_bdp * bdp_bytes, "flows": flows}
    if model == "strong":
        data |= {"link_rate_min_Bps": 0.5 * LINK_RATE_Bps, "link_rate_max_Bps": 1.5 * LINK_RATE_Bps}
    elif rng.random() < 0.5:
        data["rate_changes"] = [{"time_s": 10 * RTT_S, "link_rate_Bps": 0.6 * LINK_RATE_Bps}]
    if red:
        data["red"] = {"min_bytes": 0.2 * bdp_bytes, "max_bytes": 0.8 * bdp_bytes, "weight": 0.3, "max_probability": 0.2}
    return Path.from_dict(data)


def legal_trace(
    model: str,
    seed: int,
    *,
    n_flows: int = 1,
    steps_per_rtt: int = 4,
    n_steps: int = 100,
    buffer_bdp: float = 1.0,
    red: bool = False,
    loss_budget: float = 0.0,
    load: float = 1.2,
) -> Trace:
    """Play random senders and a random network by the rules of one model.

    Args:
        model: which model.
        seed: of everything random.
        n_flows: number of flows.
        steps_per_rtt: K.
        n_steps: T.
        buffer_bdp: buffer in units of C * Rm.
        red: RED in front of drop-tail.
        loss_budget: of every flow.
        load: mean of the flows' total rate over C.
    """
    rng = random.Random(seed)
    path = random_path(model, rng, n_flows=n_flows, red=red, loss_budget=loss_budget, buffer_bdp=buffer_bdp)
    grid = make_grid(path, steps_per_rtt)
    flows = range(n_flows)
    hoards = model == "ccac"
    delays = [d if model != "ideal" else 0 for d in grid.jitter_steps]
    D = max(delays)
    A, L, F, S = ([[0.0] * n_flows] for _ in range(4))
    rates = [[0.0] * n_flows]
    departed = [[0.0] * n_flows]
    G, C = [0.0], [path.link_rate_Bps]
    wish = [0.0] * n_flows
    red_average = 0.0
    changes = [(change.time_s, change.link_rate_Bps) for change in path.rate_changes]

    for k in range(1, n_steps + 1):
        E_before = [A[-1][i] - L[-1][i] for i in flows]
        if (k - 1) % steps_per_rtt == 0:
            wish = [rng.choice([0.0, 0.5, 1.0, 2.0]) * load * path.link_rate_Bps / n_flows for _ in flows]
        # Send; loss without congestion; RED.
        active = [(k - 1) * grid.dt_s >= path.flows[i].start_s - 1e-9 for i in flows]
        sent = [wish[i] * grid.dt_s if active[i] else 0.0 for i in flows]
        A.append([A[-1][i] + sent[i] for i in flows])
        rates.append([sent[i] / grid.dt_s for i in flows])
        free = [rng.choice([0.0, rng.random(), 1.0]) * min(sent[i], max(0.0, loss_budget * A[-1][i] - F[-1][i])) for i in flows]
        F.append([F[-1][i] + free[i] for i in flows])
        reached = [sent[i] - free[i] for i in flows]
        dropped = 0.0
        if path.red is not None:
            queue = max(0.0, sum(E_before) - G[-1])
            red_average = (1 - path.red.weight) * red_average + path.red.weight * queue
            share = path.red.max_probability * (red_average - path.red.min_bytes) / (path.red.max_bytes - path.red.min_bytes)
            share = 1.0 if red_average > path.red.max_bytes else min(1.0, max(0.0, share))
            dropped = share * sum(reached)
        X = sum(E_before) + sum(reached) - dropped
        # Expiry.
        if hoards and k > D > 0 and G[k - D] > X:
            late = G[k - D] - X
            for j in range(k - D, k):
                G[j] -= late
        # Link rate and tokens.
        rate = path.link_rate_Bps
        for time_s, new_rate in changes:
            if (k - 1) * grid.dt_s >= time_s - 1e-9:
                rate = new_rate
        if model == "strong":
            rate = rng.uniform(path.link_rate_min_Bps, path.link_rate_max_Bps)
        C.append(rate)
        tokens = G[-1] + rate * grid.dt_s
        excess = max(0.0, tokens - X)
        wasted = excess if not hoards or D == 0 else rng.choice([0.0, rng.random(), 1.0]) * excess
        tokens -= wasted
        for j in range(max(0, k - D), k):
            G[j] = min(G[j], tokens)
        G.append(tokens)
        # Drop-tail.
        congestive = dropped + max(0.0, X - tokens - path.buffer_bytes)
        lost = [free[i] + (congestive * reached[i] / sum(reached) if congestive > 0 else 0.0) for i in flows]
        L.append([L[-1][i] + lost[i] for i in flows])
        # Departures and service.
        E = [[A[j][i] - L[j][i] for i in flows] for j in range(k + 1)]
        left = min(tokens, sum(E[k]))
        if hoards:
            low = max(sum(S[-1]), G[k - D] if k >= D else 0.0)
            left = low + rng.choice([0.0, rng.random(), 1.0]) * (left - low)
        departed.append([max(old, new) for old, new in zip(departed[-1], split(E, left), strict=True)])
        if hoards:
            S.append(departed[-1])
        else:
            served = []
            for i in flows:
                low = max(S[-1][i], departed[k - delays[i]][i] if k >= delays[i] else 0.0)
                served.append(low + rng.choice([0.0, rng.random(), 1.0]) * (departed[-1][i] - low))
            S.append(served)

    C[0], rates[0] = C[1], rates[1]
    header = TraceHeader(
        path=path,
        model=model,
        steps_per_rtt=steps_per_rtt,
        dt_s=grid.dt_s,
        senders=("random",) * n_flows,
        adversary="random",
        seed=seed,
        notes="tests",
    )
    unlimited = np.full((n_steps + 1, n_flows), math.inf)
    return Trace(
        header=header,
        A=np.array(A),
        L=np.array(L),
        L_free=np.array(F),
        S=np.array(S),
        G=np.array(G),
        link_rate_Bps=np.array(C),
        rate_Bps=np.array(rates),
        cwnd_bytes=unlimited,
        beliefs={"C_L": np.full((n_steps + 1, n_flows), 0.5 * LINK_RATE_Bps), "C_U": unlimited},
    )


def split(E: list[list[float]], total: float) -> list[float]:
    """Return each flow's part of the first ``total`` bytes that entered, in order of arrival."""
    for j in range(1, len(E)):
        if sum(E[j]) >= total:
            before, after = sum(E[j - 1]), sum(E[j])
            share = 1.0 if after <= before else (total - before) / (after - before)
            return [e0 + max(0.0, share) * (e1 - e0) for e0, e1 in zip(E[j - 1], E[j], strict=True)]
    return E[-1]
