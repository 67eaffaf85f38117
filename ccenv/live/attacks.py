"""Attacks on real kernels: moves found by a search in the engine, played against the real stack."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.base.config import data_folder
from ccenv.base.errors import unknown_name
from ccenv.live.comparison import COUNTERPARTS, plot_beside, simulate_live
from ccenv.live.run import valid_run
from ccenv.live.scenario import CONFIGS, KERNEL, LiveError, LiveScenario, read_live_scenario
from ccenv.network.adversary import SUFFIX, StoredMoves, load_moves
from ccenv.network.path import MBPS_IN_BPS

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

    Raises:
        LiveError: for moves of a path that is not emulated.
    """
    stored = load_moves(file)
    header = stored.header
    _require_emulated(stored, file)
    path, flow = header.path, header.path.flows[0]
    flow_settings: dict[str, Any] = {"sender": sender, "rtt_s": flow.rtt_s}
    if not calm:
        flow_settings["jitter"] = {"kind": "adversary", "max_s": flow.jitter_s, "adversary": str(file)}
    return read_live_scenario(
        {
            "name": f"{sender.removeprefix(KERNEL)} {'alone' if calm else 'attacked'}",
            "model": "cbr_delay" if calm else header.model,
            "steps_per_rtt": header.steps_per_rtt,
            "duration_s": len(stored.moves) * header.dt_s,
            "warmup_s": header.first_row * header.dt_s,
            "log_s": header.dt_s,
            "mss_bytes": path.mss_bytes,
            "links": [{"rate_Bps": path.link_rate_Bps, "buffer_bytes": path.buffer_bytes}],
            "flows": [flow_settings],
        }
    )


def _require_emulated(stored: StoredMoves, file: FilePath) -> None:
    header = stored.header
    if header.path.n_flows != 1 or header.model not in ("ccac", "cbr_delay") or header.path.flows[0].jitter_s <= 0:
        raise LiveError(f"{file}: moves for {header.path.n_flows} flows on {header.model} are not emulated; one on ccac is")
    if header.first_row >= len(stored.moves):
        raise LiveError(f"{file}: its window begins at step {header.first_row} of {len(stored.moves)}")


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
        "model": header.model,
        "link_rate_mbps": header.path.link_rate_Bps / MBPS_IN_BPS,
        "rtt_ms": 1e3 * header.path.flows[0].rtt_s,
        "jitter_ms": 1e3 * header.path.flows[0].jitter_s,
        "buffer_bdp": header.path.buffer_bytes / header.path.bdp_bytes,
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
