"""A whole league: the same however often it is interrupted, and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from small import SMALL, small

from ccenv.agents import make_sender
from ccenv.base.errors import InputError
from ccenv.base.files import hash_value
from ccenv.training.league.games import Mixtures, Payoffs, draw_scenes, play_payoffs
from ccenv.training.league.record import read_record
from ccenv.training.league.run import _exploitability, league
from ccenv.training.league.store import LeagueFolder, NetworkPart


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("league") / "whole"
    league(small(), folder)
    return folder


def record(folder: Path) -> dict:
    data = json.loads((folder / "league.json").read_text())
    del data["timing"]
    return data


def test_a_league_tells_what_it_played(played: Path) -> None:
    data, config = record(played), small()
    assert data["status"] == "finished" and data["senders"] == ["start", "cc_probe_drain", "round-00", "round-01"]
    assert data["networks"] == ["slowest", "uniform", *(f"round-{n:02d}-{place}" for n in range(2) for place in range(2))]
    for one in data["rounds"]:
        assert one["exploitability"] == pytest.approx(one["sender_gain"] + one["network_gain"])
        assert one["sender_gain"] >= 0 and one["network_gain"] >= -1e-9 and one["interval"][0] <= one["interval"][1]
        assert sum(one["sender_mixture"].values()) == pytest.approx(1.0)
        assert set(one["hold_outs"]["mean"]) == set(config.hold_outs)
    store, paths = LeagueFolder(played), draw_scenes(config)[0]
    sender = make_sender(str(played / "senders" / "round-01"))
    found = [store.network(store.part(f"networks/round-00-scene-0{k}", NetworkPart).networks[1]) for k in range(2)]
    attacked = [play_payoffs(config, sender, path, [one])[0] for path, one in zip(paths, found, strict=True)]
    value = 0.5 * data["nominal"][3] + 0.5 * sum(attacked) / 2
    assert data["payoffs"][3][3] == pytest.approx(value, rel=1e-12)
    for name in ("payoffs.png", "exploitability.png"):
        assert (played / name).read_bytes().startswith(b"\x89PNG")


def test_a_killed_league_ends_the_same(played: Path, tmp_path: Path) -> None:
    """What a kill leaves: finished parts, a player without its part, and the record of an earlier round."""
    folder = shutil.copytree(played, tmp_path / "killed")
    for part in ("networks/round-00-scene-01", "senders/round-01", "networks/round-01-scene-00", "networks/round-01-hold-out-00"):
        (folder / f"{part}.part.json").unlink()
    shutil.rmtree(folder / "senders" / "round-01")
    known = json.loads((folder / "league.json").read_text())
    known |= {"status": "running", "rounds": known["rounds"][:0]}
    (folder / "league.json").write_text(json.dumps(known))
    league(small(), folder)
    assert record(folder) == record(played)
    for name in ("senders/round-01/weights.safetensors", "payoffs.png", "exploitability.png"):
        assert (folder / name).read_bytes() == (played / name).read_bytes()


def test_a_finished_league_goes_on_with_more_rounds(played: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(played, tmp_path / "longer")
    data = league(small(rounds=3), folder)
    assert data["rounds"][:2] == record(played)["rounds"] and len(data["rounds"]) == 3


def test_a_league_of_another_config_or_of_more_rounds_is_not_replaced(played: Path) -> None:
    with pytest.raises(InputError, match=r"league of other settings \(config\.share is 0\.5, not 0\.25\); choose another --out"):
        league(small(share=0.25), played)
    before = (played / "league.json").read_bytes()
    with pytest.raises(InputError, match=r"rounds is 1, but .* holds 2 already; --fresh discards them"):
        league(small(rounds=1), played)
    assert (played / "league.json").read_bytes() == before


OLDER = "0" * 64


def age(played: Path, folder: Path, **changes: object) -> dict:
    """Copy a league as one of older code, with changes of its first round; return its record."""
    shutil.copytree(played, folder)
    data = json.loads((folder / "league.json").read_text()) | {"code": OLDER}
    data["rounds"][0] |= changes
    (folder / "league.json").write_text(json.dumps(data))
    return data


def test_a_league_of_older_code_goes_on_and_tells_which_rounds_are_of_it(played: Path, tmp_path: Path) -> None:
    folder, whole = tmp_path / "older", record(played)
    aged = age(played, folder, value=0.25)
    (folder / "networks" / "round-02-scene-00.part.json").write_text("of a round that older code did not finish")
    data = league(small(rounds=3), folder)
    assert data["code"] == whole["code"]
    for number, replayed in enumerate((False, True)):
        assert data["rounds"][number] == aged["rounds"][number] | {"code": OLDER, "replayed": replayed}
    assert "code" not in data["rounds"][2]
    assert data["rounds"][2] == league(small(rounds=3), shutil.copytree(played, tmp_path / "own"))["rounds"][2]
    assert [one.code for one in read_record(folder).rounds] == [OLDER, OLDER, None]
    again = league(small(rounds=3), folder)
    assert {**again, "timing": 0} == {**data, "timing": 0}


def test_a_round_of_older_code_without_all_its_parts_is_decided_anew(played: Path, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    age(played, folder)
    (folder / "networks" / "round-01-scene-00.part.json").unlink()
    rounds = league(small(), folder)["rounds"]
    assert rounds[1] == record(played)["rounds"][1] and rounds[0]["code"] == OLDER
    (folder / "senders" / "start.part.json").unlink()
    league(small(), folder)
    assert record(folder) == record(played)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"senders": []}, "senders: a population of one player cannot mix; at least 2"),
        ({"networks": ["slowest"]}, "networks: a population of one player cannot mix"),
        ({"networks": ["slowest", "slowest"]}, "named twice"),
        ({"search_flow_steps": 39}, "search_flow_steps is 39, too small for one evaluation: a run takes 40"),
        ({"hold_out_flow_steps": 1}, "hold_out_flow_steps is 1, too small"),
        ({"senders": ["cc_probe_drian"]}, "cc_probe_drain"),
        ({"answers": 4}, "answers is 4; there are 3 searches"),
        ({"searches": ["square"]}, "unknown search 'square'"),
        ({"searches": ["evil.py"]}, "unknown"),
        ({"hold_outs": ["uniform"]}, "'uniform' is trained against"),
        ({"hold_outs": ["square", "cem:population=128"], "searches": ["corners", "cem:population=64"]}, "is trained against"),
        ({"hold_outs": ["square", "square"]}, "hold_outs: one is named twice in square, square"),
        ({"searches": ["corners", "corners"]}, "searches: one is named twice"),
        ({"rounds": True}, "rounds: it must be a number (got True)"),
        ({"share": 0.01}, "leaves one side without environments"),
        (
            {"scenes": {"count": 2, "hold_outs": 1, "paths": {"jitter_rtts": [0, 1]}}},
            "paths.jitter_rtts begins at 0: without jitter the network has no choice",
        ),
        ({"training": {**SMALL["training"], "trains": "network"}}, "training"),
        ({"rond": 2}, "rond"),
    ],
)
def test_bad_leagues_are_one_line(changes: dict, message: str) -> None:
    with pytest.raises(InputError) as refused:
        small(**changes)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def forge(file: Path, **changes: object) -> None:
    """Change what a part says as somebody does who knows how it is sealed."""
    said = {**json.loads(file.read_text()), **changes}
    if "seal" not in changes:
        own = {key: value for key, value in said.items() if key not in ("format", "version", "seal")}
        said["seal"]["sha256"] = hash_value({**own, "files": said["seal"]["files"]})
    file.write_text(json.dumps(said))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)


def set_payoff(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "payoff": 0.125}))


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (set_payoff, "networks/round-00-scene-00.part.json", "has been changed since it was written"),
        (flip, "senders/start/weights.safetensors", "has been changed since it was written"),
        (flip, "senders/round-01/policy.safetensors", "has been changed since it was written"),
        (Path.unlink, "senders/round-00/policy.json", "is gone"),
        (lambda file: shutil.copy(file.with_name("start.part.json"), file), "senders/round-00.part.json", "start"),
    ],
)
def test_damaged_parts_are_refused(damage: Callable, name: str, message: str, played: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(played, tmp_path / "damaged")
    damage(folder / name)
    before = (folder / "league.json").read_bytes()
    with pytest.raises(InputError, match=message) as refused:
        league(small(rounds=3), folder)
    assert "\n" not in str(refused.value) and (folder / "league.json").read_bytes() == before


def test_moves_of_another_part_are_refused(played: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(played, tmp_path / "swapped")
    one, *others = sorted((folder / "networks").glob("round-00-scene-*"))
    one, *others = [file for file in (one, *others) if not file.name.endswith(".part.json")]
    shutil.copy(next(file for file in others if file.suffix == one.suffix), one)
    with pytest.raises(InputError, match=r"has been changed since it was written; remove .* to play this part again"):
        league(small(), folder)


@pytest.mark.parametrize("left", [(), (".lock",), (".lock", ".league.json.77.0a1b2c3d.tmp"), (".lock", "league.json")])
def test_what_a_kill_in_the_first_moment_leaves_is_played(left: tuple[str, ...], played: Path, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    for name in left:
        (folder / name).touch()
    if "league.json" in left:
        known = json.loads((played / "league.json").read_text())
        begun = {key: known[key] for key in ("format", "version", "config", "code")} | {"status": "running", "rounds": []}
        (folder / "league.json").write_text(json.dumps(begun))
    rounds = 2 if "league.json" in left else 1  # the others are played from nothing: as the first round, so the second
    league(small(rounds=rounds), folder)
    assert record(folder)["status"] == "finished" and record(folder)["rounds"] == record(played)["rounds"][:rounds]


def test_paths_keep_the_defaults_of_what_they_do_not_name() -> None:
    paths = small(scenes={"count": 2, "hold_outs": 1, "paths": {"link_rate_mss_per_rtt": [10, 20]}}).scenes.paths
    assert paths.jitter_rtts == (0.5, 2.0) and paths.seeded_share == 0.0


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [("networks/round-00-scene-00", {"payoff": "low"}, "payoff"),
     ("networks/round-00-scene-00", {"networks": ["uniform", "networks/../../x.moves.npz"]}, "a network"),
     ("networks/round-01-scene-01", {"networks": ["uniform", "networks/none.moves.npz"]}, "none.moves.npz"),
     ("networks/round-01-scene-01", {"seal": {"files": {}}}, "sha256"), ("networks/round-01-scene-01", {"seal": None}, "seal"),
     ("networks/round-00-hold-out-00", {"payoffs": 3}, "payoffs"),
     ("networks/round-00-hold-out-00", {"payoffs": {"square": 0.5}}, "not a part of this league"),
     ("networks/round-00-scene-01", {"networks": ["uniform"]}, "not a part of this league"),
     ("senders/round-00", {"more": 1}, "more")],
)  # fmt: skip
def test_forged_parts_are_one_line(part: str, changes: dict, message: str, played: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(played, tmp_path / "forged")
    forge(folder / f"{part}.part.json", **changes)
    before = (folder / "league.json").read_bytes()
    with pytest.raises(InputError, match=message):
        league(small(), folder)
    assert (folder / "league.json").read_bytes() == before or "round-01" in part


def test_a_look_that_the_budget_does_not_pay_is_refused_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hold_out_flow_steps: adversary 'mutation:width=1' has a budget of 2000"):
        league(small(hold_out_flow_steps=2000), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_exploitability_is_what_both_sides_gain() -> None:
    before = Payoffs(np.array([[0.8, 1.0]]), np.array([[[0.6, 0.4]]]), 0.5)
    after = Payoffs(np.array([[0.8, 1.0], [0.9, 0.9]]), np.array([[[0.6, 0.4]], [[0.8, 0.6]]]), 0.5)
    mixed = Mixtures(0.7, np.ones(1), np.ones((1, 2)))
    found = _exploitability(small(), mixed, before, after, np.array([0.3, 0.1]), 0)
    assert found["sender_gain"] == pytest.approx(0.5 * 0.9 + 0.5 * 0.7 - 0.7)
    assert found["network_gain"] == pytest.approx(0.7 - (0.5 * 0.9 + 0.5 * 0.2))
    # In both scenes the sender's answer gets .5 more than the network's answer leaves; on nominal paths .1 more, or .1 less.
    low, high = found["interval"]
    assert low == pytest.approx(0.5 * 0.5 - 0.5 * 0.1) and high == pytest.approx(0.5 * 0.5 + 0.5 * 0.1)
    worse = Payoffs(after.nominal * 0, after.attacked * 0, 0.5)
    useless = _exploitability(small(), mixed, before, worse, np.array([0.6, 0.4]), 0)
    assert useless["exploitability"] == pytest.approx(0.0)


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
def test_a_dead_worker_loses_nothing(played: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(SMALL))
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "ccenv.cli.main", "league", str(config), "-o", str(folder), "--json", "--jobs", "2"]

    def start() -> subprocess.Popen:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_for(part: str) -> None:
        end = time.monotonic() + 120
        while not (folder / f"{part}.part.json").is_file():
            assert time.monotonic() < end
            time.sleep(0.02)

    run = start()
    wait_for("networks/round-00-scene-00")
    workers = [worker for server in children(run.pid) for worker in children(server)]
    os.kill(workers[0], signal.SIGKILL)
    _, told = run.communicate(timeout=120)
    assert run.returncode == 2 and told.strip().splitlines()[-1].startswith("ccenv: error: a worker died")
    run = start()
    out, _ = run.communicate(timeout=240)
    assert run.returncode == 0 and json.loads(out)["status"] == "finished" and record(folder) == record(played)
