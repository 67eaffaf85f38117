"""``ccenv/Sender-v0``: control the sending rate of one or all flows."""

from __future__ import annotations

from functools import partial

from ccenv.envs.common.adapters import TaskEnv, TaskVectorEnv
from ccenv.envs.curve.interface import sender_task
from ccenv.envs.curve.settings import read_settings


class SenderEnv(TaskEnv):
    """Control how fast one or more flows send over a bottleneck whose network plays any legal move.

    ## Description
    A path has a link of rate C, a buffer beta, and per flow a propagation round trip Rm and a bound D on the jitter that the
    network may add. The network model (``models``) says what else the network may do; its moves come from ``adversary``. The
    agent sees only what its own history proves about the path, the belief bounds of [CCmatic] s.5, made scale-free. One step
    is one propagation round trip. Each episode draws a new path and new moves of the network.

    ## Observation Space
    `Box`, float32, ten elements for each controlled flow, in the order of the flows:

    | index | name | unit | range |
    | --- | --- | --- | --- |
    | 0 | log2(C_U / C_L); 8 before any upper bound | log2 | 0 to 8 |
    | 1 | qdel_L / Rm | 1 | 0 to 16 |
    | 2 | qdel_U / Rm | 1 | 0 to 16 |
    | 3 | found lost / sent bytes | 1 | 0 to 1 |
    | 4 | log2(rate / C_L) | log2 | -8 to 8 |
    | 5 | log2(1 + 4 MSS / (C_L Rm)) | log2 | 0 to 4 |
    | 6 | log2(C_L_lambda / C_L); a fact on ideal and cbr_delay | log2 | -8 to 8 |
    | 7 | q_U / (C_L Rm); a fact on ideal and cbr_delay | 1 | 0 to 16 |
    | 8 | newest judged step was utilised | 0 or 1 | 0 to 1 |
    | 9 | bytes in flight / (C_L Rm) | 1 | 0 to 32 |

    All elements are clipped to their range. C_L and C_U bound the link rate, qdel_L and qdel_U the queueing delay, q_U the
    queue; C_L_lambda is a lower bound from what was sent without delay or loss.

    ## Action Space
    `Box(-1, 1, (n,), float32)` for n controlled flows: log2(rate / C_L) = 3a, so a = 0 sends at the proven link rate and
    a = 1 at eight times as much. The rate is at least MSS/Rm. Values outside the box are clipped into it.
    Inside a ``shield`` the action is the position u = (a + 1) / 2 in the interval of rates that the shield allows.
    With ``action="discrete"``: `Discrete(n_actions)` (`MultiDiscrete` for several flows), evenly spaced over the box.

    ## Rewards
    The weighted sum of named terms (``reward``), by default utilisation - 0.1*queue - loss, where utilisation is bytes
    delivered / bytes that the link could carry, queue is bytes waiting / (C*Rm), loss is bytes lost / bytes that the link
    could carry. ``delay`` and ``jain`` have weight 0; ``jain`` compares the bytes delivered to all flows of the path, also those
    that are not controlled. With several controlled flows it is their common reward.

    ## Starting State
    An idle path. Half of the episodes start at a C_L drawn from [MSS/Rm, C] (a flow that knows its path), the others at
    MSS/Rm. Seeds: everything is keyed by (seed, environment, episode); ``reset(seed=s)`` starts at episode 0 of s.

    ## Episode End
    Truncated after ``episode_rtts`` (64) round trips; never terminated. The info of the last step holds the episode's mean of
    each reward term.

    ## Arguments
    The fields of ``ccenv.envs.curve.settings.EnvSettings``: ``paths``, ``models``, ``senders`` (``"external"`` marks a controlled
    flow), ``adversary``, ``reward``, ``action``, ``n_actions``, ``shield``, ``steps_per_rtt``, ``decision_steps``,
    ``episode_rtts``, ``staggered``, ``loss_detection``, ``beliefs``, ``threads``; ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (observation version 1).
    """

    env_id = "ccenv/Sender-v0"
    read_settings = staticmethod(read_settings)
    make_task = staticmethod(sender_task)
    make_shared = partial(sender_task, shared=True)


class SenderVectorEnv(TaskVectorEnv):
    """A batch of ``SenderEnv``; see there."""

    single = SenderEnv
