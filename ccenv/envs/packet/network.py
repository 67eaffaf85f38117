"""``ccenv/PacketNetwork-v0``: control the delay elements of a packet network."""

from __future__ import annotations

from typing import Any

from ccenv.envs.common.adapters import TaskEnv, TaskVectorEnv
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketNetworkTask

DEFAULTS: dict[str, Any] = {
    "scenario": "jittered",
    "signals": "network",
    "clock": {"every": "rtt", "common": True},
    "reward": {"utilisation": -1.0, "queue": 0.1, "lost_share": 1.0},
}


class PacketNetworkEnv(TaskEnv):
    """Control a packet network: delay packets within the law so that it hurts the senders most.

    ## Description
    The mirror of ``ccenv/Packet-v0``. No flow is controlled; the agent controls every delay element whose ``adversary``
    is ``external``. It holds a packet for at most D (``jitter.max_ms``) and never reorders, so that any action is legal, and with
    ``render_mode`` the episode is a trace that ``ccenv.network.laws`` checks with the slack of whole packets. A step is
    one propagation RTT of the first flow (``clock``).

    ## Observation Space
    `Box`, float32: for each flow, in their order, the named ``signals`` of the step (docs/interface.md has the table), by
    default the set ``network``:

    | index | name | unit | range |
    | --- | --- | --- | --- |
    | 0 | mean RTT / smallest RTT - 1 | 1 | 0 to 16 |
    | 1 | lost / (lost + acknowledged bytes) | 1 | 0 to 1 |
    | 2 | log2(cwnd / (largest throughput * smallest RTT)) | log2 | -8 to 8 |
    | 3 | log2(pacing rate / largest throughput) | log2 | -8 to 8 |
    | 4 | sent / acknowledged bytes - 1 | 1 | -1 to 7 |
    | 5 | queue / (link rate * Rm) | BDP | 0 to 64 |
    | 6 | buffer / (link rate * Rm) | BDP | 0 to 64 |
    | 7 | bytes in flight / (link rate * Rm) | BDP | 0 to 64 |
    | 8 | log2(throughput / fair share), smoothed | log2 | -8 to 8 |

    ## Action Space
    `Box(0, 1, (n,), float32)` for n delay elements: the share of held packets to release, every 10 ms until the next step
    (the service move of ``ccenv/Network-v0``). 1 releases everything at once, 0 holds every packet for D. Values outside are
    clipped. With ``link_rate_min_share`` one more number, the last: the link's rate from now on, from that share of the drawn
    rate (0) to the drawn rate (1). With ``n_actions``: `Discrete(n_actions)` (`MultiDiscrete` for several numbers), evenly spaced
    over the box.

    ## Rewards
    The weighted sum of named terms (``reward``) of the step, the mean over all flows; by default minus utilisation plus a tenth
    of the queue plus loss.

    ## Starting State
    An idle network. Seeds as in ``ccenv/Packet-v0``.

    ## Episode End
    As in ``ccenv/Packet-v0``.

    ## Arguments
    The fields of ``ccenv.envs.packet.settings.PacketSettings``; ``action``, ``action_parameters``, ``inner`` and
    ``start_rate_share`` are of no use here. ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (interface version 1).
    """

    env_id = "ccenv/PacketNetwork-v0"
    read_settings = staticmethod(read_packet_settings)
    make_task = staticmethod(PacketNetworkTask)
    defaults = DEFAULTS


class PacketNetworkVectorEnv(TaskVectorEnv):
    """A batch of ``PacketNetworkEnv``; see there."""

    single = PacketNetworkEnv
