"""Whether and how far to lengthen RTTs artificially, by the guideline of [Delta] s.5.2, from runs of the packet engine.

Added delay suits a flow that alone does the same at any delay of a range, and that in company does not. The smallest lambda that
no path exceeds equalises the delays of all; one step further up only costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ccenv.base.errors import InputError
from ccenv.base.registry import number
from ccenv.network.metrics.measures import delta_sensitivity
from ccenv.simulation.run import simulate

SMALL_DELTA = 0.2  # of a flow alone: a factor of 2^0.2 = 1.15 between its best and worst delay
ROUND_S = 0.01  # lambda is a multiple of it


@dataclass(frozen=True)
class Advice:
    """What :func:`advise_lambda` found."""

    lambda_s: float  # target of `lambda_proxy`; 0: add none
    alone: float  # delta of the throughput of one flow over the paths and lambda
    contested: float  # delta of one of two flows over all pairs of paths
    held: float  # the same with both behind `lambda_proxy`; not a number where it was not run
    reason: str  # in words


def advise_lambda(
    paths_s: Sequence[float],
    sender: str = "bbr1",
    *,
    rate_mbps: float = 50.0,
    size_bytes: float = math.inf,
    duration_s: float = 60.0,
) -> Advice:
    """Return how much propagation delay flows of a sender should feign.

    Args:
        paths_s: propagation RTTs of the paths whose flows meet, two or more in (0, 10].
        sender: spec of the sender of all of them.
        rate_mbps: of the bottleneck, whose buffer is a BDP of 200 ms.
        size_bytes: what a flow alone has to send; infinite: a download without end.
        duration_s: of a run; a download is measured in its second half.

    Raises:
        InputError: for fewer than two different paths, a number out of range, or a size that a flow alone does not get done.

    Reference: [Delta] s.5.2; s.5.3: lambda is above the delays that occur.
    """
    paths = sorted({number("advise_lambda", "paths_s", path_s, above=0, high=10) for path_s in paths_s})
    if len(paths) < 2:
        raise InputError("advise_lambda: two different propagation RTTs are needed; with one there is nothing to equalise")
    number("advise_lambda", "size_bytes", size_bytes if math.isfinite(size_bytes) else 1.0, above=0)
    target_s = math.ceil(round(paths[-1] / ROUND_S, 6)) * ROUND_S
    link = {"rate_mbps": rate_mbps, "buffer_bytes": 0.2 * rate_mbps * 1e6 / 8}

    def rates(spec: str, rtts_s: Sequence[float]) -> list[float]:
        flows = [{"sender": spec, "rtt_s": rtt_s} for rtt_s in rtts_s]
        run = simulate({"duration_s": duration_s, "warmup_s": duration_s / 2, "links": [link], "flows": flows})
        return [float(flow["throughput_mbps"]) for flow in run.summary()["flows"]]

    def once(rtt_s: float) -> float:
        if math.isinf(size_bytes):
            return rates(sender, [rtt_s])[0]
        flow = {"sender": sender, "rtt_s": rtt_s, "workload": {"kind": "finite", "size_bytes": size_bytes}}
        done_s = simulate({"duration_s": duration_s, "links": [link], "flows": [flow]}).finished_s[0]
        if not 0 < done_s <= duration_s:
            raise InputError(f"advise_lambda: {size_bytes:g} bytes alone at {rtt_s:g} s do not end in {duration_s:g} s")
        return float(size_bytes / done_s)

    alone = delta_sensitivity([once(rtt_s) for rtt_s in (*paths, target_s)])
    contested = delta_sensitivity([rates(sender, pair)[0] for pair in product(paths, repeat=2)])
    if alone > SMALL_DELTA:
        return Advice(0.0, alone, contested, math.nan, "alone the flow suffers from the delay: add none")
    proxy = f"lambda_proxy:target_s={target_s:g},inner={sender}"
    held = delta_sensitivity([rates(proxy, pair)[0] for pair in product(paths, repeat=2)])
    if held >= contested:
        return Advice(0.0, alone, contested, held, "in company the delay does not help: add none")
    return Advice(target_s, alone, contested, held, "alone the delay costs nothing, in company it equalises")
