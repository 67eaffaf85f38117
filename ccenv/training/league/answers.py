"""The tasks of a round: the sender's answer, and per attack scenario the network's answer and the hold-outs.

A task gets its inputs by name, reads senders and networks from the league's folder and writes its part before it returns, so it
can run in any process. The sender's answer is PPO with rollouts in the kernel, with a share of the environments attacked by a
mixture of networks.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.learned import save_policy
from ccenv.attacks.catalog import make_search
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_bounded
from ccenv.base.foreign.tensors import TYPES, read_typed
from ccenv.base.random import uniform
from ccenv.envs.curve.distribution import DRAWN, PathSource, SomeGivenPaths
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import Adversary, MlpAdversary
from ccenv.network.path import Path
from ccenv.training.checkpoint import Stopwatch, unpack_torch
from ccenv.training.config import TrainConfig
from ccenv.training.league.config import LeagueConfig
from ccenv.training.league.games import MixedGame, draw_scenes, make_scene, play_payoffs
from ccenv.training.league.store import (
    START,
    HoldOutPart,
    LeagueFolder,
    NetworkPart,
    SenderPart,
    hold_out_part,
    network_part,
    round_name,
    sender_part,
)
from ccenv.training.learner import Learner

WEIGHTS = "weights.safetensors"
_MAX_BYTES = 64 << 20


def assign_environments(config: LeagueConfig, networks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the attacked environments among scenarios and networks, (N, M) probabilities, by largest remainders.

    Returned are the scenario (or DRAWN) and the network of each environment: two (B,) int64 arrays.
    """
    n_scenes = networks.shape[1]
    n = config.attacked_envs
    expected_counts = (networks / n_scenes).ravel() * n
    counts = np.floor(expected_counts + 1e-9).astype(np.int64)
    order = np.argsort(-(expected_counts - counts), kind="stable")
    counts[order[: n - counts.sum()]] += 1
    cells = np.repeat(np.arange(len(counts)), counts)
    scene = np.full(config.training.num_envs, DRAWN)
    network = np.zeros(config.training.num_envs, np.int64)
    scene[len(scene) - n :], network[len(scene) - n :] = cells % n_scenes, cells // n_scenes
    return scene, network


class AnswerLearner(Learner):
    """Train a sender against one adversary per environment on the paths of a source (None: the config's own).

    ``start`` are initial weights of actor and critic (None: random ones), with ``log_std`` of the actions.
    """

    def __init__(
        self,
        config: TrainConfig,
        adversaries: list[Adversary] | None = None,
        source: PathSource | None = None,
        start: dict[str, np.ndarray] | None = None,
        log_std: float = 0.0,
    ) -> None:
        self._adversaries = adversaries
        self._source = source
        super().__init__(config)
        if start is not None:
            unpack_torch(self._model.policy, {}, start | {"policy.log_std": np.full(1, log_std, np.float32)})
            self.state = self._pending = self._pack()

    def _make_task(self) -> SenderTask:
        return SenderTask(self.config.num_envs, self._settings, adversaries=self._adversaries, source=self._source)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Current weights of actor and critic, for :func:`save_weights`."""
        return {name: array for name, array in self.state.tensors.items() if name.startswith("policy.")}


def save_weights(folder: FilePath, weights: dict[str, np.ndarray]) -> None:
    """Write actor and critic, the initial weights of later answers."""
    require_extra("safetensors", "train")
    from safetensors.numpy import save

    write_atomic(folder / WEIGHTS, save({name: np.ascontiguousarray(array) for name, array in weights.items()}))


def load_weights(folder: FilePath) -> dict[str, np.ndarray]:
    """Read what :func:`save_weights` wrote. Raises InputError if the file is damaged or foreign."""
    file = folder / WEIGHTS
    weights = read_typed(read_bounded(file, _MAX_BYTES), str(file), TYPES, max_tensors=256, max_header_bytes=1 << 20)
    if not all(name.startswith("policy.") for name in weights):
        raise InputError(f"{file}: not the weights of a league's sender")
    return weights


TINY = 1e-6  # probability below which a sender or network is left out
_SENDER, _NETWORK, _HOLD_OUT = range(3)  # purposes of a round's random numbers


def _seed(config: LeagueConfig, round_: int, purpose: int, number: int) -> int:
    return int(uniform(config.seed, round_, purpose, number) * 2**31)


def train_first(folder: str, config: LeagueConfig) -> None:
    """Train the first policy, on nominal networks alone."""
    _train(LeagueFolder(FilePath(folder)), config, None, {}, None)


def train_answer(folder: str, config: LeagueConfig, round_: int, mixture: dict[str, list[Any]], start: str) -> None:
    """Train the sender's answer to a mixture of networks, beginning as the sender named ``start``.

    The mixture has ``specs``, the networks in each scenario (N lists of M specs), and ``weights``, (N, M) probabilities.
    """
    _train(LeagueFolder(FilePath(folder)), config, round_, mixture, start)


def _train(
    store: LeagueFolder, config: LeagueConfig, round_: int | None, mixture: dict[str, list[Any]], start: str | None
) -> None:
    clock = Stopwatch()
    clock.start()
    name = START if round_ is None else round_name(round_)
    if round_ is None or start is None:
        train = config.training_config(config.seed, config.start_steps)
        learner = AnswerLearner(train.model_copy(update={"name": f"{config.name}_{START}"}))
    else:
        train = config.training_config(_seed(config, round_, _SENDER, 0), config.round_steps)
        train = train.model_copy(update={"name": f"{config.name}_{name.replace('-', '_')}"})
        weights = np.array(mixture["weights"])
        scene, network = assign_environments(config, (1 - config.uniform) * weights + config.uniform / len(weights))
        adversaries = _make_adversaries(store, config, mixture["specs"], scene, network)
        source = SomeGivenPaths(config.nominal_distribution, config.steps_per_rtt, draw_scenes(config)[0], scene)
        first = load_weights(store.sender_folder(start))
        learner = AnswerLearner(train, adversaries, source, first, config.log_std)
    learner.run(lambda state, progress: False)
    target = store.sender_folder(name)
    target.mkdir(exist_ok=True)

    save_weights(target, learner.weights)
    notes = {"league": config.name, "round": round_, "begins_as": start, "config": train.model_dump(mode="json")}
    policy = learner.player()
    if isinstance(policy, MlpAdversary):
        raise TypeError("a league trains senders")
    save_policy(target, policy, notes)
    seconds, cpu_seconds = clock.read()
    store.finish(sender_part(round_), SenderPart(steps=train.total_steps, seconds=seconds, cpu_seconds=cpu_seconds))


def _make_adversaries(
    store: LeagueFolder, config: LeagueConfig, specs: list[list[str]], scene: np.ndarray, network: np.ndarray
) -> list[Adversary]:
    nominal = config.training_config(0, 1).environment.build_adversary()
    loaded: dict[str, Adversary] = {}
    adversaries = []
    for k, j in zip(scene.tolist(), network.tolist(), strict=True):
        spec = "" if k < 0 else specs[j][k]
        if spec and spec not in loaded:
            loaded[spec] = store.network(spec)
        adversaries.append(loaded[spec] if spec else nominal)
    return adversaries


def search_answer(
    folder: str, config: LeagueConfig, round_: int, scene: int, mixture: dict[str, float], population: list[str]
) -> None:
    """Search the worst network for a mixture of senders (names and probabilities) in a scenario.

    ``population`` are the networks already known in this scenario; the answer is at least as bad as each of them.
    """
    clock = Stopwatch()
    clock.start()
    store, path, name = LeagueFolder(FilePath(folder)), draw_scenes(config)[0][scene], network_part(round_, scene)
    findings: list[tuple[str, Adversary]] = []
    flow_steps = 0
    for place, spec in enumerate(config.searches):
        game = _make_mixed_game(store, config, mixture, path)
        search = make_search(spec, code=False)
        search.run(game, config.search_flow_steps, _seed(config, round_, _NETWORK, scene * len(config.searches) + place))
        flow_steps += game.flow_steps
        if game.worst is not None:
            findings.append((spec, game.worst))
    candidates = [*((spec, store.network(spec)) for spec in population), *findings]
    payoffs = _mean_payoffs(store, config, mixture, path, [network for _, network in candidates])
    worst = int(np.argmin(payoffs))
    of_searches = len(population) + np.argsort(payoffs[len(population) :], kind="stable")
    chosen = [worst, *(int(place) for place in of_searches if place != worst)][: config.answers]
    networks = []
    for number, place in enumerate(chosen):
        origin, network = candidates[place]
        about = {"sender": max(mixture, key=mixture.__getitem__), "search": origin, "payoff": float(payoffs[place])}
        saved = origin if place < len(population) else store.save_network(f"{name}-{number}", network, config, path, about)
        networks.append(saved)
    seconds, cpu_seconds = clock.read()
    part = NetworkPart(
        payoff=float(payoffs[worst]),
        networks=tuple(networks),
        search=None if worst < len(population) else candidates[worst][0],
        found={spec: float(payoffs[len(population) + place]) for place, (spec, _) in enumerate(findings)},
        flow_steps=flow_steps,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
    )
    store.finish(name, part)


def play_hold_outs(folder: str, config: LeagueConfig, round_: int, scene: int, mixture: dict[str, float]) -> None:
    """Measure a mixture of senders against adversaries that no sender was trained against, on a hold-out path."""
    clock = Stopwatch()
    clock.start()
    store, path = LeagueFolder(FilePath(folder)), draw_scenes(config)[1][scene]
    payoffs = {}
    for place, spec in enumerate(config.hold_outs):
        game = _make_mixed_game(store, config, mixture, path)
        search = make_search(spec, code=False)
        budget = config.hold_out_flow_steps if search.weight else 0
        result = search.run(game, budget, _seed(config, round_, _HOLD_OUT, scene * len(config.hold_outs) + place))
        adversary = game.worst or result.adversary
        if adversary is not None:
            payoffs[spec] = float(_mean_payoffs(store, config, mixture, path, [adversary])[0])
    seconds, cpu_seconds = clock.read()
    store.finish(hold_out_part(round_, scene), HoldOutPart(payoffs=payoffs, seconds=seconds, cpu_seconds=cpu_seconds))


def _make_mixed_game(store: LeagueFolder, config: LeagueConfig, mixture: dict[str, float], path: Path) -> MixedGame:
    order = sorted(mixture, key=lambda name: -mixture[name])[: config.search_senders]
    scenes = [make_scene(config, store.sender(name), path) for name in order]
    return MixedGame(scenes, [mixture[name] for name in order])


def _mean_payoffs(
    store: LeagueFolder, config: LeagueConfig, mixture: dict[str, float], path: Path, networks: list[Adversary]
) -> np.ndarray:
    """Return the payoffs of a mixture, all senders included, against each of several networks, (n,)."""
    total = np.zeros(len(networks))
    for name, weight in mixture.items():
        total += weight * play_payoffs(config, store.sender(name), path, networks)
    return total
