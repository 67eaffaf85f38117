"""What programs are polished for: the teacher's own score, and for a robust teacher its worst case too.

What attacks leave of a program, for teachers that were trained against attacks ([Starvation] s.4).

The pool starts with the constant corners. Rounds as in robust training: attack the best program, remember the pattern, polish on.

Scores of many belief programs at once: the same paths, moves and numbers as ``evaluate_in_world``, one batch per model.

The policy that is distilled, and what its own config says a good sender is.

What is reported of a policy or a program: nothing of it decided how they were made.
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
from ccenv.training.records import ATTACK, ATTACK_SCENES
from ccenv.training.settings import RobustSettings


class WorstCase:
    """Lowest utilisation of programs over a pool of moves, on the attack paths of a robust config.

    Args:
        settings: paths, searches, their budget and how many newest patterns are kept.
        seed: of the searches.
    """

    def __init__(self, settings: RobustSettings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._rounds = 0
        self._found: dict[str, list[np.ndarray]] = {path: [] for path in settings.paths}

    def utilisation(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the worst utilisation of each program; the result of one does not depend on the others."""
        return np.array([min(self._play(program, path) for path in self._settings.paths) for program in programs])

    def learn(self, program: Program) -> float:
        """Attack a program and remember the moves; return the worst utilisation known of it then."""
        for place, path in enumerate(self._settings.paths):
            for spec in self._settings.searches:
                search = make_search(spec)
                if not search.weight:
                    continue  # the corners: all of them are in the pool
                seed = self._seed + 1000 * self._rounds + place
                game = self._game(ProgramSender(program.name, program), path)
                adversary = search.run(game, self._settings.budget_flow_steps, seed).adversary
                if isinstance(adversary, RecordedAdversary):
                    self._found[path] = [*self._found[path], adversary.moves][-self._settings.keep :]
        self._rounds += 1
        return float(self.utilisation([program])[0])

    def _game(self, sender: Sender, path: str) -> Game:
        return Game(Scene(sender, attack_path(path), "ccac"))

    def _play(self, program: Program, path: str) -> float:
        game = self._game(ProgramSender(program.name, program), path)
        moves = np.concatenate([game.moves(constants(game)), *(found[None] for found in self._found[path])])
        return float(game.play(moves).min())


LARGEST_BATCH = 16_384  # environments of one engine; more are done in turns
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
    """Scores belief programs on one fixed set of paths of a world, with its competitors, models, grid and network.

    Args:
        world: settings of the environment, with one external flow.
        n_paths: number of paths, divided among the models.
        path_set: where the paths come from.
        seed: which paths of the set, and which moves of the network.
        warmup_rtts: round trips before the measurement.
        measure_rtts: round trips measured.
    """

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
        self._own = world.senders.index(EXTERNAL)
        paths = world.paths
        cold = paths.model_copy(update={"seeded_share": 0.0}) if isinstance(paths, PathDistribution) else paths
        self._source = PathSource(cold, world.steps_per_rtt, len(self._flows))
        lanes = np.arange(n_paths)
        seeds = np.full(n_paths, path_seed(path_set, seed))
        self._episodes = self._source.draw(seeds, lanes, np.zeros(n_paths, np.int64))
        bounds = np.linspace(0, n_paths, min(len(world.models), n_paths) + 1).round().astype(int)
        self._parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]

    def scores(self, programs: Sequence[Program]) -> Scores:
        """Score programs; the result of one does not depend on the others."""
        turn = max(1, LARGEST_BATCH // self.n_paths)
        terms = np.concatenate([self._terms(programs[i : i + turn]) for i in range(0, len(programs), turn)])
        return Scores(
            weigh(terms, self._world.reward.vector()), *(terms[:, column].copy() for column in range(len(REWARD_TERMS)))
        )

    def _terms(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the mean terms of the reward: (len(programs), len(TERMS))."""
        senders = [ProgramSender(program.name, program) for program in programs]
        world, own = self._world, np.arange(len(self._flows))[None] == self._own
        sums = np.zeros((len(programs), len(REWARD_TERMS)))
        for part, model in zip(self._parts, world.models, strict=False):
            n = part.stop - part.start
            which = np.tile(np.arange(part.start, part.stop), len(senders))
            engine = CurveEngine(
                path_rows(self._episodes.paths, which),
                model=model,
                senders=[self._with(sender) for sender in senders for _ in range(n)],
                adversary=world.build_adversary(),
                steps_per_rtt=world.steps_per_rtt,
                loss_detection=world.loss_detection,
                beliefs=world.belief_settings(),
                history_rtts=self._source.history_rtts,
            )
            engine.reset(keys=self._episodes.keys[which])
            engine.advance(self._warmup * world.steps_per_rtt)
            before = engine.totals()
            terms = np.zeros((len(which), len(REWARD_TERMS)))
            rtt_s = engine.flow("rtt_s")
            for _ in range(self._measure):
                engine.advance(world.steps_per_rtt)
                after = engine.totals()
                terms += interval_terms(
                    np.stack([after[name] - before[name] for name in _COUNTS]),
                    after["capacity"] - before["capacity"],
                    engine.queue_bytes / (engine.env("link_rate_now_Bps") * rtt_s.min(axis=1)),
                    rtt_s,
                    own,
                )[:, 0]
                before = after
            sums += (terms / self._measure).reshape(len(senders), n, len(REWARD_TERMS)).sum(axis=1)
        return sums / self.n_paths

    def _with(self, sender: Sender) -> list[Sender]:
        """Return the senders of all flows of a path."""
        return [sender if flow == self._own else other for flow, other in enumerate(self._flows)]


USUAL_WORLD = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=4, staggered=True)
"""The environment of the shipped nominal configs."""


@dataclass(frozen=True)
class Teacher:
    """A policy with what it was trained for.

    Attributes:
        policy: it.
        world: that it was trained in; that of the shipped nominal configs if its card has no config.
        robust: its rounds against attacks; None if it had none.
    """

    policy: PolicySender
    world: EnvSettings
    robust: RobustSettings | None

    @property
    def weights(self) -> RewardWeights:
        """Weights of the terms that programs are scored by."""
        return self.world.reward if isinstance(self.world.reward, RewardWeights) else RewardWeights()

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self.policy.name


def load_teacher(checkpoint: str) -> Teacher:
    """Read a policy by file, folder of a training run or name in the zoo.

    A program is scored by terms of ``RewardWeights``: where the policy was trained for others, by the default ones.

    Raises:
        InputError: if there is none, it sets windows, or its card has a config that is none.
    """
    if not is_policy(checkpoint):
        from ccenv.agents import AGENTS
        from ccenv.agents.learned.zoo import FOLDER

        known = AGENTS.names("learned")
        if checkpoint not in known:
            raise InputError(
                f"{checkpoint!r} is no learned policy: the folder of a training run, its .safetensors file or the name of "
                f"one in the zoo is needed.{did_you_mean(checkpoint, known)}"
            )
        checkpoint = str(FOLDER / f"{checkpoint}.safetensors")
    policy = load_policy(checkpoint)
    if not isinstance(policy, PolicySender):
        raise InputError(f"{checkpoint!r} chooses inside a contract, which is proved as it is: there is nothing to distil")
    sees = policy.interface
    if action(sees.action).sets != "rate":
        raise InputError(f"{checkpoint}: {sees.action!r} sets a window; a belief program sets rates, so it cannot be distilled")
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
"""Of the worst utilisation, for a teacher that was trained against attacks; the score has the rest."""


class Objective:
    """Values of programs: the score in the teacher's own world, for a robust teacher the worst utilisation too.

    Numbers are searched on one set of paths, shapes are chosen on another; neither is the one that is reported.
    """

    def __init__(self, teacher: Teacher, n_paths: int, seed: int) -> None:
        self.n_paths = n_paths
        self._polish = ProgramScorer(teacher.world, n_paths, PathSet.POLISH, seed)
        self._select = ProgramScorer(teacher.world, n_paths, PathSet.SELECT, seed)
        self._worst = None if teacher.robust is None else WorstCase(teacher.robust, seed)

    @property
    def under_attack(self) -> bool:
        """Whether the worst case counts."""
        return self._worst is not None

    def values(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the value of each program on the paths of the search; larger is better."""
        return self._valued(self._polish, programs)

    def select_value(self, program: Program) -> float:
        """Return the value of a program on paths that its numbers were not searched on."""
        return float(self._valued(self._select, [program])[0])

    def _valued(self, scorer: ProgramScorer, programs: Sequence[Program]) -> np.ndarray:
        scores = scorer.scores(programs).score
        if self._worst is None:
            return scores
        return (1 - WORST_WEIGHT) * scores + WORST_WEIGHT * self._worst.utilisation(programs)

    def learn(self, program: Program) -> float | None:
        """Attack a program, so that later values count what was found; return its worst utilisation, None without attacks."""
        return None if self._worst is None else self._worst.learn(program)


def measure(sender: Sender, teacher: Teacher, attack_flow_steps: int, seed: int) -> dict[str, Any]:
    """Return the score on the set of paths for reports and the worst utilisation on each scene.

    Args:
        sender: the teacher's policy, or a program distilled from it.
        teacher: whose world the score is of.
        attack_flow_steps: budget on each scene.
        seed: of the attacks.

    Returns:
        dict: ``score`` and ``evaluation`` in the teacher's world, ``common`` alone in the common world, ``worst`` per scene with
            its set and whether the making of the sender has ``seen`` it under attack, ``worst_utilisation`` of the report scenes.
    """
    evaluation = evaluate_in_world(teacher.world, sender)
    met = () if teacher.robust is None else teacher.robust.paths
    worst: dict[str, dict[str, Any]] = {}
    for name in ATTACK_SCENES:
        found = attack(sender, path=name, adversaries=ATTACK, budget_flow_steps=attack_flow_steps, seed=seed)
        which = next(which for which, names in SCENE_SETS.items() if name in names)
        worst[name] = {
            "utilisation": found.worst_utilisation,
            "adversary": found.worst_adversary,
            "set": which,
            "seen": name in met,
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
