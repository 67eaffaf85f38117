"""``ccenv/Packet-v0``: control flows per packet, signals, actions and rewards from ``ccenv.agents.interface``."""

from __future__ import annotations

from ccenv.envs.common.adapters import TaskEnv, TaskVectorEnv
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketTask, SharedPacketTask


class PacketEnv(TaskEnv):
    """Control how one or more flows send in a compiled packet-level simulation.

    ## Description
    An event-driven simulation of segments, queues and receivers (docs/simulation.md). Each episode draws a network from a
    scenario distribution: a scenario of ``ccenv sim`` in which numbers may be ranges. Flows whose ``sender`` is ``external``
    are controlled; the others run any sender that runs per packet. A flow decides from its start on, at its own times
    (``clock``): by default once per smoothed RTT. A step lasts until a controlled flow must decide; with several of them,
    those whose time has not come keep what they do, see the same as before, and their actions are not read:
    ``info["decides"]`` says whose actions the next step reads. With ``clock={"common": True}`` all decide at once, at the times
    of the first one.

    ## Observation Space
    `Box`, float32: for each controlled flow, in the order of the flows, for each of the last ``history`` intervals, the oldest
    first, the named ``signals`` (docs/interface.md has the table), each clipped to its range. Before its first interval a flow
    has seen an idle one. The default, ``signals="aurora"``:

    | index | name | unit | range |
    | --- | --- | --- | --- |
    | 0, 3, ... 27 | latency gradient, least-squares slope of the RTT samples | s/s | -2 to 2 |
    | 1, 4, ... 28 | latency ratio, mean RTT / smallest mean RTT of any interval | 1 | 1 to 16 |
    | 2, 5, ... 29 | send ratio, sent / acknowledged bytes | 1 | 0 to 8 |

    ## Action Space
    `Box(-1, 1, (n,), float32)` for n controlled flows: what the named ``action`` makes of it (docs/interface.md has the table).
    Values outside the box are clipped into it. With ``n_actions``: `Discrete(n_actions)` (`MultiDiscrete` for several flows),
    evenly spaced over the box. A flow begins with ten segments per Rm, or with ``start_rate_share``. Inside a ``shield`` the
    action is the position u = (a + 1) / 2 in the interval of rates that it allows.

    ## Rewards
    The weighted sum of named terms (``reward``) of the interval that ended, 0 for a flow's first decision; with several flows the
    mean over all controlled ones, of which those that did not decide count 0, so that the sum over an episode is the mean of the
    flows' sums. ``info["rewards"]`` has them by flow.

    ## Starting State
    An idle network, run to the first decision of a controlled flow. Seeds: everything is keyed by (seed, environment, episode);
    ``reset(seed=s)`` starts at episode 0 of s.

    ## Episode End
    Truncated after ``episode_decisions`` (400) steps, at the scenario's ``duration_s`` of simulated time, or when no controlled
    flow can decide any more (stopped, or its transfer done); never terminated. The info of the last step holds the mean of each
    reward term over all decisions.

    ## Arguments
    The fields of ``ccenv.envs.packet.settings.PacketSettings``: ``scenario``, ``signals``, ``history``, ``action``,
    ``action_parameters``, ``inner``, ``n_actions``, ``shield``, ``clock``, ``reward``, ``start_rate_share``,
    ``episode_decisions``, ``staggered``, ``raw``, ``threads``; ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (interface version 1).
    """

    env_id = "ccenv/Packet-v0"
    read_settings = staticmethod(read_packet_settings)
    make_task = staticmethod(PacketTask)
    make_shared = staticmethod(SharedPacketTask)


class PacketVectorEnv(TaskVectorEnv):
    """A batch of ``PacketEnv``; see there."""

    single = PacketEnv
