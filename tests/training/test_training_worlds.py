"""What a score is measured on: the config's own world, and sets of paths that share none."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.base.errors import InputError
from ccenv.envs.common.episodes import HELD_OUT_SEED
from ccenv.envs.curve.distribution import PathDistribution, PathSource
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.path import make_path
from ccenv.training import run as run_module
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_in_world, evaluate_sender
from ccenv.training.path_sets import FIXED, SEEDS_PER_SET, PathSet, path_seed

SMALL = [
    *("num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=192"),
    *("evaluation.n_paths=8", "evaluation.n_paths_during=4", "evaluation.every_steps=64", "environment.episode_rtts=8"),
]


def drawn(path_set: PathSet, number: int, episode: int = 0) -> set[tuple[float, ...]]:
    n = 1024
    source = PathSource(PathDistribution(), 8, 1)
    seeds = np.full(n, path_seed(path_set, number))
    episodes = source.draw(seeds, np.arange(n), np.full(n, episode))
    numbers = (episodes.paths.link_rate_Bps, episodes.paths.rtt_steps[:, 0], episodes.paths.buffer_bytes, episodes.keys)
    return set(zip(*(row.tolist() for row in numbers), strict=True))


def test_no_path_lies_in_two_sets() -> None:
    sets = {which: set().union(*(drawn(which, s, e) for s in (0, 1, 7) for e in (0, 1))) for which in PathSet}
    assert all(len(paths) == 6 * 1024 for paths in sets.values())
    for one, other in itertools.combinations(PathSet, 2):
        assert not sets[one] & sets[other], (one, other)


def test_the_seeds_of_the_sets_do_not_overlap() -> None:
    ends = sorted((path_seed(which, 0), path_seed(which, SEEDS_PER_SET - 1)) for which in PathSet)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends)) and ends[-1][1] < 2**53
    assert path_seed(PathSet.TRAIN, SEEDS_PER_SET - 1) < HELD_OUT_SEED == path_seed(PathSet.REPORT)
    for number in (-1, SEEDS_PER_SET):
        with pytest.raises(InputError, match=f"seed is {number}; it must be a whole number from 0"):
            path_seed(PathSet.REPORT, number)


def test_stopping_selection_and_report_ask_different_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    asked: list[PathSet] = []
    real = run_module.evaluate_policy

    def counted(config, player, n_paths, path_set):  # type: ignore[no-untyped-def]
        asked.append(path_set)
        return real(config, player, n_paths, path_set)

    monkeypatch.setattr(run_module, "evaluate_policy", counted)
    config = load_config("quick_sender", [*SMALL, "early_stop.patience=5"])
    result = run_module.train(config, tmp_path)
    assert asked == [PathSet.STOP, PathSet.SELECT] * 3 + [PathSet.REPORT] * 2
    assert result.evaluation.path_set == "report" and result.best_evaluation is not None
    assert result.best_evaluation.path_set == "report"


def test_training_starts_on_the_training_set() -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.training.learner import Learner

    config = load_config("quick_sender", [*SMALL, "seed=5"])
    learner = Learner(config)
    rates = learner.env.task.core.env("link_rate_Bps")
    assert set(rates) <= {path[0] for path in drawn(PathSet.TRAIN, 5)}
    assert not set(rates) & {path[0] for path in drawn(PathSet.REPORT, 5)}


def test_a_sender_that_competes_is_scored_beside_its_competitor(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    config = load_config("competing_sender", SMALL)
    result = run_module.train(config, tmp_path)
    found = result.evaluation
    assert found.n_flows == 2 and 0 < found.share < 1 and 0.5 <= found.jain < 1
    assert found.utilisation < found.link_utilisation <= 1.0 and result.common is None
    policy = make_sender(str(tmp_path))
    assert found == evaluate_in_world(config.environment, policy, 8)
    assert found.share != pytest.approx(evaluate_sender(policy, 8, steps_per_rtt=4).share)


def test_share_and_jain_of_known_flows() -> None:
    """Two streams of 2 and 6 Mbit/s on 12: shares 1/4 and 3/4, Jain's index 64 / (2 * 40), by hand."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4, n_flows=2)
    world = EnvSettings(paths=path, models=("ideal",), senders=("external", "constant:rate_mbps=6"), reward={"jain": 0.5})
    found = evaluate_in_world(world, make_sender("constant:rate_mbps=2"), 2, warmup_rtts=4, measure_rtts=8)
    assert (found.n_flows, found.path_set) == (2, FIXED)
    assert found.share == pytest.approx(0.25) and found.jain == pytest.approx(64 / 80)
    assert found.utilisation == pytest.approx(1 / 6) and found.link_utilisation == pytest.approx(2 / 3)
    assert found.score == pytest.approx(1 / 6 + 0.5 * 64 / 80)
    one = make_path(link_rate_mbps=12, rtt_ms=40)
    alone = evaluate_sender(make_sender("constant:rate_mbps=2"), 2, paths=one, models=["ideal"])
    assert (alone.n_flows, alone.share, alone.jain) == (1, 1.0, 1.0) and alone.utilisation == alone.link_utilisation


def test_fairness_is_part_of_the_reward_of_one_of_several_flows() -> None:
    """The term of a controlled flow compares it with the others: it is 1 for equal shares only."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4, n_flows=2)
    settings = EnvSettings(paths=path, models=("ideal",), senders=("external", "constant:rate_mbps=6"), episode_rtts=20)
    task = SenderTask(1, settings)
    task.core.reset(seed=0)
    for _ in range(8):
        terms = task.core.advance(np.array([[12e6 / 8 / 6, np.nan]]))
    assert terms[0, 0, 4] == pytest.approx(64 / 80)


def test_a_world_has_its_own_paths_models_grid_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.training import evaluation

    seen: list[tuple[EnvSettings, object]] = []
    real = evaluation.Core

    def spied(n, settings, **more):  # type: ignore[no-untyped-def]
        seen.append((settings, more["adversary"]))
        return real(n, settings, **more)

    monkeypatch.setattr(evaluation, "Core", spied)
    narrow = PathDistribution(link_rate_mss_per_rtt=(10.0, 20.0), buffer_bdp=(1.0, 2.0))
    world = EnvSettings(
        paths=narrow, models=("ccac",), adversary="slowest", steps_per_rtt=2, loss_detection="oracle", staggered=True
    )
    evaluate_in_world(world, make_sender("reno"), 4, warmup_rtts=2, measure_rtts=2)
    ((settings, adversary),) = seen
    assert settings.paths == narrow.model_copy(update={"seeded_share": 0.0})  # cold starts
    assert (settings.models, settings.steps_per_rtt, settings.loss_detection) == (("ccac",), 2, "oracle")
    assert not settings.staggered and isinstance(adversary, ScriptedAdversary) and adversary.name == "slowest"


@pytest.mark.parametrize("senders", [("reno",), ("reno", "cubic")])
def test_a_world_without_a_place_for_the_sender_is_refused(senders: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="needs an 'external' flow"):
        evaluate_in_world(EnvSettings(senders=senders), make_sender("reno"), 2)
    with pytest.raises(InputError, match="needs no 'external' flow"):
        evaluate_in_world(EnvSettings(), None, 2)


def test_what_the_oracle_is_worth() -> None:
    """A program that is told neither Rm nor D still scores, and no better; a preset that is none is named."""
    sender = make_sender("learned_nominal_d4")
    told, untold = evaluate_sender(sender, 64), evaluate_sender(sender, 64, beliefs="untold")
    assert 0.9 < untold.score < told.score
    with pytest.raises(InputError, match="untold"):
        evaluate_sender(sender, 64, beliefs="untolt")
