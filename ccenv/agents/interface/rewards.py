"""Reward terms, one number per flow and decision each. A reward is a weighted sum of terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.agents.interface.signals import MOST_OF_LINK
from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel


@dataclass(frozen=True)
class Term:
    """A term of a reward, with its formula over ``ccenv.agents.interface.signals`` and its source (empty: common knowledge)."""

    name: str
    unit: str
    formula: str
    source: str = ""


TERMS = (
    Term("throughput", "1", "own acknowledged bytes / bytes that the link could carry"),
    Term("utilisation", "1", "bytes of all flows that the link carried / that it could carry"),
    Term("delay", "1", "mean RTT / propagation RTT - 1"),
    Term("delay_log2", "log2", "log2(mean RTT / smallest RTT)"),
    Term("queue", "BDP", "bytes waiting at the bottleneck / (link rate * propagation RTT)"),
    Term("loss", "1", "lost / (lost + acknowledged bytes)"),
    Term("lost_share", "1", "lost bytes / bytes that the link could carry"),
    Term("power", "1", "throughput / (mean RTT / propagation RTT)", "[Orca] s.4.1"),
    Term("aurora", "1", "10 * throughput in segments/s - 1000 * mean RTT in s - 2000 * loss", "[Aurora] s.4.1"),
    Term("vivace", "1", "x^0.9 - 900 x max(slope, 0) - 11.35 x loss, x in Mbit/s", "[Vivace] s.4.1"),
    Term("orca", "1", "(throughput - 5 lost_share) / max(mean RTT / (1.25 smallest RTT), 1)", "[Orca] s.4.1"),
    Term("share_log2", "log2", "log2(own share / fair share), smoothed"),
    Term("below_share_log2", "log2", "min(log2(own share / fair share), 0), smoothed"),
    Term("off_share_log2", "log2", "|log2(mean share of the controlled flows / fair share)|, smoothed"),
    Term("team_share_log2", "log2", "min(log2(mean share of the controlled flows / fair share), 0), smoothed"),
    Term("jain", "1", "Jain's index of the smoothed shares of all flows"),
    Term("change", "1", "|action - the one before|"),
    # the same if other senders' flows are active, otherwise 0
    Term("beside", "1", "1 where other senders' flows are there, else 0"),
    Term("beside_utilisation", "1", "utilisation beside other senders, else 0"),
    Term("beside_delay_log2", "log2", "delay_log2 beside other senders, else 0"),
    Term("beside_loss", "1", "loss beside other senders, else 0"),
    Term("beside_below_share_log2", "log2", "below_share_log2 beside other senders, else 0"),
    Term("beside_team_share_log2", "log2", "team_share_log2 beside other senders, else 0"),
    Term("beside_off_share_log2", "log2", "off_share_log2 beside other senders, else 0"),
    # what ACK batches and many flows do not blur
    Term("standing_log2", "log2", "log2(smallest RTT of the interval / smallest RTT)"),
    Term("lost_log2", "log2", "log2(1 + lost bytes / bytes that the fair share of the link could carry)"),
    Term("beside_standing_log2", "log2", "standing_log2 beside other senders, else 0"),
    Term("beside_share_log2", "log2", "share_log2 beside other senders, else 0"),
    Term("share_log2_squared", "1", "min(share_log2^2, 4)"),
    Term("beside_share_log2_squared", "1", "share_log2_squared beside other senders, else 0"),
)
TERM_NUMBERS = {term.name: number for number, term in enumerate(TERMS)}
N_TERMS = len(TERMS)
_LEAST_SHARE = 2.0**-8
MOST_QUEUE_BDP = 1e4
"""Most that a queue counts as: in an outage the link's BDP is 0."""

# Rewards that configs may name.
REWARDS: dict[str, dict[str, float]] = {
    "default": {"throughput": 1.0, "queue": -0.1, "lost_share": -1.0},
    "aurora": {"aurora": 1.0},
    "vivace": {"vivace": 1.0},
    "orca": {"orca": 1.0},
    # Intra-CCA: utilisation - delay_log2 / 2 - 4 loss + (below_share_log2 + team_share_log2) / 4; against other senders:
    # 0.5 - off_share_log2 / 2 - (1 - utilisation) / 4 - loss.
    "fair": {
        **{"utilisation": 1.0, "delay_log2": -0.5, "loss": -4.0, "below_share_log2": 0.25, "team_share_log2": 0.25},
        **{"beside": 0.25, "beside_utilisation": -0.75, "beside_delay_log2": 0.5, "beside_loss": 3.0},
        **{"beside_below_share_log2": -0.25, "beside_team_share_log2": -0.25, "beside_off_share_log2": -0.5},
    },
    "company": {"utilisation": 1.0, "delay_log2": -0.5, "loss": -2.0, "below_share_log2": 0.25, "team_share_log2": 0.25},
}


def term(name: str) -> Term:
    """Return a term. Raises UnknownNameError with suggestions."""
    if name not in TERM_NUMBERS:
        raise unknown_name("reward term", name, TERM_NUMBERS)
    return TERMS[TERM_NUMBERS[name]]


@kernel(inline="always")
def _ratio(a, b, none):
    return a / b if b > 0.0 else none


@kernel(inline="always")
def _of_link(bytes_, m):
    """Return bytes of an interval over what the link could carry, at most MOST_OF_LINK; 0 where it carried nothing at all."""
    return min(MOST_OF_LINK, _ratio(bytes_, m.true_link_Bps * m.interval_s, 0.0))


@kernel
def fill_terms(m, action_before, out):
    """Write all terms of a struct of MEASURES to out, (N_TERMS,) float64; ``action_before`` preceded ``m.action``."""
    throughput = _of_link(m.acked_bytes, m)
    stretch = _ratio(m.rtt_mean_s, m.true_rtt_s, 1.0) if m.rtt_mean_s > 0.0 else 1.0
    own_stretch = _ratio(m.rtt_mean_s, m.min_rtt_s, 1.0)
    loss = _ratio(m.lost_bytes, m.lost_bytes + m.acked_bytes, 0.0)
    lost_share = _of_link(m.lost_bytes, m)
    sending_mbps = m.sent_bytes / m.interval_s * 8e-6
    share = np.log2(max(m.true_share, _LEAST_SHARE))
    team = np.log2(max(m.true_own_share_mean, _LEAST_SHARE))
    out[0] = throughput
    out[1] = _of_link(m.true_served_Bps * m.interval_s, m)
    out[2] = stretch - 1.0
    out[3] = np.log2(max(own_stretch, 1.0))
    out[4] = min(MOST_QUEUE_BDP, _ratio(m.true_queue_bytes, m.true_link_Bps * m.true_rtt_s, 0.0))
    out[5] = loss
    out[6] = lost_share
    out[7] = throughput / stretch
    out[8] = 10.0 * m.acked_bytes / m.interval_s / m.mss_bytes - 1000.0 * m.rtt_mean_s - 2000.0 * loss
    out[9] = sending_mbps**0.9 - 900.0 * sending_mbps * max(m.rtt_slope, 0.0) - 11.35 * sending_mbps * loss
    out[10] = (throughput - 5.0 * lost_share) / max(own_stretch / 1.25, 1.0)
    out[11] = share
    out[12] = min(share, 0.0)
    out[13] = abs(team)
    out[14] = min(team, 0.0)
    out[15] = m.true_jain
    out[16] = abs(m.action - action_before)
    beside = 1.0 if m.true_others > 0.0 else 0.0
    out[17] = beside
    out[18] = beside * out[1]
    out[19] = beside * out[3]
    out[20] = beside * out[5]
    out[21] = beside * out[12]
    out[22] = beside * out[14]
    out[23] = beside * out[13]
    out[24] = np.log2(max(_ratio(m.rtt_min_s, m.min_rtt_s, 1.0), 1.0))
    out[25] = np.log2(1.0 + max(m.true_flows, 1.0) * lost_share)
    out[26] = beside * out[24]
    out[27] = beside * share
    out[28] = min(share * share, 4.0)
    out[29] = beside * out[28]
