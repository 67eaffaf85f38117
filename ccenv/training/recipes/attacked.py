"""Drawn paths under attack: in each round other ones, and what was found on those of earlier rounds is played again.

A sender that is trained on two scenes is robust there. Here each round of robust training draws paths, lets searches of
``ccenv attack`` play against the sender as it is, and trains against what they found: moves on the path that they belong to, and
closed-loop policies also on paths that nobody searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field, field_validator

from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.agents.sender import ContractSender, PolicySender
from ccenv.attacks.catalog import SEARCHES, make_search
from ccenv.attacks.game import Game, Scene
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import unknown_name
from ccenv.base.random import uniform
from ccenv.envs.curve.core import parts_of
from ccenv.envs.curve.distribution import DRAWN, PathDistribution, PathSource, SomeGivenPaths, plain_paths
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.adversary import Adversary, MlpAdversary, RecordedAdversary
from ccenv.network.path import Path
from ccenv.training.path_sets import PathSet, path_seed

MODEL = "ccac"  # where the searches play
ATTACK_RTTS = 60  # warm-up and window of an attack
NEWEST_ROUNDS = 2  # half of the environments under attack play what these found
ELSEWHERE = 64  # paths of a round on which closed-loop policies play without having been searched there


class DrawnAttacks(StrictModel):
    """Which paths are attacked in each round, and how.

    Attributes:
        count: paths of a round.
        paths: what they are drawn from.
        searches: of ``ccenv attack``; each plays on each path.
        budget_flow_steps: of each search on each path.
        keep_rounds: rounds whose findings are played; 1: those of the newest only.
    """

    count: int = Field(default=10, ge=1, le=256)
    paths: PathDistribution = PathDistribution(
        link_rate_mss_per_rtt=(4.0, 10_000.0), jitter_rtts=(0.5, 2.0), buffer_bdp=(0.4, 8.0), seeded_share=0.0
    )
    searches: tuple[str, ...] = Field(default=("policy_cem:changes=0", "two_phase", "mutation"), min_length=1, max_length=16)
    budget_flow_steps: int = Field(default=300_000, ge=1)
    keep_rounds: int = Field(default=8, ge=1, le=256)

    @field_validator("searches")
    @classmethod
    def _are_searches(cls, specs: tuple[str, ...]) -> tuple[str, ...]:
        for spec in specs:
            name = spec.partition(":")[0]
            if name not in SEARCHES.names("search"):
                raise ValueError(str(unknown_name("search", name, SEARCHES.names("search"))))
            make_search(spec, code=False)
        return specs


@dataclass(frozen=True)
class Finding:
    """What a search found on a path.

    Attributes:
        round_: in which round.
        path: the path.
        adversary: moves, or a policy.
    """

    round_: int
    path: Path
    adversary: RecordedAdversary | MlpAdversary


class AttackedPaths:
    """The paths of the rounds of a training, and who plays on them.

    Args:
        drawn: which paths are attacked, and how.
        settings: of the environments; ``paths`` is a distribution.
        num_envs: B.
        share: of the environments that are attacked.
        seed: of the training.
        given: stored moves, each with its path.
        given_share: share of the environments under attack that play stored moves, if there are any.
    """

    def __init__(
        self,
        drawn: DrawnAttacks,
        settings: EnvSettings,
        num_envs: int,
        share: float,
        seed: int,
        given: Sequence[tuple[Path, RecordedAdversary]] = (),
        given_share: float = 0.0,
    ) -> None:
        self._drawn, self._settings, self._seed = drawn, settings, seed
        self._num_envs, self._share = num_envs, share
        self._given, self._given_share = list(given), given_share

    def attack(self, sender: PolicySender | ContractSender, round_: int) -> list[Finding]:
        """Draw the paths of a round and attack a sender on each of them."""
        drawn, K, found = self._drawn, self._settings.steps_per_rtt, []
        for place, path in enumerate(self._paths(round_, 0, drawn.count)):
            scene = Scene(sender, path, MODEL, "engine", K, ATTACK_RTTS, ATTACK_RTTS)
            for number, spec in enumerate(drawn.searches):
                search = make_search(spec, code=False)
                seed = int(uniform(self._seed, round_, place * len(drawn.searches) + number, 0) * 2**31)
                one = search.run(Game(scene), drawn.budget_flow_steps if search.weight else 0, seed).adversary
                if isinstance(one, (RecordedAdversary, MlpAdversary)):
                    found.append(Finding(round_, path, one))
        return found

    def newest(self, found: Sequence[Finding], round_: int) -> list[Finding]:
        """Return the findings of the rounds that are kept in a round."""
        return [one for one in found if one.round_ > round_ - self._drawn.keep_rounds]

    def meet(self, found: Sequence[Finding], round_: int) -> tuple[list[Adversary], PathSource]:
        """Return the network's player of each environment in a round, and where the paths come from.

        Half of the environments under attack meet what the newest rounds found, the others what any round found that is kept; a
        closed-loop policy plays on its own path as often as on another one.
        """
        settings, given = self._settings, self._given
        draw = np.random.Generator(np.random.Philox(key=[self._seed, round_]))
        elsewhere = self._paths(round_, self._drawn.count, ELSEWHERE)
        paths = [*(one.path for one in found), *elsewhere, *(path for path, _ in given)]
        length = max(2 * ATTACK_RTTS, settings.episode_rtts) * settings.steps_per_rtt
        newest = [place for place, one in enumerate(found) if one.round_ > round_ - NEWEST_ROUNDS]
        players: list[Adversary] = [settings.build_adversary()] * self._num_envs
        path_of_lane = np.full(self._num_envs, DRAWN)
        for turn, b in enumerate(lanes_under_attack(settings, self._num_envs, self._share)):
            if given and draw.random() < self._given_share:
                path_of_lane[b] = len(found) + ELSEWHERE + turn % len(given)
                players[b] = _as_long_as(given[turn % len(given)][1], length)
                continue
            place = newest[int(draw.integers(len(newest)))] if turn % 2 else int(draw.integers(len(found)))
            one = found[place].adversary
            away = isinstance(one, MlpAdversary) and draw.random() < 0.5
            path_of_lane[b] = len(found) + int(draw.integers(ELSEWHERE)) if away else place
            players[b] = _as_long_as(one, length) if isinstance(one, RecordedAdversary) else one
        nominal = settings.paths if isinstance(settings.paths, PathDistribution) else PathDistribution()
        return players, SomeGivenPaths(nominal, settings.steps_per_rtt, paths, path_of_lane)

    def _paths(self, round_: int, first: int, count: int) -> list[Path]:
        K, seeds = self._settings.steps_per_rtt, np.full(count, path_seed(PathSet.TRAIN, self._seed))
        drawn = PathSource(self._drawn.paths, K, 1).draw(seeds, np.arange(first, first + count), np.full(count, round_))
        return plain_paths(drawn.paths)


def lanes_under_attack(settings: EnvSettings, num_envs: int, share: float) -> list[int]:
    """Return which environments are attacked: a share of all, spread over those whose model is that of the searches."""
    parts = parts_of(num_envs, len(settings.models))
    able = [
        b for part, model in zip(parts, settings.models, strict=False) if model == MODEL for b in range(part.start, part.stop)
    ]
    n = min(len(able), round(share * num_envs))
    return [able[place * len(able) // n] for place in range(n)]


def _as_long_as(one: RecordedAdversary, length: int) -> RecordedAdversary:
    """Return moves of a length: the recorded adversaries of a batch have one; the last set is repeated."""
    moves = one.moves[:length]
    return RecordedAdversary(one.name, np.concatenate([moves, np.repeat(moves[-1:], length - len(moves), axis=0)]))


# --- as arrays, for checkpoints ---------------------------------------------------------------------------------------------

_PATHS, _MOVES, _POLICIES = "attacked.paths", "attacked.moves", "attacked.policies"
_IS_POLICY = 6  # column of the paths' rows, after round, rate, Rm, D, buffer and segment


def pack(found: Sequence[Finding]) -> dict[str, np.ndarray]:
    """Return findings as float64 arrays; empty without any."""
    if not found:
        return {}
    rows = []
    for one in found:
        path, flow = one.path, one.path.flows[0]
        numbers = (path.link_rate_Bps, flow.rtt_s, flow.jitter_s, path.buffer_bytes, path.mss_bytes)
        rows.append([one.round_, *numbers, isinstance(one.adversary, MlpAdversary)])
    moves = [one.adversary.moves for one in found if isinstance(one.adversary, RecordedAdversary)]
    policies = [_numbers_of(one.adversary) for one in found if isinstance(one.adversary, MlpAdversary)]
    out = {_PATHS: np.array(rows, np.float64)}
    if moves:
        out[_MOVES] = np.stack(moves)
    if policies:
        out[_POLICIES] = np.zeros((len(policies), max(map(len, policies))))
        for row, numbers_ in zip(out[_POLICIES], policies, strict=True):
            row[: len(numbers_)] = numbers_
    return out


def unpack(tensors: dict[str, np.ndarray]) -> list[Finding]:
    """Return the findings of a checkpoint's arrays."""
    moves, policies = iter(tensors.get(_MOVES, ())), iter(tensors.get(_POLICIES, ()))
    found = []
    for row in tensors.get(_PATHS, ()):
        flow = {"rtt_s": float(row[2]), "jitter_s": float(row[3])}
        numbers = {"link_rate_Bps": float(row[1]), "buffer_bytes": float(row[4]), "mss_bytes": float(row[5])}
        path = validate(Path, {**numbers, "flows": [flow]}, _PATHS)
        one = _policy_of(next(policies)) if row[_IS_POLICY] else RecordedAdversary("found", np.array(next(moves)))
        found.append(Finding(int(row[0]), path, one))
    return found


def _numbers_of(policy: MlpAdversary) -> np.ndarray:
    """Return a policy as numbers: pace, episode, moves, widths of the layers, then weights and biases layer by layer."""
    widths = [len(policy.weights[0]), *(len(biases) for biases in policy.biases)]
    head = [policy.decision_steps, policy.episode_rtts, len(policy.columns), *policy.columns, len(widths), *widths]
    layers = [np.concatenate([w.ravel(), b]) for w, b in zip(policy.weights, policy.biases, strict=True)]
    return np.concatenate([np.array(head, np.float64), *layers])


def _policy_of(numbers: np.ndarray) -> MlpAdversary:
    pace, episode, n_columns = (int(number) for number in numbers[:3])
    columns = tuple(int(number) for number in numbers[3 : 3 + n_columns])
    at = 4 + n_columns
    widths = [int(number) for number in numbers[at : at + int(numbers[at - 1])]]
    at += len(widths)
    weights, biases = [], []
    for n_in, n_out in itertools.pairwise(widths):
        weights.append(numbers[at : at + n_in * n_out].reshape(n_in, n_out).copy())
        biases.append(numbers[at + n_in * n_out : at + (n_in + 1) * n_out].copy())
        at += (n_in + 1) * n_out
    return MlpAdversary("found", tuple(weights), tuple(biases), "tanh", OBSERVATION_VERSION, columns, pace, episode)
