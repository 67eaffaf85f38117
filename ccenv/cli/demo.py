"""``ccenv demo``: train, attack, bench, verify and publish end to end, each stage an ordinary ccenv command."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import Format, write_atomic
from ccenv.base.foreign import parse_json
from ccenv.base.interrupts import end_with_parent
from ccenv.base.store import ResultFolder
from ccenv.cli.options import JsonOption, fresh_option, out_option
from ccenv.cli.output import print_json, print_text

STAGES = "stages.json"
FORMAT = Format("ccenv-demo", 1, "a stage file of ccenv demo", "format_version", older="--fresh starts anew")
_EXTRAS = (("stable_baselines3", "train"), ("torch", "train"), ("z3", "verify"), ("jinja2", "board"))
_INTERRUPTED = 130


@dataclass(frozen=True)
class Plan:
    """Settings of the demo."""

    config: str = "quick_sender"  # training run, about a minute
    attack: str = "attack"  # suite with all scripted adversaries
    suite: str = "quick"
    program: str = "cc_qdel"  # belief program to verify
    samples: int = 7  # T of the verification


@dataclass(frozen=True)
class DemoStep:
    """One step of the demo."""

    name: str  # in the stage file
    what: str  # one line of description
    arguments: tuple[str, ...]  # of the ccenv command, without `--json`
    tell: Callable[[dict[str, Any]], str]  # summarises the command's JSON in one line
    save_as: Path | None = None  # file for the command's JSON, for stages whose output is the input of the next
    again: bool = False  # run it every time, because it is quick and depends on all others


def make_stages(plan: Plan, out: Path) -> list[DemoStep]:
    trained, report = out / "train", out / "verification-report.json"
    bench = ("--agent", str(trained), "-s", "backend=processes")
    question = ("--model", "ccac", "--buffer", "infinite", "--property", "invariant", "--T", str(plan.samples))
    verify = ("verify", "property", plan.program, *question)
    return [
        DemoStep("train", "train a sender with PPO", ("train", plan.config, "--out", str(trained)), _summarize_training),
        DemoStep(
            "attack",
            "attack it and the classics with every scripted adversary",
            ("bench", "run", plan.attack, *bench, "--out", str(out / "bench" / "attack")),
            _summarize_attack,
        ),
        DemoStep(
            "bench",
            "compare them on the quick suite",
            ("bench", "run", plan.suite, *bench, "--out", str(out / "bench" / "suite")),
            _summarize_bench,
        ),
        DemoStep(
            "verify", f"verify {plan.program}", (*verify, "--out", str(out / "counterexamples")), _summarize_verdict, report
        ),
        DemoStep(
            "record",
            "put the verdict among the records",
            ("board", "add", str(report), "--records", str(out)),
            lambda result: f"wrote {result['record']}",
        ),
        DemoStep(
            "board",
            "make the page",
            ("board", "build", "--records", str(out), "--out", str(out / "board")),
            lambda result: f"{result['senders']} senders, {result['suites']} suites, {result['verifications']} verification",
            again=True,
        ),
    ]


def _summarize_training(result: dict[str, Any]) -> str:
    scores = result["evaluation"]
    return f"{result['steps']} steps in {result['seconds']:.0f} s; on held-out paths score {scores['score']:.3f}"


def _summarize_attack(result: dict[str, Any]) -> str:
    cases = [(entry["agent"], entry["worst_case"]) for entry in result["summary"] if entry["worst_case"]]
    return "worst utilisation found: " + ", ".join(f"{name} {case['value']:.2f} ({case['adversary']})" for name, case in cases)


def _summarize_bench(result: dict[str, Any]) -> str:
    scored = [(entry["agent"], entry["score"]) for entry in result["summary"] if entry["score"]]
    return f"{scored[0][1]['metric']}: " + ", ".join(f"{name} {score['iqm']:.2f}" for name, score in scored)


def _summarize_verdict(result: dict[str, Any]) -> str:
    return f"{result['verdict']} in {result['seconds']:.1f} s: {result['property']} on {result['model']}, T = {result['T']}"


def run_demo(out: Path, plan: Plan, *, fresh: bool = False, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the stages that are not finished yet; ``say`` is called with lines for the reader.

    Returns:
        dict: ``page`` (path of the board), ``seconds`` and per stage its command, seconds, result line and whether it was kept.

    Raises:
        MissingExtraError: before anything runs, if an optional dependency is not installed.
        InputError: if the folder holds something else.
        CcenvError: if a stage fails; finished stages are kept.
        KeyboardInterrupt: if a stage was interrupted.
    """
    for module, extra in _EXTRAS:
        require_extra(module, extra)
    with open_demo(out, fresh) as folder:
        return _run_stages(folder, make_stages(plan, out), say)


def open_demo(out: Path, fresh: bool = False) -> ResultFolder:
    """Return the folder of a demo, to be held. Raises InputError if it holds something else."""
    return ResultFolder(out, "a demo", STAGES, FORMAT, {}, fresh=fresh, owns=("*",))


def finished_stages(folder: ResultFolder) -> dict[str, Any]:
    """Return what a held folder says of finished stages, by name. Raises InputError if it is damaged."""
    done: Any = {} if folder.stored is None else folder.stored.get("stages")
    if not isinstance(done, dict) or not all(
        isinstance(one, dict) and {"command", "result"} <= one.keys() for one in done.values()
    ):
        raise InputError(f"{folder.path / STAGES}: not {FORMAT.what}; --fresh starts anew")
    return done


def _run_stages(folder: ResultFolder, stages: list[DemoStep], say: Callable[[str], None]) -> dict[str, Any]:
    """Run the missing stages in a locked folder."""
    done = finished_stages(folder)
    folder.write({"stages": done})
    begin = time.perf_counter()
    report: list[dict[str, Any]] = []
    page = ""
    for number, stage in enumerate(stages, start=1):
        command = shlex.join(["ccenv", *stage.arguments])
        say(f"[{number}/{len(stages)}] {stage.what}\n      {command}")
        stored = done.get(stage.name)
        if stored is not None and stored["command"] == command and not stage.again:
            say(f"      kept: {stored['result']}")
            report.append({**stored, "name": stage.name, "kept": True})
            continue
        started = time.perf_counter()
        result = _run(stage)
        done[stage.name] = {"command": command, "seconds": round(time.perf_counter() - started, 1), "result": stage.tell(result)}
        folder.write({"stages": done})
        say(f"      {done[stage.name]['result']} ({done[stage.name]['seconds']} s)")
        report.append({**done[stage.name], "name": stage.name, "kept": False})
        page = result.get("index", page)
    return {"page": page, "seconds": round(time.perf_counter() - begin, 1), "stages": report}


def _run(stage: DemoStep) -> dict[str, Any]:
    """Run a stage as a separate command, exactly as shown to the reader; progress goes to the terminal."""
    command = [sys.executable, "-m", "ccenv.cli.main", *stage.arguments, "--json"]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=False, preexec_fn=end_with_parent)
    if process.returncode == _INTERRUPTED:
        raise KeyboardInterrupt
    try:
        result = parse_json(process.stdout, f"stage {stage.name}")
    except InputError:
        result = None
    if not isinstance(result, dict):
        raise CcenvError(f"demo: stage {stage.name!r} failed with exit code {process.returncode}; finished stages are kept")
    if stage.save_as is not None:
        write_atomic(stage.save_as, process.stdout)
    return result


def command(
    *,
    out: Annotated[Path, out_option("Folder of everything that the demo makes.")] = Path("runs") / "demo",
    fresh: Annotated[bool, fresh_option("Start anew instead of keeping finished stages.")] = False,
    json: JsonOption = False,
) -> None:
    """Train a sender, attack it, bench it, verify a program and make the leaderboard page: a few minutes on two cores.

    Finished stages are kept: run it again after an interruption.

    Example: ccenv demo
    """
    result = run_demo(out, Plan(), fresh=fresh, say=(lambda _: None) if json else print_text)
    if json:
        print_json(result)
        return
    print_text(
        "\n".join(
            [
                "",
                f"Done in {result['seconds']} s. Try next:",
                "  ccenv show cc_probe_drain                      the program behind a name",
                "  ccenv verify property cc_qdel --T 7            a solver proves it on every network of a model",
                "  ccenv train ppo_sender                         a sender trained for longer",
                "  ccenv bench run quick --agent FOLDER           and how it compares",
                "",
                "Open this page:",
                str(Path(result["page"]).resolve()),
            ]
        )
    )
