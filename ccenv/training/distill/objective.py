"""The objective of a distillation: the teacher's own score, and for a robust teacher the worst case too ([Starvation] s.4).

:class:`ProgramScorer` scores many programs at once, with the same paths, moves and numbers as ``evaluate_in_world``, in one batch
per model. :class:`WorstCase` attacks programs as robust training does. :func:`measure` gives the reported numbers, on paths that
nothing was searched or chosen on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ccenv.agents.interface.actions import action
from ccenv.agents.interface.signals import CURVE
from ccenv.agents.learned import is_policy, load_policy, policy_notes
from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender, ProgramSender, Sender
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.run import attack
from ccenv.attacks.scenes import REPORT, SCENE_SETS, attack_path
from ccenv.attacks.searches.patterns import constants
from ccenv.base.config import validate
from ccenv.base.errors import InputError, did_you_mean
from ccenv.engine.compiled.policies import require_signals
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.distribution import PathDistribution, PathSource, path_rows
from ccenv.envs.curve.settings import EXTERNAL, REWARD_TERMS, EnvSettings, RewardWeights, interval_terms, weigh
from ccenv.network.adversary import RecordedAdversary
from ccenv.training.evaluation import MEASURE_RTTS, WARMUP_RTTS, evaluate_in_world, evaluate_sender
from ccenv.training.path_sets import PathSet, path_seed
from ccenv.training.settings import RobustSettings

ATTACK = ("corners", "cem")
ATTACK_SCENES = ("deep", "shallow", "long_jitter", "narrow")
"""Searches, and attack scenarios, of published worst cases."""


class WorstCase:
    """Lowest utilisation of programs over a pool of moves, in the attack scenarios of a robust config.

    The pool starts with the constant corners. As in robust training, each round attacks the best program and keeps the pattern.
    """

    def __init__(self, settings: RobustSettings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._rounds = 0
        self._patterns: dict[str, list[np.ndarray]] = {path: [] for path in settings.paths}

    def utilisation(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the worst utilisation of each program, independent of the other programs."""
        return np.array([min(self._play(program, path) for path in self._settings.paths) for program in programs])

    def learn(self, program: Program) -> float:
        """Attack a program and keep the moves; return its worst utilisation over the new pool."""
        for number, path in enumerate(self._settings.paths):
            for spec in self._settings.searches:
                search = make_search(spec)
                if not search.weight:
                    continue  # the corners: all of them are in the pool
                seed = self._seed + 1000 * self._rounds + number
                game = self._game(ProgramSender(program.name, program), path)
                adversary = search.run(game, self._settings.budget_flow_steps, seed).adversary
                if isinstance(adversary, RecordedAdversary):
                    self._patterns[path] = [*self._patterns[path], adversary.moves][-self._settings.keep :]
        self._rounds += 1
        return float(self.utilisation([program])[0])

    def _game(self, sender: Sender, path: str) -> Game:
        return Game(Scene(sender, attack_path(path), "ccac"))

    def _play(self, program: Program, path: str) -> float:
        game = self._game(ProgramSender(program.name, program), path)
        moves = np.concatenate([game.moves(constants(game)), *(pattern[None] for pattern in self._patterns[path])])
        return float(game.play(moves).min())


LARGEST_BATCH = 16_384  # environments of one engine
_COUNTS = ("S", "L", "acked", "delay_byte_s")


@dataclass(frozen=True)
class Scores:
    """Means over paths, one entry per program: arrays (n,)."""

    score: np.ndarray
    utilisation: np.ndarray
    queue_bdp: np.ndarray
    loss: np.ndarray
    delay_rtts: np.ndarray
    jain: np.ndarray


class ProgramScorer:
    """Scores belief programs on a fixed set of paths of a world with one external flow; arguments of ``evaluate_in_world``."""

    def __init__(
        self,
        world: EnvSettings,
        n_paths: int,
        path_set: PathSet,
        seed: int,
        *,
        warmup_rtts: int = WARMUP_RTTS,
        measure_rtts: int = MEASURE_RTTS,
    ) -> None:
        self.n_paths = n_paths
        self._world, self._warmup, self._measure = world, warmup_rtts, measure_rtts
        self._flows = world.build_senders()
        self._external = world.senders.index(EXTERNAL)
        paths = world.paths
        cold = paths.model_copy(update={"seeded_share": 0.0}) if isinstance(paths, PathDistribution) else paths
        self._source = PathSource(cold, world.steps_per_rtt, len(self._flows))
        lanes = np.arange(n_paths)
        seeds = np.full(n_paths, path_seed(path_set, seed))
        self._episodes = self._source.draw(seeds, lanes, np.zeros(n_paths, np.int64))
        bounds = np.linspace(0, n_paths, min(len(world.models), n_paths) + 1).round().astype(int)
        self._parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]

    def scores(self, programs: Sequence[Program]) -> Scores:
        """Score each program, independent of the other programs."""
        turn = max(1, LARGEST_BATCH // self.n_paths)
        terms = np.concatenate([self._terms(programs[i : i + turn]) for i in range(0, len(programs), turn)])
        return Scores(
            weigh(terms, self._world.reward.vector()), *(terms[:, column].copy() for column in range(len(REWARD_TERMS)))
        )

    def _terms(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the mean terms of the reward: (len(programs), len(TERMS))."""
        senders = [ProgramSender(program.name, program) for program in programs]
        world, external = self._world, np.arange(len(self._flows))[None] == self._external
        sums = np.zeros((len(programs), len(REWARD_TERMS)))
        for part, model in zip(self._parts, world.models, strict=False):
            n = part.stop - part.start
            rows = np.tile(np.arange(part.start, part.stop), len(senders))
            engine = CurveEngine(
                path_rows(self._episodes.paths, rows),
                model=model,
                senders=[self._senders_of_path(sender) for sender in senders for _ in range(n)],
                adversary=world.build_adversary(),
                steps_per_rtt=world.steps_per_rtt,
                loss_detection=world.loss_detection,
                beliefs=world.belief_settings(),
                history_rtts=self._source.history_rtts,
            )
            engine.reset(keys=self._episodes.keys[rows])
            engine.advance(self._warmup * world.steps_per_rtt)
            before = engine.totals()
            terms = np.zeros((len(rows), len(REWARD_TERMS)))
            rtt_s = engine.flow("rtt_s")
            for _ in range(self._measure):
                engine.advance(world.steps_per_rtt)
                after = engine.totals()
                terms += interval_terms(
                    np.stack([after[name] - before[name] for name in _COUNTS]),
                    after["capacity"] - before["capacity"],
                    engine.queue_bytes / (engine.env("link_rate_now_Bps") * rtt_s.min(axis=1)),
                    rtt_s,
                    external,
                )[:, 0]
                before = after
            sums += (terms / self._measure).reshape(len(senders), n, len(REWARD_TERMS)).sum(axis=1)
        return sums / self.n_paths

    def _senders_of_path(self, sender: Sender) -> list[Sender]:
        return [sender if flow == self._external else other for flow, other in enumerate(self._flows)]


USUAL_WORLD = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=4, staggered=True)
"""The environment of the shipped nominal configs."""


@dataclass(frozen=True)
class Teacher:
    """A policy, the world of its training (the usual one if its metadata has no config), and its robust rounds, if any."""

    policy: PolicySender
    world: EnvSettings
    robust: RobustSettings | None

    @property
    def weights(self) -> RewardWeights:
        """Weights of the terms of a program's score."""
        return self.world.reward if isinstance(self.world.reward, RewardWeights) else RewardWeights()

    @property
    def name(self) -> str:
        return self.policy.name


def load_teacher(checkpoint: str) -> Teacher:
    """Read a policy by file, folder of a training run or name in the zoo.

    Programs are scored by ``RewardWeights``; by the default ones if the policy was trained for another reward. Raises InputError
    if there is no such policy, it sets windows, or its metadata has an invalid config.
    """
    if not is_policy(checkpoint):
        from ccenv.agents import AGENTS
        from ccenv.agents.learned.zoo import FOLDER

        zoo_names = AGENTS.names("learned")
        if checkpoint not in zoo_names:
            raise InputError(
                f"{checkpoint!r} is no learned policy: the folder of a training run, its .safetensors file or the name of "
                f"one in the zoo is needed.{did_you_mean(checkpoint, zoo_names)}"
            )
        checkpoint = str(FOLDER / f"{checkpoint}.safetensors")
    policy = load_policy(checkpoint)
    if not isinstance(policy, PolicySender):
        raise InputError(f"{checkpoint!r} chooses inside a shield, which is proved as it is: there is nothing to distil")
    interface = policy.interface
    if action(interface.action).sets != "rate":
        raise InputError(
            f"{checkpoint}: {interface.action!r} sets a window; a belief program sets rates, so it cannot be distilled"
        )
    require_signals(policy, CURVE)
    config = policy_notes(checkpoint).get("config")
    if not isinstance(config, dict):
        return Teacher(policy, USUAL_WORLD, None)
    environment, robust = config.get("environment"), config.get("robust")
    world = validate(EnvSettings, environment or {}, f"{checkpoint}: notes.config.environment")
    if world.senders.count(EXTERNAL) != 1:
        raise InputError(f"{checkpoint}: notes.config.environment.senders is {list(world.senders)}; one must be 'external'")
    if not isinstance(world.reward, RewardWeights):
        world = world.model_copy(update={"reward": RewardWeights()})
    rounds = None if robust is None else validate(RobustSettings, robust, f"{checkpoint}: notes.config.robust")
    return Teacher(policy, world, rounds if rounds is not None and rounds.share > 0 else None)


WORST_WEIGHT = 0.5
"""Weight of the worst utilisation for a teacher trained against attacks; the score has the rest."""


class Objective:
    """Values of programs: the score in the teacher's own world, and for a robust teacher the worst utilisation.

    Numbers are searched on ``PathSet.POLISH`` and shapes chosen on ``PathSet.SELECT``; reports are on neither.
    """

    def __init__(self, teacher: Teacher, n_paths: int, seed: int) -> None:
        self.n_paths = n_paths
        self._polish = ProgramScorer(teacher.world, n_paths, PathSet.POLISH, seed)
        self._select = ProgramScorer(teacher.world, n_paths, PathSet.SELECT, seed)
        self._worst = None if teacher.robust is None else WorstCase(teacher.robust, seed)

    @property
    def under_attack(self) -> bool:
        return self._worst is not None

    def values(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the value of each program on the paths of the search; larger is better."""
        return self._evaluate(self._polish, programs)

    def select_value(self, program: Program) -> float:
        return float(self._evaluate(self._select, [program])[0])

    def _evaluate(self, scorer: ProgramScorer, programs: Sequence[Program]) -> np.ndarray:
        scores = scorer.scores(programs).score
        if self._worst is None:
            return scores
        return (1 - WORST_WEIGHT) * scores + WORST_WEIGHT * self._worst.utilisation(programs)

    def learn(self, program: Program) -> float | None:
        """Attack a program and add the moves to later values; return its worst utilisation, None without attacks."""
        return None if self._worst is None else self._worst.learn(program)


def measure(sender: Sender, teacher: Teacher, attack_flow_steps: int, seed: int) -> dict[str, Any]:
    """Return the score on ``PathSet.REPORT`` and the worst utilisation in each attack scenario, of a teacher or its program.

    Keys: ``score`` and ``evaluation`` in the teacher's world, ``common`` alone in the common world, ``worst`` per attack scenario
    with its set and whether training has ``seen`` it, ``worst_utilisation`` over the report scenarios.
    """
    evaluation = evaluate_in_world(teacher.world, sender)
    attacked = () if teacher.robust is None else teacher.robust.paths
    worst: dict[str, dict[str, Any]] = {}
    for name in ATTACK_SCENES:
        result = attack(sender, path=name, adversaries=ATTACK, budget_flow_steps=attack_flow_steps, seed=seed)
        scene_set = next(scene_set for scene_set, names in SCENE_SETS.items() if name in names)
        worst[name] = {
            "utilisation": result.worst_utilisation,
            "adversary": result.worst_adversary,
            "set": scene_set,
            "seen": name in attacked,
        }
    report = min((case for case in worst.values() if case["set"] == REPORT), key=lambda case: float(case["utilisation"]))
    return {
        "score": evaluation.score,
        "evaluation": asdict(evaluation),
        "common": asdict(evaluate_sender(sender)),
        "worst": worst,
        "worst_utilisation": report["utilisation"],
        "worst_adversary": report["adversary"],
    }
