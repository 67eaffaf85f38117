"""Attacks on real kernels: moves found by a search in the engine, played against the real stack."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.base.config import data_folder
from ccenv.base.errors import unknown_name
from ccenv.live.comparison import COUNTERPARTS, plot_beside, simulate_live
from ccenv.live.run import valid_run
from ccenv.live.scenario import CONFIGS, KERNEL, LiveError, LiveScenario, read_live_scenario
from ccenv.network.adversary import SUFFIX, MovesHeader, load_moves
from ccenv.network.path import MBPS_IN_BPS, Path

TRIES = 6  # to make a valid run


def shipped_moves() -> dict[str, FilePath]:
    """Return the files of moves that ccenv ships, by the sender that they were found against."""
    return {file.name.removesuffix(SUFFIX): file for file in sorted(data_folder(CONFIGS).glob("*" + SUFFIX))}


def moves_against(sender: str, file: str | None = None) -> FilePath:
    """Return the file of moves to play against a sender (``reno`` or ``kernel:reno`` for a kernel's, or a program).

    Without ``file`` these are the shipped ones.
    """
    if file is not None:
        return FilePath(file)
    counterpart_name = COUNTERPARTS.get(sender.removeprefix(KERNEL), sender)
    shipped = shipped_moves()
    if counterpart_name not in shipped:
        raise unknown_name("sender with a stored attack", sender, shipped)
    return shipped[counterpart_name]


def attack_scenario(sender: str, file: FilePath, *, calm: bool = False) -> LiveScenario:
    """Return the scenario of an attack with stored moves, which give path, model and grid; ``calm``: without moves and jitter.

    Raises LiveError for moves of a path that is not emulated.
    """
    stored = load_moves(file)
    header = stored.header
    if header.path.n_flows != 1 or header.model not in ("ccac", "cbr_delay") or header.path.flows[0].jitter_s <= 0:
        raise LiveError(f"{file}: moves for {header.path.n_flows} flows on {header.model} are not emulated; one on ccac is")
    if header.first_row >= len(stored.moves):
        raise LiveError(f"{file}: its window begins at step {header.first_row} of {len(stored.moves)}")
    adversary = None if calm else str(file)
    return path_scenario(sender, header.path, header.model, header.steps_per_rtt, len(stored.moves), header.first_row, adversary)


def path_scenario(
    sender: str, path: Path, model: str, steps_per_rtt: int, steps: int, first_row: int, adversary: str | None
) -> LiveScenario:
    """Return the scenario of a sender alone on a path of one flow, against an adversary; None: without jitter."""
    flow = path.flows[0]
    dt_s = flow.rtt_s / steps_per_rtt
    jitter = {} if adversary is None else {"jitter": {"kind": "adversary", "max_s": flow.jitter_s, "adversary": adversary}}
    return read_live_scenario(
        {
            "name": f"{sender.removeprefix(KERNEL)} {'alone' if adversary is None else 'attacked'}",
            "model": "cbr_delay" if adversary is None else model,
            "steps_per_rtt": steps_per_rtt,
            "duration_s": steps * dt_s,
            "warmup_s": first_row * dt_s,
            "log_s": dt_s,
            "mss_bytes": path.mss_bytes,
            "links": [{"rate_Bps": path.link_rate_Bps, "buffer_bytes": path.buffer_bytes}],
            "flows": [{"sender": sender, "rtt_s": flow.rtt_s, **jitter}],
        }
    )


def about_path(header: MovesHeader) -> dict[str, Any]:
    """Return what an attack's JSON says about the path of some moves."""
    path = header.path
    return {
        "model": header.model,
        "link_rate_mbps": path.link_rate_Bps / MBPS_IN_BPS,
        "rtt_ms": 1e3 * path.flows[0].rtt_s,
        "jitter_ms": 1e3 * path.flows[0].jitter_s,
        "buffer_bdp": path.buffer_bytes / path.bdp_bytes,
    }


def play_attack(
    sender: str, file: FilePath, *, calm: bool = True, tries: int = TRIES, plot: FilePath | None = None
) -> dict[str, Any]:
    """Play stored moves against a sender on the real stack and in the engine; return the utilisation of each."""
    scenario = attack_scenario(sender, file)
    attacked = valid_run(scenario, tries)
    header = load_moves(file).header
    out: dict[str, Any] = {
        "sender": sender,
        "moves": str(file),
        "found_against": header.sender,
        "found_by": header.adversary,
        **about_path(header),
    }
    engine = simulate_live(scenario)
    if plot is not None:
        plot_beside(plot, attacked, engine)
    out["simulated"] = engine.summary["links"][0]["utilisation"]
    out["live"] = attacked.summary()["links"][0]["utilisation"]
    runs = {"live": attacked}
    if calm:
        runs["calm"] = valid_run(attack_scenario(sender, file, calm=True), tries)
        out["calm"] = runs["calm"].summary()["links"][0]["utilisation"]
    out["valid"] = all(run.valid for run in runs.values())
    out["why_not_valid"] = [f"{name}: {reason}" for name, run in runs.items() for reason in run.why_not_valid]
    out["release_error_us"] = {name: run.punctuality()["release_error_us"] for name, run in runs.items()}
    out["tries"] = {name: len(run.earlier) + 1 for name, run in runs.items()}
    return out
