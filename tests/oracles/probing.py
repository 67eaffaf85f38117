"""What a flow learns from probes of its window, from lists of all its decisions (``ccenv.agents.interface.actions``)."""

import itertools
import math
from collections.abc import Mapping

MASK = (1 << 64) - 1


def level_of(now_s: float, rtt_s: float) -> int:
    """Return the level that a decision draws, with Python's whole numbers."""
    x = (round(now_s * 1e6) * 0x9E3779B97F4A7C15 + round(rtt_s * 1e9)) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return 1 if x >> 63 else -1


class ReferenceProbes:
    """All that a flow was told at its decisions, and the levels that it drew."""

    def __init__(self) -> None:
        self.told: list[tuple[float, float, float]] = []  # smoothed RTT and window of each decision; the RTT, or 0 in an outage
        self.arrivals: list[Mapping[str, float]] = []  # all measures of each decision
        self.levels = [0]
        self.means: list[float] = []  # log2 over the smallest RTT then, of each interval with an RTT
        self.least: list[float] = []
        self.losses: list[float] = []
        self.rests: list[float] = []  # of the RTT's changes, log2
        self.risen: list[bool] = []  # whether each interval shows what ends a start

    def follow(self, m: Mapping[str, float]) -> dict[str, float]:
        """Return the measures that follow from all decisions, the one with the measures ``m`` the newest."""
        first = not self.told
        risen = m["rtt_samples"] > 0 and m["rtt_min_s"] > 1.25 * m["min_rtt_s"]
        self.risen.append(not first and (risen or m["lost_bytes"] > 0.1 * (m["lost_bytes"] + m["acked_bytes"])))
        self.arrivals.append(m)
        outage = self._outage()
        self.told.append((m["srtt_s"], m["cwnd_bytes"], 0.0 if outage > 0 else m["srtt_s"]))
        if not first and m["srtt_s"] > 0:
            least, mean = (m[name] / m["min_rtt_s"] if m["min_rtt_s"] > 0 else 0 for name in ("rtt_min_s", "rtt_mean_s"))
            self.least.append(math.log2(least) if least > 0 else 0.0)
            self.means.append(math.log2(mean) if mean > 0 else 0.0)
            gone = m["lost_bytes"] + m["acked_bytes"]
            self.losses.append(m["lost_bytes"] / gone if gone > 0 else 0.0)
        response, rough, persistent = self._response(), 0.0, 0.0
        self.levels.append(level_of(m["now_s"], m["rtt_last_s"]))
        for before, rest in itertools.pairwise([0.0, *self.rests]):
            rough = 0.93 * rough + 0.07 * abs(rest - before)
            persistent = 0.93 * persistent + 0.07 * rest * before / (rest**2 + before**2 + 1e-5)
        found = {"probe_change": float(self.levels[-1] - self.levels[-2]), "probe_response": response}
        found |= {"roughness": rough, "persistence": persistent}
        found["starting"] = 1.0 if True not in self.risen else 2.0 if True not in self.risen[:-1] else 0.0
        found["outage_cwnd_bytes"] = outage
        return found | {"floor_log2": self._floor(), "peak_log2": self._peak(), "loss_smoothed": self._loss()}

    def _outage(self) -> float:
        """Return the window at the first decision of the newest silence that is longer than the smoothed RTT there; 0: none."""
        lasting = self.arrivals[1:-1] if self.arrivals[-1]["acked_bytes"] > 0 else self.arrivals[1:]
        silence = [*itertools.takewhile(lambda m: m["acked_bytes"] == 0, reversed(lasting))][::-1]
        for end, m in enumerate(silence, 1):
            waited = [*itertools.takewhile(lambda m: m["inflight_bytes"] > 0, reversed(silence[:end]))]
            if 0 < m["srtt_s"] < sum(each["interval_s"] for each in waited) and 10 * m["mss_bytes"] <= m["cwnd_bytes"] < math.inf:
                return m["cwnd_bytes"]
        return 0.0

    def _response(self) -> float:
        """Return the response, and keep what it leaves of the newest change."""
        changes = [self.levels[i] - self.levels[i - 1] for i in range(1, len(self.told))]
        moved_rtt, moved_window, weight = 0.0, 0.0, 1.0
        for change, after, before in zip(changes[::-1], self.told[:0:-1], self.told[-2::-1], strict=True):
            if after[0] > 0 and before[2] > 0:
                windows = math.log2(after[1] / before[1]) if 0 < after[1] < math.inf and 0 < before[1] < math.inf else 0.0
                moved_window += weight * change * windows
                moved_rtt += weight * change * math.log2(after[0] / before[0])
                weight *= 0.9
        response = moved_rtt / (max(moved_window, 0.0) + 0.28)
        (rtt, window, _), (_, window_before, rtt_before) = self.told[-1], self.told[max(-2, -len(self.told))]
        if len(self.told) > 1 and rtt > 0 and rtt_before > 0:
            moved = math.log2(window / window_before) if 0 < window < math.inf and 0 < window_before < math.inf else 0.0
            self.rests.append(math.log2(rtt / rtt_before) - response * moved)
        return response

    def _floor(self) -> float:
        floor = self.least[0] if self.least else 0.0
        for least, mean in zip(self.least[1:], self.means[1:], strict=True):
            floor = min(least, 0.9 * floor + 0.1 * mean)
        return floor

    def _peak(self) -> float:
        peak = 0.0
        for mean in self.means:
            peak = max(mean, 0.95 * peak + 0.05 * mean)
        return peak

    def _loss(self) -> float:
        n = len(self.losses)
        return sum(0.05 * 0.95 ** (n - 1 - i) * loss for i, loss in enumerate(self.losses))


def pulled_window(
    a: float, starting: int, segments: float, srtt_s: float, acked: float, lost: float, pull: float, flooded: float, change: int
) -> float:
    """Return the segments that ``cwnd_exp2_pull`` sets without any throughput so far, by the rules of docs/interface.md."""
    if starting == 1:
        return min(2 * segments, max(segments, 160)) if acked > 0 else segments
    more = min(0.8, math.sqrt(pull / (segments / srtt_s))) if srtt_s > 0 else 0.0
    asked = (segments / 2 if starting == 2 else segments) * 2 ** (0.7 * a) * 2 ** (0.7 * more) * 2 ** (0.07 * change)
    if lost > 0 and (acked == 0 or lost / (lost + acked) > flooded):
        asked = min(asked, segments / 2)
    if acked == 0:
        asked = min(asked, segments)
    return max(min(asked, max(segments, 160)), 0.5)
