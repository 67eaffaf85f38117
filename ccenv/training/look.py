"""What an evaluation during training shows besides its score: each network by itself, what an attack finds, a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.learned.weights import LearnedPlayer
from ccenv.agents.sender import ContractSender, PolicySender
from ccenv.attacks.run import attack
from ccenv.base.errors import CcenvError, InputError
from ccenv.envs.common.adapters import draw
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.network.adversary import MlpAdversary
from ccenv.training.config import TrainConfig
from ccenv.training.evaluation import Evaluation, cold_task, evaluate_in_world, kind_boxes
from ccenv.training.path_sets import PathSet, path_seed

SCENE = "deep"  # one that training may use: worst cases are published on others
SEARCHES = ("corners", "cem")
ATTACK_RTTS = 60  # warm-up and window
FRAMES, FRAMES_PER_SECOND = 16, 4


@dataclass(frozen=True)
class Look:
    """What there is to see at one step; empty where nothing was evaluated.

    Attributes:
        values: name -> number; names are grouped by slashes.
        video: an episode as a GIF, or None.
    """

    values: dict[str, float] = field(default_factory=dict)
    video: bytes | None = None


NOTHING = Look()


def check_look(config: TrainConfig) -> None:
    """Check that the networks of the logs can play in the config's world, before a run writes anything.

    Raises:
        InputError: for a network that cannot, such as one for a single flow where there are two; for a video of packets that no
            trace can show.
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


def look_at(config: TrainConfig, player: LearnedPlayer, evaluation: Evaluation) -> Look:
    """Return what the config's logs ask for about a player.

    Args:
        config: of the run; ``log`` says what is wanted.
        player: as it is now.
        evaluation: its score on the paths for selection.

    Returns:
        Look: ``evaluation/...`` (means over paths); ``network/NAME/...`` (the same paths against one network each);
        ``exploitability/worst_utilisation`` (lowest that the searches of ``ccenv attack`` found on scene ``deep`` of CCAC, legal
        by the checker) and ``exploitability/gap`` (that below the utilisation against ``kind``).
    """
    values = _numbers("evaluation", evaluation)
    if not isinstance(player, MlpAdversary):
        for name in config.log.networks:
            network, n_paths = make_adversary(name), config.evaluation.n_paths_during
            found = evaluate_in_world(config.environment, player, n_paths, path_set=PathSet.SELECT, adversary=network)
            values |= _numbers(f"network/{name}", found)
        if config.log.exploitability_flow_steps:
            values |= _exploited(config, player)
    return Look(values, _video(config, player) if config.log.video else None)


def _numbers(group: str, evaluation: Evaluation) -> dict[str, float]:
    names = ("score", "score_p5", "utilisation", "queue_bdp", "loss", "delay_rtts") + (
        ("jain",) if evaluation.n_flows > 1 else ()
    )
    return {f"{group}/{name}": float(getattr(evaluation, name)) for name in names}


def _exploited(config: TrainConfig, player: PolicySender | ContractSender) -> dict[str, float]:
    result = attack(
        player,
        path=SCENE,
        adversaries=("kind", *SEARCHES),
        budget_flow_steps=config.log.exploitability_flow_steps,
        seed=config.seed,
        steps_per_rtt=config.environment.steps_per_rtt,
        warmup_rtts=ATTACK_RTTS,
        window_rtts=ATTACK_RTTS,
    )
    found = {name: finding.worst_utilisation for name, finding in result.by_adversary.items()}
    kind = found.pop("kind")
    worst = min(kind, *found.values())
    return {"exploitability/worst_utilisation": worst, "exploitability/gap": kind - worst}


def _check_picture(config: TrainConfig) -> None:
    """Raise InputError unless the episode of the videos can be drawn."""
    settings = config.packet_settings()
    core = SharedPacketTask(1, settings, True, kind_boxes(settings, 1)).core
    core.reset(seed=path_seed(PathSet.SELECT, config.seed))
    try:
        core.trace(0)
    except CcenvError as error:
        raise InputError(f"log.video: {error}") from None


def _video(config: TrainConfig, player: LearnedPlayer) -> bytes:
    """Return one episode of the config's world, the same in every video of a run, as the pictures of ``rgb_array``."""
    if config.packet is not None and not isinstance(player, MlpAdversary):
        return _gif(_packet_frames(config, player))
    world = config.environment
    senders = world.build_senders()
    if not isinstance(player, MlpAdversary):
        senders[world.senders.index(EXTERNAL)] = player
        adversary = world.build_adversary()
    else:
        adversary = player
    core = Core(1, world, senders=senders, adversary=adversary, groups=np.ones((1, len(senders)), np.bool_), record=True)
    core.reset(seed=path_seed(PathSet.SELECT, config.seed))
    last = core.episode_steps - 1  # one more would start the next episode
    return _gif(_frames(core, last, core.advance))


def _packet_frames(config: TrainConfig, player: PolicySender | ContractSender) -> Iterator[np.ndarray]:
    task, batch = cold_task(config.packet_settings(), player, 1, record=True)
    task.core.reset(seed=path_seed(PathSet.SELECT, config.seed))
    return _frames(task.core, task.core.episode_steps, lambda: task.step(batch.actions(task.observe())[:, None]))


def _frames(core: Core | PacketCore, last: int, step_on: Callable[[], object]) -> Iterator[np.ndarray]:
    """Draw an episode of at most so many steps, as it is after some of them."""
    shown = {max(1, round(last * frame / FRAMES)) for frame in range(1, FRAMES + 1)}
    for step in range(1, last + 1):
        step_on()
        over = bool(core.truncated()[0])
        if step in shown or over:
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
