"""``ccenv attack``: look for the network that hurts a sender most."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.completion import configs, names
from ccenv.cli.shared import budget_option, buffer_option, choices, fresh_option, out_option, rate_option, rtt_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.base.units import steps_or_seconds

if TYPE_CHECKING:
    from ccenv.attacks import AttackResult
    from ccenv.network.path import Path as NetworkPath

RUNS = Path("runs") / "attack"
EXIT_ILLEGAL = 1
DEFAULT_STEPS = 8  # per Rm
NEEDS_RATIO = ("starvation", "strong_starvation")


def command(
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            autocompletion=names("agents"),
            help="A sender: name, program (.json), FILE.py, checkpoint or folder of a run.",
        ),
    ],
    *,
    model: Annotated[
        str, typer.Option(autocompletion=names("models"), help="Network model: cbr_delay, ccac or strong.")
    ] = "ccac",
    path: Annotated[
        str,
        typer.Option(
            autocompletion=names("paths"), help="deep | shallow | long_jitter | infinite | narrow (docs/adversaries.md)."
        ),
    ] = "deep",
    scenario: Annotated[
        str | None,
        typer.Option(
            autocompletion=configs("env"),
            help="Attack per packet: jitter boxes of a scenario that are external (docs/packet-env.md).",
        ),
    ] = None,
    rate: Annotated[float | None, rate_option("C instead of the path's.")] = None,
    rtt: Annotated[float | None, rtt_option("Rm instead of the path's; D and the buffer keep their multiples.")] = None,
    jitter: Annotated[
        str | None,
        typer.Option(
            "--jitter", "--jitter-rtts", metavar="NUMBER[rtt|ms|s]", help="D instead of the path's, such as 1rtt or 20ms."
        ),
    ] = None,
    buffer: Annotated[str | None, buffer_option("Buffer instead of the path's, such as 4bdp.")] = None,
    adversary: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=names("adversaries"),
            help="Who attacks: name[:key=value,...], see ccenv list adversaries. Repeatable; default: the panel.",
        ),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            autocompletion=choices("utilisation", "delay", "loss", "fairness", "starvation", "qoe", "page_load"),
            help="utilisation | delay | loss | fairness | starvation (several flows) | qoe | page_load (with --scenario).",
        ),
    ] = ("utilisation"),
    flows: Annotated[int, typer.Option(help="Flows of the sender on the path, each with the path's Rm and D.")] = 1,
    ratio: Annotated[float | None, typer.Option(help="Throughput ratio that the starvation adversaries aim at.")] = None,
    budget: Annotated[str | None, budget_option("Of all adversaries together; default: 20Msteps, for plain Python 60s.")] = None,
    seed: Annotated[int, typer.Option(help="Decides searches and senders.")] = 0,
    timing: Annotated[str, typer.Option(help="engine, or smt: proof timing, one step per Rm.")] = "engine",
    steps_per_rtt: Annotated[int | None, typer.Option(help="K, engine steps per Rm; default 8, in proof timing 1.")] = None,
    warmup_rtts: Annotated[int, typer.Option(help="Rm before the measured window; the attack runs already.")] = 60,
    window_rtts: Annotated[int, typer.Option(help="Rm measured.")] = 60,
    calm_rtts: Annotated[int, typer.Option(help="Rm at the start in which the network is kind.")] = 0,
    out: Annotated[Path | None, out_option("Folder of result and traces; runs/attack/... by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what an interrupted attack has finished.")] = False,
    json: JsonOption = False,
) -> int:
    """Attack a sender with every adversary of a panel; the traces found are checked and stored.

    The same command goes on with an interrupted attack. Exit code 1 if the checker refuses a trace.

    Engine steps of flows are the same work on every machine. Seconds are turned into steps once, by timing some runs; the
    result names the steps, and the command repeats exactly with them.

    Example: ccenv attack copa --model ccac
    Example: ccenv attack mine.py --budget 2min
    Example: ccenv attack vegas --adversary starvation --ratio 20
    Example: ccenv attack cc_probe_drain --model cbr_delay --flows 2 --goal fairness
    Example: ccenv attack copa --scenario jittered --budget 1Msteps
    """
    if scenario is not None:
        from ccenv.cli.attack_packets import attack_packets

        given = {
            "--model": (model, "ccac"), "--path": (path, "deep"), "--rate": (rate, None), "--rtt": (rtt, None),
            "--jitter": (jitter, None), "--buffer": (buffer, None),
            "--flows": (flows, 1), "--ratio": (ratio, None), "--timing": (timing, "engine"),
            "--steps-per-rtt": (steps_per_rtt, None), "--calm-rtts": (calm_rtts, 0),
        }  # fmt: skip
        return attack_packets(
            agent, scenario, given, adversaries=adversary, budget=budget, seed=seed, warmup_rtts=warmup_rtts,
            window_rtts=window_rtts, goal=goal, out=out, fresh=fresh, json=json,
        )  # fmt: skip
    from ccenv.agents.load import load_sender
    from ccenv.agents.learned.zoo.scenes import trained_on_scenes
    from ccenv.attacks import PANEL, attack
    from ccenv.attacks.run import DEFAULT_BUDGET, default_budget_s
    from ccenv.attacks.store import AttackFolder
    from ccenv.cli.progress import progress_bar
    from ccenv.base.document import hash_of
    from ccenv.agents.identity import sender_hash
    from ccenv.base.provenance import code_hash

    sender = load_sender(agent)
    where = _with_flows(_path(path, rate, rtt, jitter, buffer), flows)
    adversaries = _with_ratio(adversary or list(PANEL), ratio)
    settings: dict[str, Any] = {
        "model": model,
        "adversaries": adversaries,
        "seed": seed,
        "timing": timing,
        "steps_per_rtt": steps_per_rtt,
        "warmup_rtts": warmup_rtts,
        "window_rtts": window_rtts,
        "calm_rtts": calm_rtts,
        "goal": goal,
    }
    steps, seconds = (None, default_budget_s(sender)) if budget is None else steps_or_seconds("--budget", budget)
    if seconds is None and steps is None:
        steps = DEFAULT_BUDGET
    wanted = {"budget_flow_steps": steps} if seconds is None else {"budget_s": seconds}
    key = hash_of({**settings, **wanted, "path": where.to_dict(), "sender": sender_hash(sender), "code": code_hash(attack)})
    first_row = warmup_rtts * (steps_per_rtt or (1 if timing == "smt" else DEFAULT_STEPS))
    with AttackFolder(out or RUNS / f"{sender.name}-{model}-{key[:8]}", key, fresh, first_row) as folder:
        steps = folder.budget_flow_steps or steps
        with progress_bar(f"attack {sender.name}") as show:

            def report(done: int, allowed: int) -> None:
                folder.budget_flow_steps = allowed
                show(done, allowed)

            result = attack(
                sender,
                path=where,
                budget_flow_steps=steps,
                budget_s=None if steps else seconds,
                report=report,
                finished=folder.add,
                known=folder.findings,
                **settings,
            )
        spent_s = round(sum(finding.seconds for finding in result.by_adversary.values()), 3)
        data = folder.finish(result) | {"budget_s": seconds, "seconds": spent_s}
    met = trained_on_scenes(agent)
    if json:
        print_json(data | {"trained_on_scenes": met})
    else:
        _print(result, met or [])
        spent = f"spent {data['flow_steps']} of {result.budget_flow_steps} flow-steps in {spent_s:.0f} s"
        again = f"; --budget {result.budget_flow_steps} repeats this attack exactly" if seconds is not None else ""
        print_text(spent + again)
        moves = f", its moves are {data['moves']}" if "moves" in data else ""
        print_text(f"wrote {folder.folder}; the worst trace is {data['trace']}{moves}")
    broken = [finding for finding in result.by_adversary.values() if not finding.legal]
    if broken:
        many = f", and {len(broken) - 1} more adversaries" if len(broken) > 1 else ""
        print(f"ccenv: not legal: {broken[0].adversary}{many}: {broken[0].violations[0]}", file=sys.stderr)
    return EXIT_ILLEGAL if broken else 0


def _path(name: str, link_rate_mbps: float | None, rtt_s: float | None, jitter: str | None, buffer: str | None) -> NetworkPath:
    """Return a named path with some of its numbers replaced."""
    from ccenv.attacks import attack_path
    from ccenv.network.path import MBPS_IN_BPS, make_path
    from ccenv.base.parameters import number
    from ccenv.base.units import buffer_units, jitter_units, positive, quantity

    base = attack_path(name)
    if link_rate_mbps is None and rtt_s is None and jitter is None and buffer is None:
        return base
    flow, rate_Bps = base.flows[0], base.link_rate_Bps if link_rate_mbps is None else link_rate_mbps * MBPS_IN_BPS
    rtt = flow.rtt_s if rtt_s is None else number("path", "rtt_s", rtt_s, above=0)
    jitter_s = flow.jitter_s / flow.rtt_s * rtt if jitter is None else quantity("--jitter", jitter, jitter_units(rtt))
    bdp_bytes = rate_Bps * rtt
    buffer_bytes = None if buffer is None else positive("--buffer", buffer, buffer_units(bdp_bytes, base.mss_bytes))
    return make_path(
        link_rate_mbps=rate_Bps / MBPS_IN_BPS,
        rtt_ms=1e3 * rtt,
        jitter_ms=1e3 * jitter_s,
        buffer_bdp=base.buffer_bytes / base.bdp_bytes if buffer_bytes is None else buffer_bytes / bdp_bytes,
        mss_bytes=base.mss_bytes,
    )


def _with_flows(path: NetworkPath, n_flows: int) -> NetworkPath:
    """Return a path with several flows like its first. Raises InputError for a number out of range."""
    from ccenv.network.path import MAX_FLOWS
    from ccenv.base.parameters import number

    n_flows = int(number("attack", "flows", n_flows, low=1, high=MAX_FLOWS, whole=True))
    return path if n_flows == 1 else path.model_copy(update={"flows": path.flows[:1] * n_flows})


def _with_ratio(adversaries: list[str], ratio: float | None) -> list[str]:
    """Pass ``--ratio`` on to the adversaries that read it."""
    from ccenv.base.errors import InputError

    if ratio is None:
        return adversaries
    if not any(name in NEEDS_RATIO for name in adversaries):
        raise InputError(f"--ratio is for the adversaries {' and '.join(NEEDS_RATIO)}; give --adversary starvation")
    return [f"{name}:ratio={ratio:g}" if name in NEEDS_RATIO else name for name in adversaries]


def _print(result: AttackResult, trained_on: list[str]) -> None:
    from ccenv.attacks import scene_of, scene_set
    from ccenv.attacks.goals import UTILISATION, goal_of

    rows, usual = [], result.scene.goal == UTILISATION
    for name, finding in result.by_adversary.items():
        failed = [key for key, held in finding.preconditions.items() if held is False]
        ratio = [f"ratio {finding.details['ratio']:.4g}"] if "ratio" in finding.details else []
        notes = "; ".join(ratio + [f"not {key}" for key in failed])
        value = finding.worst_utilisation if usual else finding.value
        rows.append([name, value, finding.legal, finding.flow_steps, finding.seconds, notes])
    scene = result.scene
    known = scene_of(scene.path)
    where = f"{scene.model}, another path" if known is None else f"{scene.model}, {scene_set(known)} scene {known}"
    if known in trained_on:
        where += ", which it was trained against"
    metric = goal_of(scene.goal).metric
    worst = result.worst_utilisation if usual else result.worst.value
    told = "undefined" if worst is None else f"{worst:.4f}"
    title = f"{result.sender} on {where}: worst {metric} {told}, by {result.worst_adversary}"
    print_table(title, ["adversary", metric, "legal", "flow-steps", "seconds", ""], rows)
