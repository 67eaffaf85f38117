"""``ccenv attack``: search the worst network for a sender, on curves or with the delay elements of a packet scenario.

``ccenv gap``: the worst case found by searches against the bound proved by the solver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import hash_value, json_bytes, plain, write_atomic
from ccenv.base.provenance import code_hash, machine, versions
from ccenv.base.registry import number
from ccenv.base.units import MBPS, SECONDS_OF_MS, STEPS, buffer_units, jitter_units, positive, quantity, steps_or_seconds
from ccenv.cli.completion import configs, names
from ccenv.cli.options import (
    JsonOption,
    SettingsOption,
    argument,
    budget_option,
    choices,
    fresh_option,
    option,
    out_option,
    quantity_option,
    seconds_option,
    settings,
)
from ccenv.cli.output import print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from ccenv.agents.sender import Sender
    from ccenv.attacks.run import AttackResult
    from ccenv.attacks.store import AttackFolder
    from ccenv.network.path import Path as NetworkPath

RUNS = Path("runs") / "attack"
EXIT_ILLEGAL = 1
DEFAULT_STEPS = 8  # per Rm
NEEDS_RATIO = ("starvation", "strong_starvation")
NEEDS_CMA = ("cma_es", "policy_cma_es")
WITH_THEOREM = "ever_delay"
BESIDE = {(WITH_THEOREM, "starvation"): ("copa", "exp_delay")}
"""Whom a sender with a bound is told beside, by its name and the goal, unless -s beside says otherwise."""


def command(
    agent: Annotated[
        str, argument("AGENT", "A sender: name, program (.json), FILE.py, checkpoint or folder of a run.", names("agents"))
    ],
    *,
    model: Annotated[str, option("Network model: cbr_delay, ccac or strong.", names("models"))] = "ccac",
    path: Annotated[
        str, option("deep | shallow | long_jitter | infinite | narrow (docs/adversaries.md).", names("paths"))
    ] = "deep",
    scenario: Annotated[
        str | None,
        option("Attack per packet: jitter boxes of a scenario that are external (docs/environments.md).", configs("env")),
    ] = None,
    adversary: Annotated[
        list[str] | None,
        option(
            "Who attacks: name[:key=value,...], see ccenv list adversaries. Repeatable; default: the panel.", names("adversaries")
        ),
    ] = None,
    goal: Annotated[
        str,
        option(
            "utilisation | delay | loss | fairness | starvation (several flows) | qoe | page_load (with --scenario).",
            choices("utilisation", "delay", "loss", "fairness", "starvation", "qoe", "page_load"),
        ),
    ] = ("utilisation"),
    flows: Annotated[int, typer.Option(help="Flows of the sender on the path, each with the path's Rm and D.")] = 1,
    budget: Annotated[str | None, budget_option("Of all adversaries together; default: 20Msteps, for plain Python 60s.")] = None,
    seed: Annotated[int, typer.Option(help="Decides searches and senders.")] = 0,
    timing: Annotated[str, typer.Option(help="engine, or smt: proof timing, one step per Rm.")] = "engine",
    set_: SettingsOption = None,
    out: Annotated[Path | None, out_option("Folder of result and traces; runs/attack/... by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what an interrupted attack has finished.")] = False,
    json: JsonOption = False,
) -> int:
    """Attack a sender with every adversary of a panel; the traces found are checked and stored.

    The same command resumes an interrupted attack. Exit code 1 if the checker refuses a trace.

    Engine steps of flows are the same work on every machine. Seconds are converted to steps once, by timing some runs; the
    result has the steps, with which the command repeats exactly.

    Example: ccenv attack copa --model ccac
    Example: ccenv attack mine.py --budget 2min
    Example: ccenv attack vegas --adversary starvation -s ratio=20 -s window_rtts=80
    Example: ccenv attack cc_probe_drain --model cbr_delay --flows 2 --goal fairness
    Example: ccenv attack copa --scenario jittered --budget 1Msteps
    """
    held = settings("attack", set_)
    if any(spec.partition(":")[0] in NEEDS_CMA for spec in adversary or ()):
        require_extra("cma", "attack")  # before kernels are compiled
    if scenario is not None:
        curve_options = {
            "--model": model != "ccac",
            "--path": path != "deep",
            "--flows": flows != 1,
            "--timing": timing != "engine",
        }
        curve_options |= {f"-s {key}": bool(held[key]) for key in held if key not in ("warmup_rtts", "window_rtts")}
        return attack_packets(
            agent, scenario, curve_options, adversaries=adversary, budget=budget, seed=seed, goal=goal, held=held, out=out,
            fresh=fresh, json=json,
        )  # fmt: skip
    from ccenv.agents.identity import sender_hash
    from ccenv.agents.learned.zoo import trained_on_scenes
    from ccenv.agents.load import load_sender
    from ccenv.agents.sender import ClassicSender
    from ccenv.attacks.catalog import PANEL
    from ccenv.attacks.run import DEFAULT_BUDGET, attack, default_budget_s
    from ccenv.attacks.store import FORMAT, AttackFolder

    sender = load_sender(agent)
    network_path = _add_flows(_path(path, *(held[key] for key in ("rate", "rtt", "jitter", "buffer"))), flows)
    adversaries = _set_ratio(adversary or list(PANEL), held["ratio"])
    played: dict[str, Any] = {"model": model, "adversaries": adversaries, "seed": seed, "timing": timing, "goal": goal}
    played |= {key: held[key] for key in ("steps_per_rtt", "warmup_rtts", "window_rtts", "calm_rtts")}
    steps, seconds = (None, default_budget_s(sender)) if budget is None else steps_or_seconds("--budget", budget)
    if seconds is None and steps is None:
        steps = DEFAULT_BUDGET
    first_row = held["warmup_rtts"] * (held["steps_per_rtt"] or (1 if timing == "smt" else DEFAULT_STEPS))

    def attacked(sender: Sender, allowed: dict[str, Any], out: Path | None) -> tuple[AttackResult[Any], dict[str, Any], Path]:
        key = hash_value({**played, **allowed, "path": network_path.to_dict(), "sender": sender_hash(sender)})
        asked = {"adversaries": adversaries, "seed": seed} | {k: v for k, v in allowed.items() if k == "budget_flow_steps"}
        out = out or RUNS / f"{sender.name}-{model}-{key[:8]}"
        folder = AttackFolder(out, FORMAT, key, code_hash(attack), fresh=fresh, first_row=first_row, **asked)
        return *_run(sender, partial(attack, sender, path=network_path, **played), allowed, folder), out

    beside = {name: load_sender(name) for name in held["beside"] or BESIDE.get((sender.name, goal), ())}
    allowed: dict[str, Any] = {"budget_flow_steps": steps} if seconds is None else {"budget_s": seconds}
    result, data, out = attacked(sender, allowed, out)
    if beside:
        allowed = {"budget_flow_steps": result.budget_flow_steps}
        others = {name: attacked(other, allowed, None)[0] for name, other in beside.items()}
        data["beside"] = {name: other.value_of(other.worst) for name, other in others.items()}
    if isinstance(sender, ClassicSender) and sender.name == WITH_THEOREM and not sender.source_sha256:
        from ccenv.proofs.theorems.fairness.applied import coverage

        data["theorem"] = coverage(sender, network_path, model, result.scene.steps_per_rtt)
    attacked_scenes = trained_on_scenes(agent)
    spent_s = round(sum(finding.seconds for finding in result.by_adversary.values()), 3)
    if json:
        about = {"budget_s": seconds, "seconds": spent_s, "trained_on_scenes": attacked_scenes, "settings": held}
        print_json(data | about)
    else:
        scene_name = data["scene"]
        place = f"{model}, another path" if scene_name is None else f"{model}, {data['scene_set']} scene {scene_name}"
        _print(result, place + (", which it was trained against" if scene_name in (attacked_scenes or []) else ""))
        spent = f"spent {data['flow_steps']} of {result.budget_flow_steps} flow-steps in {spent_s:.0f} s"
        again = f"; --budget {result.budget_flow_steps} repeats this attack exactly" if seconds is not None else ""
        print_text(spent + again)
        if beside:
            print_text("the same against others: " + ", ".join(f"{name} {value}" for name, value in data["beside"].items()))
        if "theorem" in data:
            print_text(f"the theorem's ratio of {data['theorem']['ratio']:.4g} is not promised here, since it takes for granted:")
            print_text("; ".join(data["theorem"]["broken"]))
        moves = f", its moves are {data['moves']}" if "moves" in data else ""
        print_text(f"wrote {out}; the worst trace is {data['trace']}{moves}")
    return _exit_code(result)


def _run(
    sender: Sender, play: Callable[..., AttackResult[Any]], allowed: dict[str, Any], folder: AttackFolder
) -> tuple[AttackResult[Any], dict[str, Any]]:
    """Play an attack in its folder; return the result, and its JSON object with the files."""
    with folder, progress_bar(f"attack {sender.name}") as show:
        if folder.budget_flow_steps is not None:
            allowed = {"budget_flow_steps": folder.budget_flow_steps}

        def report(done: int, budget_flow_steps: int) -> None:
            folder.budget_flow_steps = budget_flow_steps
            show(done, budget_flow_steps)

        result = play(**allowed, report=report, finished=folder.add, known=folder.findings, older=folder.older)
        return result, folder.store_result(result)


def _exit_code(result: AttackResult[Any]) -> int:
    broken = [finding for finding in result.by_adversary.values() if not finding.legal]
    if broken:
        others = f", and {len(broken) - 1} more adversaries" if len(broken) > 1 else ""
        print(f"ccenv: not legal: {broken[0].adversary}{others}: {broken[0].violations[0]}", file=sys.stderr)
    return EXIT_ILLEGAL if broken else 0


def _path(name: str, rate: str | None, rtt: str | None, jitter: str | None, buffer: str | None) -> NetworkPath:
    from ccenv.attacks.scenes import attack_path
    from ccenv.network.path import MBPS_IN_BPS, make_path

    base = attack_path(name)
    if rate is None and rtt is None and jitter is None and buffer is None:
        return base
    flow, rate_Bps = base.flows[0], base.link_rate_Bps if rate is None else quantity("-s rate", rate, MBPS) * MBPS_IN_BPS
    rtt_s = flow.rtt_s if rtt is None else number("path", "rtt_s", quantity("-s rtt", rtt, SECONDS_OF_MS), above=0)
    jitter_s = flow.jitter_s / flow.rtt_s * rtt_s if jitter is None else quantity("-s jitter", jitter, jitter_units(rtt_s))
    bdp_bytes = rate_Bps * rtt_s
    buffer_bytes = None if buffer is None else positive("-s buffer", buffer, buffer_units(bdp_bytes, base.mss_bytes))
    return make_path(
        link_rate_mbps=rate_Bps / MBPS_IN_BPS,
        rtt_ms=1e3 * rtt_s,
        jitter_ms=1e3 * jitter_s,
        buffer_bdp=base.buffer_bytes / base.bdp_bytes if buffer_bytes is None else buffer_bytes / bdp_bytes,
        mss_bytes=base.mss_bytes,
    )


def _add_flows(path: NetworkPath, n_flows: int) -> NetworkPath:
    """Return a path with several flows like its first. Raises InputError for a number out of range."""
    from ccenv.network.path import MAX_FLOWS

    n_flows = int(number("attack", "flows", n_flows, low=1, high=MAX_FLOWS, whole=True))
    return path if n_flows == 1 else path.model_copy(update={"flows": path.flows[:1] * n_flows})


def _set_ratio(adversaries: list[str], ratio: float | None) -> list[str]:
    """Pass ``--ratio`` on to the adversaries that read it."""
    if ratio is None:
        return adversaries
    if not any(name in NEEDS_RATIO for name in adversaries):
        raise InputError(f"-s ratio is for the adversaries {' and '.join(NEEDS_RATIO)}; give --adversary starvation")
    return [f"{name}:ratio={ratio:g}" if name in NEEDS_RATIO else name for name in adversaries]


def _print(result: AttackResult[Any], place: str) -> None:
    rows, metric = [], result.goal.metric
    for name, finding in result.by_adversary.items():
        failed = [key for key, held in finding.preconditions.items() if held is False]
        ratio = [f"ratio {finding.details['ratio']:.4g}"] if "ratio" in finding.details else []
        notes = "; ".join(ratio + [f"not {key}" for key in failed])
        rows.append([name, result.value_of(finding), finding.legal, finding.flow_steps, finding.seconds, notes])
    worst = result.value_of(result.worst)
    worst_text = "undefined" if worst is None else f"{worst:.4f}"
    title = f"{result.sender} on {place}: worst {metric} {worst_text}, by {result.worst_adversary}"
    print_table(title, ["adversary", metric, "legal", "flow-steps", "seconds", ""], rows)
    if older := result.of_older_code:
        print_text(f"{len(older)} of {len(rows)} found by older code and played again with the same outcome: {', '.join(older)}")


def attack_packets(
    agent: str,
    scenario: str,
    given: Mapping[str, bool],
    *,
    adversaries: Sequence[str] | None,
    budget: str | None,
    seed: int,
    goal: str,
    held: dict[str, Any],
    out: Path | None,
    fresh: bool,
    json: bool,
) -> int:
    """Search patterns of a scenario's delay elements, check and store the traces; return the exit code.

    The other arguments are options of ``ccenv attack`` and its settings; ``given`` tells which of the curve engine are set, where
    none may be. Without ``adversaries`` all searches are made, without ``out`` the folder is
    runs/attack/SENDER-SCENARIO-SEED.
    """
    from ccenv.agents.identity import sender_hash
    from ccenv.agents.load import load_sender
    from ccenv.attacks.boxes.run import attack_boxes, draw_scenario
    from ccenv.attacks.boxes.searches import SEARCHES
    from ccenv.attacks.goals import UTILISATION
    from ccenv.attacks.run import DEFAULT_BUDGET
    from ccenv.attacks.store import PACKET_FORMAT, AttackFolder
    from ccenv.simulation.ranges import load_distribution

    for name, is_given in given.items():
        if is_given:
            raise InputError(f"--scenario says what the network is and how it is played: leave out {name}")
    steps, seconds = (DEFAULT_BUDGET, None) if budget is None else steps_or_seconds("--budget", budget)
    if seconds is not None or steps is None:
        raise InputError(f"--budget {budget}: with --scenario it is counted in steps, such as 1Msteps")
    rtts = {key: held[key] for key in ("warmup_rtts", "window_rtts")}
    for name, value, low in (
        ("warmup_rtts", rtts["warmup_rtts"], 0),
        ("window_rtts", rtts["window_rtts"], 1),
        ("--seed", seed, 0),
    ):
        if not low <= value <= 1_000_000:
            raise InputError(f"{name} is {value}; it must be from {low} to 1000000")
    sender = load_sender(agent)
    distribution = load_distribution(scenario)
    settings: dict[str, Any] = {"adversaries": list(adversaries or SEARCHES), "seed": seed}
    settings |= rtts | {"goal": goal}
    allowed = {"budget_flow_steps": steps}
    played = draw_scenario(distribution, seed).model_dump(mode="json")
    key = hash_value({**settings, **allowed, "scenario": played, "sender": sender_hash(sender)})
    aim = "" if goal == UTILISATION else f"-{goal}"
    out = RUNS / f"{sender.name}-{Path(scenario).stem}-{seed}{aim}" if out is None else out
    folder = AttackFolder(out, PACKET_FORMAT, key, code_hash(attack_boxes), fresh=fresh)
    result, data = _run(sender, partial(attack_boxes, sender, distribution, **settings), allowed, folder)
    if json:
        print_json(data | {"settings": rtts})
    else:
        _print(result, f"{result.name}, per packet")
        print_text(f"wrote {out}; boxes that let everything go: {data['kind_utilisation']:.4f}")
    return _exit_code(result)


DEFAULT = (
    *("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel"),
    *("learned_nominal_u54", "learned_nominal_d4"),
    *("copa", "vegas", "reno", "cubic", "bbr1"),
)
EXIT_BELOW = 1


def run_gap(
    senders: Annotated[
        list[str] | None, argument("[AGENT]...", "Senders; by default the shipped programs and some classics.", names("agents"))
    ] = None,
    *,
    budget: Annotated[int, quantity_option("--budget", STEPS, "Engine steps of flows per row.")] = 20_000_000,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call; a longer one proves nothing.")] = 120.0,
    set_: SettingsOption = None,
    out: Annotated[Path | None, out_option("Write the table as JSON.", "FILE")] = None,
    json: JsonOption = False,
) -> int:
    """Compare the worst utilisation found with the proved bound in proof timing, window by window alike (docs/adversaries.md).

    Exit code 1 if a search found less than the proved bound: then the encoder or the engine is wrong.

    Example: ccenv gap cc_qdel cc_probe_drain
    """
    from ccenv.agents import make_sender
    from ccenv.agents.learned.zoo import trained_on_scenes
    from ccenv.attacks.catalog import PANEL
    from ccenv.attacks.gap import adversary_gap, gap_path
    from ccenv.attacks.scenes import scene_of, scene_set

    held = settings("gap", set_)
    require_extra("z3", "verify")
    with progress_bar("adversary gap") as show:
        rows = adversary_gap(senders or DEFAULT, budget_flow_steps=budget, time_limit_s=time_limit, report=show, **held)
    path = gap_path(held["buffer"])
    about: dict[str, Any] = {"buffer": held["buffer"], "T": held["samples"], "budget_flow_steps": budget, "seed": held["seed"]}
    about |= {"adversaries": list(PANEL), "path": path.to_dict(), "scene": scene_of(path), "scene_set": scene_set(scene_of(path))}
    attacked_scenes = {make_sender(spec).name: trained_on_scenes(spec) for spec in senders or DEFAULT}
    row_data = [row.to_dict() | {"trained_on_scenes": attacked_scenes[row.sender]} for row in rows]
    data = {**about, "machine": machine(), "versions": versions(), "rows": row_data}
    if out is not None:
        write_atomic(out, json_bytes(plain(data)))
    if json:
        print_json(data | {"settings": held})
    else:
        columns = [
            "sender",
            "model",
            "windows",
            "bound",
            "found",
            "ratio",
            "method",
            "searched",
            "cold_start",
            "free_start",
            "legal",
        ]
        table = [[getattr(row, name) for name in columns] + [row.found_in_any_window] for row in rows]
        print_table(f"adversary gap, {held['buffer']} buffer", [*columns, "any window"], table)
        if out is not None:
            print_text(f"wrote {out}")
    return EXIT_BELOW if any(row.holds is False for row in rows) else 0
