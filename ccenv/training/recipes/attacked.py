"""Robust training on drawn paths: each round draws new ones, attacks them, and replays the findings of earlier rounds.

A sender trained in two attack scenarios is robust in those two. Here searches of ``ccenv attack`` attack the current sender on
paths drawn for each round. Moves that they find are played on their own path, closed-loop policies also on other paths.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field, field_validator

from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.agents.sender import PolicySender, ShieldSender
from ccenv.attacks.catalog import SEARCHES, make_search
from ccenv.attacks.game import Game, Scene
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import unknown_name
from ccenv.base.random import uniform
from ccenv.envs.curve.core import split_batch
from ccenv.envs.curve.distribution import DRAWN, PathDistribution, PathSource, SomeGivenPaths, plain_paths
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.adversary import Adversary, MlpAdversary, RecordedAdversary
from ccenv.network.path import Path
from ccenv.training.path_sets import PathSet, path_seed

MODEL = "ccac"  # network model of the searches
ATTACK_RTTS = 60  # warm-up and window of an attack
NEWEST_ROUNDS = 2  # half of the environments under attack play the findings of these
ELSEWHERE = 64  # further paths of a round, not searched, on which closed-loop policies play


class DrawnAttacks(StrictModel):
    """Paths and searches of each round.

    Attributes:
        count: paths of a round.
        paths: their distribution.
        searches: of ``ccenv attack``; each searches on each path.
        budget_flow_steps: of each search on each path.
        keep_rounds: rounds whose findings are played; 1: only the newest.
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
    def _check_searches(cls, specs: tuple[str, ...]) -> tuple[str, ...]:
        for spec in specs:
            name = spec.partition(":")[0]
            if name not in SEARCHES.names("search"):
                raise ValueError(str(unknown_name("search", name, SEARCHES.names("search"))))
            make_search(spec, code=False)
        return specs


@dataclass(frozen=True)
class Finding:
    """An adversary (moves or a policy) that a search found on a path in a round."""

    round_: int
    path: Path
    adversary: RecordedAdversary | MlpAdversary


class AttackedPaths:
    """The paths of each round of a training, and the adversaries on them, in a share of the environments.

    ``given`` are stored moves, each with its path, which a ``given_share`` of the attacked environments play.
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

    def attack(self, sender: PolicySender | ShieldSender, round_: int) -> list[Finding]:
        drawn, K, findings = self._drawn, self._settings.steps_per_rtt, []
        for place, path in enumerate(self._draw_paths(round_, 0, drawn.count)):
            scene = Scene(sender, path, MODEL, "engine", K, ATTACK_RTTS, ATTACK_RTTS)
            for number, spec in enumerate(drawn.searches):
                search = make_search(spec, code=False)
                seed = int(uniform(self._seed, round_, place * len(drawn.searches) + number, 0) * 2**31)
                adversary = search.run(Game(scene), drawn.budget_flow_steps if search.weight else 0, seed).adversary
                if isinstance(adversary, (RecordedAdversary, MlpAdversary)):
                    findings.append(Finding(round_, path, adversary))
        return findings

    def newest(self, findings: Sequence[Finding], round_: int) -> list[Finding]:
        """Return the findings that are still kept in a round."""
        return [finding for finding in findings if finding.round_ > round_ - self._drawn.keep_rounds]

    def meet(self, findings: Sequence[Finding], round_: int) -> tuple[list[Adversary], PathSource]:
        """Return the adversary of each environment in a round, and the source of the paths.

        Half of the attacked environments play findings of the newest rounds, the others any finding that is kept. A closed-loop
        policy plays on its own path and on another one equally often.
        """
        settings, stored = self._settings, self._given
        draw = np.random.Generator(np.random.Philox(key=[self._seed, round_]))
        elsewhere = self._draw_paths(round_, self._drawn.count, ELSEWHERE)
        paths = [*(one.path for one in findings), *elsewhere, *(path for path, _ in stored)]
        length = max(2 * ATTACK_RTTS, settings.episode_rtts) * settings.steps_per_rtt
        newest = [place for place, one in enumerate(findings) if one.round_ > round_ - NEWEST_ROUNDS]
        adversaries: list[Adversary] = [settings.build_adversary()] * self._num_envs
        path_of_lane = np.full(self._num_envs, DRAWN)
        for turn, b in enumerate(lanes_under_attack(settings, self._num_envs, self._share)):
            if stored and draw.random() < self._given_share:
                path_of_lane[b] = len(findings) + ELSEWHERE + turn % len(stored)
                adversaries[b] = _fit_length(stored[turn % len(stored)][1], length)
                continue
            place = newest[int(draw.integers(len(newest)))] if turn % 2 else int(draw.integers(len(findings)))
            one = findings[place].adversary
            plays_elsewhere = isinstance(one, MlpAdversary) and draw.random() < 0.5
            path_of_lane[b] = len(findings) + int(draw.integers(ELSEWHERE)) if plays_elsewhere else place
            adversaries[b] = _fit_length(one, length) if isinstance(one, RecordedAdversary) else one
        nominal = settings.paths if isinstance(settings.paths, PathDistribution) else PathDistribution()
        return adversaries, SomeGivenPaths(nominal, settings.steps_per_rtt, paths, path_of_lane)

    def _draw_paths(self, round_: int, first: int, count: int) -> list[Path]:
        K, seeds = self._settings.steps_per_rtt, np.full(count, path_seed(PathSet.TRAIN, self._seed))
        drawn = PathSource(self._drawn.paths, K, 1).draw(seeds, np.arange(first, first + count), np.full(count, round_))
        return plain_paths(drawn.paths)


def lanes_under_attack(settings: EnvSettings, num_envs: int, share: float) -> list[int]:
    """Return the attacked environments: a share of all, spread over those with the model of the searches."""
    parts = split_batch(num_envs, len(settings.models))
    available = [
        b for part, model in zip(parts, settings.models, strict=False) if model == MODEL for b in range(part.start, part.stop)
    ]
    n = min(len(available), round(share * num_envs))
    return [available[place * len(available) // n] for place in range(n)]


def _fit_length(recorded: RecordedAdversary, length: int) -> RecordedAdversary:
    return RecordedAdversary(recorded.name, fit_moves(recorded.moves, length))


def fit_moves(moves: np.ndarray, length: int) -> np.ndarray:
    """Cut or extend moves, (steps, 4), to a length; the last row is repeated."""
    return np.concatenate([moves[:length], np.repeat(moves[-1:], max(0, length - len(moves)), axis=0)])


# --- as arrays, for checkpoints ---------------------------------------------------------------------------------------------

_PATHS, _MOVES, _POLICIES = "attacked.paths", "attacked.moves", "attacked.policies"
_IS_POLICY = 6  # column of the paths' rows, after round, rate, Rm, D, buffer and segment


def pack(findings: Sequence[Finding]) -> dict[str, np.ndarray]:
    """Return findings as float64 arrays; empty without any."""
    if not findings:
        return {}
    rows = []
    for finding in findings:
        path, flow = finding.path, finding.path.flows[0]
        numbers = (path.link_rate_Bps, flow.rtt_s, flow.jitter_s, path.buffer_bytes, path.mss_bytes)
        rows.append([finding.round_, *numbers, isinstance(finding.adversary, MlpAdversary)])
    moves = [finding.adversary.moves for finding in findings if isinstance(finding.adversary, RecordedAdversary)]
    policies = [_pack_policy(finding.adversary) for finding in findings if isinstance(finding.adversary, MlpAdversary)]
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
    findings = []
    for row in tensors.get(_PATHS, ()):
        flow = {"rtt_s": float(row[2]), "jitter_s": float(row[3])}
        numbers = {"link_rate_Bps": float(row[1]), "buffer_bytes": float(row[4]), "mss_bytes": float(row[5])}
        path = validate(Path, {**numbers, "flows": [flow]}, _PATHS)
        adversary = _unpack_policy(next(policies)) if row[_IS_POLICY] else RecordedAdversary("found", np.array(next(moves)))
        findings.append(Finding(int(row[0]), path, adversary))
    return findings


def _pack_policy(policy: MlpAdversary) -> np.ndarray:
    """Return a policy as an array: pace, episode, moves, widths of the layers, then weights and biases layer by layer."""
    widths = [len(policy.weights[0]), *(len(biases) for biases in policy.biases)]
    head = [policy.decision_steps, policy.episode_rtts, len(policy.columns), *policy.columns, len(widths), *widths]
    layers = [np.concatenate([w.ravel(), b]) for w, b in zip(policy.weights, policy.biases, strict=True)]
    return np.concatenate([np.array(head, np.float64), *layers])


def _unpack_policy(numbers: np.ndarray) -> MlpAdversary:
    pace, episode, n_columns = (int(number) for number in numbers[:3])
    columns = tuple(int(number) for number in numbers[3 : 3 + n_columns])
    offset = 4 + n_columns
    widths = [int(number) for number in numbers[offset : offset + int(numbers[offset - 1])]]
    offset += len(widths)
    weights, biases = [], []
    for n_in, n_out in itertools.pairwise(widths):
        weights.append(numbers[offset : offset + n_in * n_out].reshape(n_in, n_out).copy())
        biases.append(numbers[offset + n_in * n_out : offset + (n_in + 1) * n_out].copy())
        offset += (n_in + 1) * n_out
    return MlpAdversary("found", tuple(weights), tuple(biases), "tanh", OBSERVATION_VERSION, columns, pace, episode)
