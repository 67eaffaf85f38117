"""Training against stored counterexamples, attacked paths and replayed ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stopped import assert_goes_on

from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.scenes import PATHS
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathDistribution, PathSource
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import MlpAdversary, MovesHeader, RecordedAdversary, StoredMoves
from ccenv.network.path import make_path
from ccenv.training.config import TrainConfig
from ccenv.training.opponents import attacked_paths, load_counterexamples, opponents
from ccenv.training.recipes.attacked import ELSEWHERE, AttackedPaths, DrawnAttacks, Finding, lanes_under_attack, pack, unpack
from ccenv.training.recipes.replay import ReplayedPaths, ReplaySettings
from ccenv.training.run import train

K, STEPS = 4, 60
OWN = make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=45, buffer_bdp=2)


def store(folder: Path, name: str, path: Any = OWN, seed: int = 0, steps: int = STEPS, **header: Any) -> None:
    moves = np.random.default_rng(seed).random((steps, 2 + 2 * path.n_flows))
    about = {"model": "ccac", "steps_per_rtt": K, "dt_s": path.flows[0].rtt_s / K, "first_row": 8, "sender": "x"}
    about |= {"adversary": "y", "utilisation": 0.5, **header}
    StoredMoves(MovesHeader(path=path, **about), moves).save(folder / f"{name}.moves.npz")


WORLD = {"models": ["cbr_delay", "ccac"], "steps_per_rtt": K, "episode_rtts": 16}


def small(**changes: Any) -> TrainConfig:
    data = {"name": "small", "total_steps": 256, "num_envs": 16, "environment": WORLD, "evaluation": {"n_paths": 4}}
    data["ppo"] = {"n_steps": 8, "batch_size": 64, "hidden": [8], "n_epochs": 1}
    return validate(TrainConfig, {**data, **changes}, "small.yaml")


def config(names: list[str], environment: dict[str, Any] | None = None, **robust: Any) -> TrainConfig:
    rounds = {"start_step": 128, "round_steps": 128, "budget_flow_steps": 2000, "searches": ["corners", "cem:population=4"]}
    rounds |= {"share": 0.75, "counterexamples": names}
    return small(environment={**WORLD, **(environment or {})}, robust={**rounds, **robust})


def test_counterexamples_play_their_own_path_beside_drawn_ones(tmp_path: Path) -> None:
    other = make_path(link_rate_mbps=20, rtt_ms=10, jitter_ms=10, buffer_bdp=4)
    store(tmp_path, "a")
    store(tmp_path, "b", other, seed=1)
    chosen = config([str(tmp_path)])
    examples = load_counterexamples(chosen)
    assert [Path(one.file).name for one in examples] == ["a.moves.npz", "b.moves.npz"]
    patterns = np.random.default_rng(2).random((3, 12 * K, 4))
    players, source = opponents(chosen, patterns, examples)
    names = [Path(player.name).name if isinstance(player, RecordedAdversary) else "" for player in players]
    assert sum(name != "" for name in names) == 12
    assert {name for name in names[:8] if name} == {f"pattern_{n}" for n in range(3)}  # cbr_delay: no counterexample is of it
    of_store = [b for b, name in enumerate(names) if name.endswith(".npz")]
    assert len(of_store) == 3 and min(of_store) >= 8 and names[of_store[0]] != names[of_store[1]] == "b.moves.npz"
    task = SenderTask(16, chosen.environment, adversaries=players, source=source)
    plain = SenderTask(16, chosen.environment, adversaries=players)
    for each in (task, plain):
        each.core.reset(seed=5)
    rates = task.core.env("link_rate_Bps")
    drawn = [b for b in range(16) if b not in of_store]
    np.testing.assert_array_equal(rates[drawn], plain.core.env("link_rate_Bps")[drawn])
    for b in of_store:
        one = examples[["a.moves.npz", "b.moves.npz"].index(names[b])]
        settings = chosen.environment.model_copy(update={"models": ("ccac",), "paths": one.path})
        recorded, groups = RecordedAdversary("x", one.moves), np.ones((1, 1), np.bool_)
        alone = Core(1, settings, senders=[ExternalSender()], adversary=recorded, groups=groups)
        alone.reset(seed=0)
        task.core.reset(seed=5)
        for step in range(16):
            rate_Bps = one.path.link_rate_Bps * (0.5 + step % 3)
            task.core.advance(np.full((16, 1), rate_Bps))
            alone.advance(np.full((1, 1), rate_Bps))
            assert task.core.delivered_bytes[b, 0] == alone.delivered_bytes[0, 0]
        assert alone.delivered_bytes[0, 0] > 0


def test_without_a_share_nobody_plays_them(tmp_path: Path) -> None:
    store(tmp_path, "a")
    chosen = config([str(tmp_path)], counterexample_share=0.0)
    players, _ = opponents(chosen, np.ones((1, 12 * K, 4)), load_counterexamples(chosen))
    assert not [player for player in players if player.name.endswith(".npz")]


def test_they_change_what_is_learnt_and_a_run_repeats(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store(folder, "a")
    weights = []
    for number, share in enumerate((1.0, 1.0, 0.0)):
        run = tmp_path / f"run-{number}"
        train(config([str(folder)], counterexample_share=share), run)
        weights.append((run / "policy.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("changes", "environment", "message"),
    [
        ({"steps_per_rtt": 8, "dt_s": 0.00375}, {}, "moves of 8 steps per Rm; environment.steps_per_rtt is 4"),
        ({"model": "strong"}, {}, "moves on strong; environment.models has cbr_delay, ccac"),
        ({"path": PATHS["long_jitter"]}, {}, "moves on the scene 'long_jitter', which robust.paths ['deep'] does not name"),
        ({"path": make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=30, n_flows=2)}, {}, "moves of 2 flows; robust training"),
        ({"steps": 17 * K}, {}, "moves of 17 Rm; environment.episode_rtts is 16"),
        ({}, {"paths": OWN.to_dict()}, "environment.paths must be a distribution"),
    ],
)
def test_what_does_not_fit_is_one_line_before_training(changes, environment, message, tmp_path):
    store(tmp_path, "a", **changes)
    with pytest.raises(InputError) as refused:
        train(config([str(tmp_path)], environment), tmp_path / "run")
    assert message in str(refused.value) and not (tmp_path / "run" / "checkpoint").exists()


def test_an_empty_folder_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \.moves\.npz file"):
        load_counterexamples(config([str(tmp_path)]))
    (tmp_path / "x.moves.npz").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"x\.moves\.npz"):
        load_counterexamples(config([str(tmp_path)]))


SETTINGS = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=K, episode_rtts=16)
DRAWN = DrawnAttacks(count=2, searches=("policy_cem:changes=0", "cem:population=4"), budget_flow_steps=2_000, keep_rounds=2)
N, SHARE = 32, 0.25


def attacked(**more: Any) -> AttackedPaths:
    return AttackedPaths(DRAWN, SETTINGS, N, SHARE, 3, **more)


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    return attacked().attack(make_sender("learned_nominal"), 1)  # type: ignore[arg-type]


def test_each_search_plays_on_each_drawn_path(found: list[Finding]) -> None:
    assert len(found) == 4 and found[0].path == found[1].path != found[2].path
    assert [type(one.adversary) for one in found] == 2 * [MlpAdversary, RecordedAdversary]
    for one in found:
        flow = one.path.flows[0]
        assert 0.5 <= flow.jitter_s / flow.rtt_s <= 2.0
    again = attacked().attack(make_sender("learned_nominal"), 1)  # type: ignore[arg-type]
    assert pack(again).keys() == pack(found).keys()
    assert all(np.array_equal(pack(again)[name], array) for name, array in pack(found).items())
    other = attacked().attack(make_sender("learned_nominal"), 2)  # type: ignore[arg-type]
    assert not {one.path.link_rate_Bps for one in other} & {one.path.link_rate_Bps for one in found}


def test_a_checkpoint_keeps_findings_bit_for_bit(found: list[Finding]) -> None:
    again = unpack(pack(found))
    sender = make_sender("cc_probe_drain")
    assert [one.path for one in again] == [one.path for one in found] and [one.round_ for one in again] == [1] * 4
    for one, other in zip(found, again, strict=True):
        game = Game(Scene(sender, one.path, "ccac", steps_per_rtt=K))
        assert game.play_adversaries([one.adversary])[0] == game.play_adversaries([other.adversary])[0]
    assert pack([]) == {} and unpack({}) == []


def test_a_share_of_the_environments_meets_what_was_found(found: list[Finding]) -> None:
    players, source = attacked().meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, N, SHARE)
    assert len(lanes) == 8 and min(lanes) >= N // 2, "cbr_delay is in the first half"
    plain = [b for b in range(N) if b not in lanes]
    assert all(players[b] is players[0] for b in plain)
    assert all(isinstance(players[b], (MlpAdversary, RecordedAdversary)) for b in lanes)
    assert len({len(players[b].moves) for b in lanes if isinstance(players[b], RecordedAdversary)}) == 1  # type: ignore[union-attr]
    drawn = source.draw(np.full(N, 5), np.arange(N), np.zeros(N, np.int64))
    rates = [one.path.link_rate_Bps for one in found]
    for b in lanes:
        assert drawn.initial_C_L_Bps[b] == 0.0
        if isinstance(players[b], RecordedAdversary):
            assert drawn.paths.link_rate_Bps[b] in rates, "moves belong to their path"
    assert not set(drawn.paths.link_rate_Bps[plain]) & set(rates)


def test_policies_also_play_where_nobody_searched(found: list[Finding]) -> None:
    many = AttackedPaths(DRAWN, SETTINGS, 512, 0.5, 3)
    players, source = many.meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, 512, 0.5)
    drawn = source.draw(np.full(512, 5), np.arange(512), np.zeros(512, np.int64))
    rates = {one.path.link_rate_Bps for one in found}
    away = [b for b in lanes if drawn.paths.link_rate_Bps[b] not in rates]
    policies = [b for b in lanes if isinstance(players[b], MlpAdversary)]
    assert set(away) < set(policies) and 0.35 < len(away) / len(policies) < 0.65
    assert len({drawn.paths.link_rate_Bps[b] for b in away}) > ELSEWHERE / 4


def test_old_rounds_are_forgotten_and_stored_moves_stay(found: list[Finding]) -> None:
    path = make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=45, buffer_bdp=2)
    stored = RecordedAdversary("stored", np.random.default_rng(0).random((40, 4)))
    with_store = attacked(given=[(path, stored)], given_share=1.0)
    assert with_store.newest(found, 3) == [] and with_store.newest(found, 2) == found
    players, source = with_store.meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, N, SHARE)
    drawn = source.draw(np.full(N, 5), np.arange(N), np.zeros(N, np.int64))
    for b in lanes:
        assert players[b].name == "stored" and drawn.paths.link_rate_Bps[b] == path.link_rate_Bps
        np.testing.assert_array_equal(players[b].moves[:40], stored.moves)  # type: ignore[union-attr]
        np.testing.assert_array_equal(players[b].moves[-1], stored.moves[-1])  # type: ignore[union-attr]


def attacked_config(robust: dict[str, Any]) -> TrainConfig:
    rounds = {"start_step": 128, "round_steps": 128, "paths": [], "share": 0.5, "drawn": DRAWN.model_dump(mode="json")}
    return small(total_steps=512, robust={**rounds, **robust})


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_counterexamples_beside_drawn_attacks_have_their_share(share: float, found: list[Finding], tmp_path: Path) -> None:
    store(tmp_path, "a")
    chosen = attacked_config({"counterexamples": [str(tmp_path)], "counterexample_share": share})
    players, _ = attacked_paths(chosen, load_counterexamples(chosen)).meet(found, 1)  # type: ignore[union-attr]
    assert sum(player.name.endswith(".npz") for player in players) == share * len(lanes_under_attack(SETTINGS, 16, 0.5))


def test_a_run_goes_on_in_a_round_and_ends_the_same(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, attacked_config({}), [384], attacked_config({"share": 0.0}))


@pytest.mark.parametrize(
    ("robust", "said"),
    [({"paths": ["deep"]}, "set paths and policies to"),
     ({"share": 0.75}, "share 0.75 asks for 12 environments, 8 of 16 play ccac"),
     ({"drawn": {"searches": ["hoard"]}}, "unknown search 'hoard'"),
     ({"drawn": {"searches": ["slow_link"]}}, "unknown search 'slow_link'"),
     ({"drawn": {"searches": ["policy_cem:changes=2"]}}, "changes"), ({"drawn": {"cuont": 2}}, "count")],
)  # fmt: skip
def test_what_cannot_be_attacked(robust: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        attacked_config(robust)


def test_a_search_may_keep_the_policy_itself() -> None:
    path = make_path(link_rate_mbps=10, rtt_ms=40, jitter_ms=40)
    scene = Scene(make_sender("cc_probe_drain"), path, "ccac", "engine", K, 8, 8)
    found = make_search("policy_cem:changes=0").run(Game(scene), 10_000, 0)
    assert isinstance(found.adversary, MlpAdversary)
    assert isinstance(make_search("policy_cem").run(Game(scene), 10_000, 0).adversary, RecordedAdversary)


DISTRIBUTION = PathDistribution()
LANES = np.arange(4)


def source(**settings: Any) -> ReplayedPaths:
    return ReplayedPaths(DISTRIBUTION, 4, 4, ReplaySettings(**{"share": 1.0, "size": 4, **settings}))


def draw(paths: PathSource, episode: int, lanes: np.ndarray = LANES) -> np.ndarray:
    drawn = paths.draw(np.full(len(lanes), 9), lanes, np.full(len(lanes), episode))
    return np.column_stack([drawn.keys, drawn.paths.link_rate_Bps, drawn.paths.buffer_bytes, drawn.initial_C_L_Bps])


def played(gains: list[float], **settings: Any) -> ReplayedPaths:
    """Four environments that have begun, and one rollout of three steps in which each plays one whole episode."""
    paths = source(**settings)
    draw(paths, 0)
    paths.begin(np.ones(4, np.bool_))
    paths.score(np.array([gains] * 3), np.eye(3, 1) * np.ones(4))
    return paths


GAINS = [0.1, 0.4, 0.2, 0.3]


def test_until_enough_is_known_every_path_is_new_then_none_and_a_draw_stays_while_its_episode_lasts() -> None:
    first = draw(PathSource(DISTRIBUTION, 4, 1), 0)
    np.testing.assert_array_equal(draw(source(), 0), first)
    paths = played(GAINS)
    again = draw(paths, 1)
    assert {tuple(row) for row in again} <= {tuple(row) for row in first}  # now all are known ones, whole levels
    paths.score(np.ones((3, 4)), np.zeros((3, 4)))
    np.testing.assert_array_equal(draw(paths, 1), again)


def test_scores_are_those_of_a_plain_loop() -> None:
    generator = np.random.default_rng(0)
    paths = source(size=50, share=0.0)
    draw(paths, 0)
    paths.begin(np.array([True, False, True, False]))
    expected: dict[tuple[int, int], float] = {}
    current, number = [(lane, 0) for lane in range(4)], [0] * 4
    starting = [True, False, True, False]
    for _ in range(6):
        advantages, starts = generator.normal(size=(5, 4)), np.zeros((5, 4))
        for lane in range(4):
            own: list[float] = []
            begun = starting[lane]
            starting[lane] = False
            for step in range(5):
                if begun:
                    starts[step, lane] = 1
                    if step:
                        expected[current[lane]] = float(np.mean(own))
                        own = []
                        current[lane] = (lane, number[lane])
                own.append(max(0.0, float(advantages[step, lane])))
                begun = False
                if generator.random() < 0.3:  # the episode ends after this step
                    number[lane] += 1
                    draw(paths, number[lane], np.array([lane]))
                    begun = True
            expected[current[lane]] = float(np.mean(own))
            if begun:
                starting[lane] = True
                current[lane] = (lane, number[lane])
        # What stands at its start next time has its level already: the first step of the next rollout begins it.
        paths.score(advantages, starts)
    state = paths.state()
    found = {tuple(level): score for level, score in zip(state["levels"].tolist(), state["scores"].tolist(), strict=True)}
    assert found.keys() == expected.keys()
    for level, score in expected.items():
        assert found[level] == pytest.approx(score)


def test_probabilities_go_by_rank_and_by_age_and_the_lowest_regret_is_forgotten() -> None:
    weights = np.array([1 / 4, 1, 1 / 3, 1 / 2])
    np.testing.assert_allclose(played(GAINS, temperature=1.0, staleness=0.0).probabilities(), weights / weights.sum())
    np.testing.assert_allclose(played(GAINS, staleness=1.0).probabilities(), np.array([3, 2, 1, 0]) / 6)
    assert played([0.1, 0.4, 0.2, 0.05], size=2).state()["levels"].tolist() == [[1, 0], [2, 0]]


def replay_config(**changes: Any) -> TrainConfig:
    usual: dict[str, Any] = {"total_steps": 1024, "num_envs": 8, "replay": {"share": 0.8, "size": 8}}
    usual |= {"environment": {"steps_per_rtt": 2, "episode_rtts": 10, "staggered": True}}
    usual |= {"ppo": {"n_steps": 16, "batch_size": 64, "hidden": [8], "n_epochs": 1}}
    return small(**{**usual, **changes})


def test_replay_goes_on_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, replay_config(), [384], replay_config(replay=None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"replay": {"share": 2}}, "replay.share"), ({"replay": {"sise": 2}}, "sise"),
     ({"robust": {"start_step": 1, "round_steps": 1}}, "no robust rounds"),
     ({"algorithm": "sac"}, "replay is for PPO senders")],
)  # fmt: skip
def test_bad_settings_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        replay_config(**changes)
    assert message in str(refused.value)
