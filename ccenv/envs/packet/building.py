"""A batch of networks in the packet engine, and what draws their episodes."""

from __future__ import annotations

from collections.abc import Mapping

from ccenv.engine.compiled.python_calls import extras_of
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form
from ccenv.engine.packet.batch.policies import policy_deciders
from ccenv.engine.packet.batch.senders import SenderTable
from ccenv.engine.packet.monitor import Decider
from ccenv.envs.packet.episodes import EpisodeSource
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.base.errors import InputError
from ccenv.network.adversary import ScriptedAdversary
from ccenv.agents.python_sender import bridge_of
from ccenv.agents.sender import Sender
from ccenv.simulation.ranges import ScenarioDistribution


def build(
    num_envs: int,
    distribution: ScenarioDistribution,
    senders: Mapping[str, Sender],
    deciders: Mapping[int, Decider],
    adversaries: Mapping[str, ScriptedAdversary],
    start_rate_share: tuple[float, float] | None,
    threads: int,
    *,
    packet_log: int,
) -> tuple[EpisodeSource, PacketBatch]:
    """Return what draws episodes, and the networks in the engine.

    Args:
        num_envs: networks.
        distribution: scenarios.
        senders: by the name that flows give, all that the distribution may draw.
        deciders: by flow, who decides, at the caller's hand.
        adversaries: by name, those of jitter boxes.
        start_rate_share: as in ``PacketSettings``.
        threads: that share the networks.
        packet_log: rows of the packet log of each network; 0: none.

    Raises:
        InputError: for senders that batches cannot run, or that cannot be watched.
    """
    network = distribution.largest
    names = list(senders)
    for name, sender in senders.items():
        if bridge_of(sender) is not None or extras_of([sender]):
            raise InputError(f"sender {name!r} is plain Python: it runs in simulations, not in batches of environments")
    choices: dict[int, tuple[str, ...]] = {
        int(leaf.place[1]): leaf.choices for leaf in distribution.leaves if leaf.place[-1] == "sender"
    }
    policies = policy_deciders([senders[flow.sender] for flow in network.flows], network.flows)
    if both := sorted(set(policies) & set(deciders)):
        raise InputError(f"flow {both[0]}: a policy that sees more than beliefs cannot be watched as well")
    for flow, options in choices.items():
        if flow in policies or any(policy_deciders([senders[name]], network.flows[flow : flow + 1]) for name in options):
            raise InputError(f"flow {flow}: a policy that sees more than beliefs cannot be one of several senders")
    known: dict[str, Decider] = {network.flows[flow].sender: decider for flow, decider in policies.items()}
    known[EXTERNAL] = next(iter(deciders.values()))
    table = SenderTable(list(senders.values()), [known.get(name) for name in names])
    rows = {name: row for row, name in enumerate(names)}
    gridded = [
        index
        for index, flow in enumerate(network.flows)
        if any(table.rows["step_at"][rows[name]] for name in choices.get(index, (flow.sender,)))
    ]
    monitors = len({**policies, **deciders})
    source = EpisodeSource(distribution, rows, sorted(deciders), monitors, start_rate_share)
    form = Form(network, table, {**policies, **deciders}, adversaries, gridded, source.traces)
    words = needed_words(form, source.corners())
    return source, PacketBatch(form, num_envs, words, threads=threads, packet_log=packet_log)
