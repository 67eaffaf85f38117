"""Tables of trained configs and shipped policies, from docs/data/learning.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ccenv.attacks.scenes import REPORT, scene_set
from ccenv.envs.curve.settings import RewardWeights
from tables.training_records import ATTACK_SCENES, ATTACKED, group_by_config

Rows = list[dict[str, str]]
SEEN_MARK = {ATTACKED: "†"}
OTHER_MARK = "*"

Run = dict[str, Any]


def scores(record: Run) -> Rows:
    """Return the scores, a row per config: means over its seeds and, of several, lowest and highest."""
    rows = []
    for name, runs in group_by_config(record):
        rows.append(
            {
                "config": f"`{name}`",
                "learns": runs[0]["learns"],
                "seeds": ", ".join(str(run["seed"]) for run in runs),
                "steps": f"{max(run['steps'] for run in runs):,}",
                "score": _format_spread(runs, "evaluation", "score")
                + ("" if _has_default_reward(runs[0]["evaluation"]) else " (own)"),
                "utilisation": _format_mean(runs, "evaluation", "utilisation", 3),
                "queue (BDP)": _format_mean(runs, "evaluation", "queue_bdp", 2),
                "loss": _format_mean(runs, "evaluation", "loss", 3),
                "flows": str(runs[0]["evaluation"]["n_flows"]),
                "share": _format_spread(runs, "evaluation", "share", lambda run: run["evaluation"]["n_flows"] > 1),
                "Jain": _format_spread(runs, "evaluation", "jain", lambda run: run["evaluation"]["n_flows"] > 1),
                "score, common world": _format_spread(runs, "common", "score"),
                "wall s": _spread([run["seconds"] for run in runs if "seconds" in run], 0),
                "CPU s": _spread([run["cpu_seconds"] for run in runs if "cpu_seconds" in run], 0),
            }
        )
    return rows


def worst(record: Run) -> Rows:
    """Return the worst cases, a row per config.

    ``†`` marks an attack scenario that the sender was trained against, ``*`` a report scenario in the range
    of its training paths.
    """
    rows = []
    for name, runs in group_by_config(record):
        if not any(run["worst"] for run in runs):
            continue
        row = {"config": f"`{name}`"}
        for scene in ATTACK_SCENES:
            cases = [run["worst"][scene] for run in runs if scene in run["worst"]]
            mark = SEEN_MARK.get(cases[0]["seen"], "") if cases else ""
            if cases and not mark and scene_set(scene) == REPORT and cases[0]["seen"] is not None:
                mark = OTHER_MARK
            row[f"{scene} ({scene_set(scene)})"] = _spread([case["utilisation"] for case in cases]) + mark
        rows.append(row)
    return rows


def zoo(record: Run) -> Rows:
    """Return scores and worst cases of the shipped policies."""
    rows = []
    for name, entry in sorted(record["zoo"].items()):
        row = {"shipped policy": f"`{name}`", "score, common world": f"{entry['common']['score']:.3f}"}
        for scene, case in entry["worst"].items():
            row[f"{scene} ({case['set']})"] = f"{case['utilisation']:.3f}{SEEN_MARK.get(case['seen'], '')}"
        rows.append(row)
    return rows


def _has_default_reward(evaluation: dict[str, float]) -> bool:
    """Tell whether a score is by the default reward."""
    usual = RewardWeights()
    score = (
        usual.utilisation * evaluation["utilisation"] + usual.queue * evaluation["queue_bdp"] + usual.loss * evaluation["loss"]
    )
    return abs(evaluation["score"] - score) < 1e-9


def _values(runs: Sequence[Run], evaluation_key: str, key: str, include: Callable[[Run], bool]) -> list[float]:
    measured = [run[evaluation_key] for run in runs if include(run) and run.get(evaluation_key) is not None]
    return [evaluation[key] for evaluation in measured if key in evaluation]


def _format_spread(runs: Sequence[Run], evaluation_key: str, key: str, include: Callable[[Run], bool] = lambda run: True) -> str:
    return _spread(_values(runs, evaluation_key, key, include))


def _format_mean(runs: Sequence[Run], evaluation_key: str, key: str, digits: int) -> str:
    values = _values(runs, evaluation_key, key, lambda run: True)
    return f"{_mean(values):.{digits}f}" if values else ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return ""
    mean = f"{_mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"
