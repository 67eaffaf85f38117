"""Evaluations during training besides the score: scores against single networks, exploitability, a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.learned.weights import LearnedPlayer
from ccenv.agents.sender import PolicySender, ShieldSender
from ccenv.attacks.run import attack
from ccenv.base.errors import CcenvError, InputError
from ccenv.envs.common.adapters import draw
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.network.adversary import MlpAdversary
from ccenv.training.config import TrainConfig
from ccenv.training.evaluation import Evaluation, benign_boxes, cold_task, evaluate_in_world
from ccenv.training.path_sets import PathSet, path_seed

SCENE = "deep"  # an attack scenario that training may use; worst cases are published on others
SEARCHES = ("corners", "cem")
ATTACK_RTTS = 60  # warm-up and window
FRAMES, FRAMES_PER_SECOND = 16, 4


@dataclass(frozen=True)
class Look:
    """The evaluation at one step, numbers by names in groups (``group/name``), and an episode as a GIF, if there is one."""

    values: dict[str, float] = field(default_factory=dict)
    video: bytes | None = None


NOTHING = Look()


def check_look(config: TrainConfig) -> None:
    """Check that the networks of the logs fit the config's world, before a run writes anything.

    Raises InputError for one that does not, such as one for a single flow where there are two; for a video that no trace can
    show.
    """
    if config.packet is not None:
        if config.log.video:
            _check_picture(config)
        return
    world = config.environment
    senders = world.build_senders()
    for name in config.log.networks:
        try:
            Core(1, world, senders=senders, adversary=make_adversary(name), groups=np.ones((1, len(senders)), np.bool_))
        except CcenvError as error:
            raise InputError(f"log.networks: {name!r} cannot play in this world: {error}") from None


def look_at(config: TrainConfig, policy: LearnedPlayer, evaluation: Evaluation) -> Look:
    """Return what the config's logs ask for about a policy, given its evaluation on the paths for selection.

    The values are ``evaluation/...`` (means over paths); ``network/NAME/...`` (the same paths against one network each);
    ``exploitability/worst_utilisation`` (the lowest legal one that searches of ``ccenv attack`` found in the attack scenario
    ``deep`` of CCAC) and ``exploitability/gap`` (its distance from the utilisation against the benign network, ``kind``).
    """
    values = _score_values("evaluation", evaluation)
    if not isinstance(policy, MlpAdversary):
        for name in config.log.networks:
            network, n_paths = make_adversary(name), config.evaluation.n_paths_during
            against_network = evaluate_in_world(config.environment, policy, n_paths, path_set=PathSet.SELECT, adversary=network)
            values |= _score_values(f"network/{name}", against_network)
        if config.log.exploitability_flow_steps:
            values |= _measure_exploitability(config, policy)
    return Look(values, _draw_video(config, policy) if config.log.video else None)


def _score_values(group: str, evaluation: Evaluation) -> dict[str, float]:
    names = ("score", "score_p5", "utilisation", "queue_bdp", "loss", "delay_rtts") + (
        ("jain",) if evaluation.n_flows > 1 else ()
    )
    return {f"{group}/{name}": float(getattr(evaluation, name)) for name in names}


def _measure_exploitability(config: TrainConfig, policy: PolicySender | ShieldSender) -> dict[str, float]:
    result = attack(
        policy,
        path=SCENE,
        adversaries=("kind", *SEARCHES),
        budget_flow_steps=config.log.exploitability_flow_steps,
        seed=config.seed,
        steps_per_rtt=config.environment.steps_per_rtt,
        warmup_rtts=ATTACK_RTTS,
        window_rtts=ATTACK_RTTS,
    )
    utilisations = {name: finding.worst_utilisation for name, finding in result.by_adversary.items()}
    benign = utilisations.pop("kind")
    worst = min(benign, *utilisations.values())
    return {"exploitability/worst_utilisation": worst, "exploitability/gap": benign - worst}


def _check_picture(config: TrainConfig) -> None:
    """Raise InputError unless the episode of the videos can be drawn."""
    settings = config.packet_settings()
    core = SharedPacketTask(1, settings, True, benign_boxes(settings, 1)).core
    core.reset(seed=path_seed(PathSet.SELECT, config.seed))
    try:
        core.trace(0)
    except CcenvError as error:
        raise InputError(f"log.video: {error}") from None


def _draw_video(config: TrainConfig, policy: LearnedPlayer) -> bytes:
    """Return an episode of the config's world as a GIF; every video of a run shows the same one."""
    if config.packet is not None and not isinstance(policy, MlpAdversary):
        task, batch = cold_task(config.packet_settings(), policy, 1, record=True)
        task.core.reset(seed=path_seed(PathSet.SELECT, config.seed))
        return _gif(_frames(task.core, task.core.episode_steps, lambda: task.step(batch.actions(task.observe())[:, None])))
    world = config.environment
    senders = world.build_senders()
    if not isinstance(policy, MlpAdversary):
        senders[world.senders.index(EXTERNAL)] = policy
        adversary = world.build_adversary()
    else:
        adversary = policy
    core = Core(1, world, senders=senders, adversary=adversary, groups=np.ones((1, len(senders)), np.bool_), record=True)
    core.reset(seed=path_seed(PathSet.SELECT, config.seed))
    last = core.episode_steps - 1  # one more would start the next episode
    return _gif(_frames(core, last, core.advance))


def _frames(core: Core | PacketCore, last: int, advance: Callable[[], object]) -> Iterator[np.ndarray]:
    """Draw FRAMES states of an episode of at most ``last`` steps."""
    frame_steps = {max(1, round(last * frame / FRAMES)) for frame in range(1, FRAMES + 1)}
    for step in range(1, last + 1):
        advance()
        over = bool(core.truncated()[0])
        if step in frame_steps or over:
            yield draw(core, 0)
        if over:
            return


def _gif(frames: Iterator[np.ndarray]) -> bytes:
    import tempfile
    from pathlib import Path

    from matplotlib.animation import PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "episode.gif"
        writer: PillowWriter | None = None
        figure = Figure(dpi=100)
        FigureCanvasAgg(figure)
        for frame in frames:
            height, width, _ = frame.shape
            if writer is None:
                figure.set_size_inches(width / 100, height / 100)
                writer = PillowWriter(FRAMES_PER_SECOND)
                writer.setup(figure, file, dpi=100)
            figure.clear()
            figure.figimage(frame)
            writer.grab_frame()
        if writer is not None:
            writer.finish()
        return file.read_bytes()
