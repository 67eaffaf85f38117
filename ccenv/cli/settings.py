"""The settings of every command (``-s``, ``ccenv show settings COMMAND``), and what former options and commands are now."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel, Field

from ccenv.base.config import find_data, shipped_names
from ccenv.base.foreign import read_yaml
from ccenv.base.registry import load_target
from ccenv.base.settings import kinds_of, read_meanings, read_pairs, read_settings, settings_of, unknown_setting


@dataclass(frozen=True)
class Source:
    """Where the settings of a command come from."""

    target: str = ""  # function with the same keywords, or model of the command's config file
    names: tuple[str, ...] = ()  # of the function's keywords; none: all fields of the model
    more: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # further settings, by name
    configs: str = ""  # folder of shipped configs, for examples
    others: str = ""  # what any other key is, if the command takes some


def _own(annotation: Any, default: Any, meaning: str) -> tuple[Any, Any]:
    return annotation, Field(default, description=meaning)


_BACKEND = {"backend": _own(Literal["processes", "ray"], "processes", "what the workers are")}
_LOCAL = {"backend": _own(Literal["local", "processes", "ray"], "local", "where cells run; the results are the same")}
_SOLVER = {"seed": _own(int, 0, "of the solver"), **_BACKEND}
_PROOF = {
    **_SOLVER,
    "cubes": _own(int, 0, "split each query into 2^N by the delays that the sender sees; it rarely pays"),
    "recheck": _own(str | None, None, "decide every proof again with yices or cvc5"),
}
_SETTING = {"setting": _own(str | None, None, "what came before the trace: history (default where possible), sound or artefact")}
_SHIELD = {
    "lemmas": _own(str | None, None, "keep the lemmas and constants of this suite (name or .yaml), all but utilisation"),
    "settle": _own(int | None, None, "Rm at the start of a trace that utilisation skips"),
    "samples": _own(int | None, None, "trace length in samples one Rm apart (the suite's, or 11)"),
    **_BACKEND,
}
_EXPORT = Source(
    "ccenv.live.export:export_bpf",
    ("name", "rtt_s", "jitter_s"),
    {"chooser": _own(str | None, None, "of a shield: lo, middle, hi, user (a process answers), policy (compiled in)")},
)
_BOARD = {
    "certificates": _own(tuple[Path, ...], (), "folders with certificates of theorems beside the shipped ones; all are checked"),
    "league": _own(tuple[Path, ...], (), "records or folders of finished leagues to be shown"),
    "quic": _own(tuple[Path, ...], (), "records of the suite quic-v1 to be shown"),
}

SOURCES: dict[str, Source] = {
    "train": Source("ccenv.training.config:TrainConfig", configs="ccenv.configs.train"),
    "distill": Source(
        "ccenv.training.distill.run:DistillSettings",
        ("rounds", "time_limit_s", "recheck", "timeouts", "n_paths", "generations", "attack_flow_steps"),
        {
            "utilisation": _own(
                tuple[float, ...], (), "with --prove: utilisations to prove, a program each: a frontier; 0.54 by default"
            )
        },
    ),
    "data make": Source("ccenv.training.offline.config:DataConfig", more=_BACKEND, configs="ccenv.configs.data"),
    "league": Source("ccenv.training.league.config:LeagueConfig", more=_BACKEND, configs="ccenv.configs.league"),
    "attack": Source(
        "ccenv.attacks.run:attack",
        ("steps_per_rtt", "warmup_rtts", "window_rtts", "calm_rtts"),
        {
            "rate": _own(str | None, None, "C instead of the path's"),
            "rtt": _own(str | None, None, "Rm instead of the path's; D and the buffer keep their multiples"),
            "jitter": _own(str | None, None, "D instead of the path's, in RTTs or as a time"),
            "buffer": _own(str | None, None, "buffer instead of the path's, in BDP or bytes"),
            "ratio": _own(float | None, None, "throughput ratio that the starvation adversaries aim at"),
            "beside": _own(
                tuple[str, ...], (), "senders to attack in the same way; ever_delay's ratio is told beside copa, exp_delay"
            ),
        },
    ),
    "gap": Source("ccenv.attacks.gap:adversary_gap", ("buffer", "samples", "seed")),
    "trace check": Source("ccenv.network.laws:check_trace", ("tolerance",)),
    "links import": Source(more={"max_gap_s": _own(float, 60.0, "longest time between two rows; more is a gap")}),
    "links make": Source(
        more={
            "mean_mbps": _own(float, 20.0, "mean rate"),
            "length_s": _own(float | None, None, "after which the trace begins again"),
            "seed": _own(int, 0, "of its random numbers"),
        }
    ),
    "bench run": Source("ccenv.benchmarks.run.runner:run_suite", ("half_width", "beside"), _LOCAL),
    "compare": Source(
        "ccenv.benchmarks.compare:compare",
        ("jitter", "adversary", "seeds", "limit"),
        {
            "by": _own(str, "power", "with --kind: metric that ranks the senders"),
            "fresh": _own(bool, False, "with --kind: run again what is stored"),
        },
    ),
    "verify property": Source(
        more={
            "upper": _own(str, "paper", "windows of C_U: paper or exact"),
            "lambda_form": _own(str, "paper", "C_L_lambda: paper, sent/(T*+D), or grid, sent/(T*+D+1)"),
            "sent_share": _own(str, "1", "least share of what it decides that enters the queue; 0: limited by its application"),
            "loss_detection": _own(str, "oracle", "how window-based senders find losses: oracle (one Rm later) or dupacks"),
            **{key: value for key, value in _PROOF.items() if key != "recheck"},
        }
    ),
    "verify lemmas": Source(more=_SETTING | _PROOF),
    "verify fairness": Source(
        more={"model": _own(str, "cbr_delay", "cbr_delay, a delay element for each flow, or ccac, one for all"), **_PROOF}
    ),
    "verify envelope": Source("ccenv.proofs.claims.envelope:EnvelopeRun", ("time_limit_s",), _SETTING | _PROOF),
    "verify theorem": Source(
        more={
            "seed": _own(int, 0, "of the solver"),
            "cells": _own(tuple[str, ...], (), "with --grid: only these grids K:D, D in Rm"),
            "lasso": _own(int | None, None, "look for N traces that join, return to their state and break a claim"),
            "bounds": _own(dict[str, str], {}, "with lasso: another bound of a claim"),
        },
        others="a constant of the theorem (with --grid) or of the design (with --flows)",
    ),
    "certificate check": Source(
        more={
            "solver": _own(Literal["yices", "cvc5"], "yices", "the second solver of --solve"),
            "proofs": _own(bool, False, "decide the queries with cvc5 and have its proofs checked by ethos"),
        }
    ),
    "shield widen": Source(
        "ccenv.training.shields.search:Widening",
        ("seed", "timeouts"),
        _SHIELD | {"inside": _own(str | None, None, "stay inside this shield, such as a hull of solutions")},
    ),
    "shield frontier": Source(
        "ccenv.training.shields.search:Widening",
        ("call_s", "seed", "timeouts"),
        _SHIELD | {"n_paths": _own(int, 1024, "paths that the scores are measured on")},
    ),
    "synth": Source(
        more={
            "plain": _own(bool, False, "plain CEGIS, one candidate at a time: a slow cross-check"),
            "report": _own(str | None, None, "write a page (.html) about the run"),
            "recheck": _own(str | None, None, "prove every solution again with yices or cvc5"),
            **_BACKEND,
        }
    ),
    "export": _EXPORT,
    "live run": Source(
        more={
            "tries": _own(int | None, None, "runs while packets are written late; by default what fits into two minutes"),
            "control": _own(bool, False, "first without jitter; two flows again in swapped roles"),
            "seed": _own(int | None, None, "of the emulator's random numbers, instead of the scenario's"),
            "duration_s": _own(float | None, None, "instead of the scenario's"),
            "cpu_s": _own(float | None, None, "limit of a virtual guest's CPU time; by default 30 s and .05 s per Mbit"),
            "kernel": _own(str | None, None, "folder with boot and lib/modules for virtual runs of programs; by default /"),
            "wall_s": _own(float | None, None, "limit of a virtual run's time; by default 20 times cpu_s, at least 600 s"),
        }
    ),
    "live attack": Source(
        more={
            "calm": _own(bool, True, "also run without the moves"),
            "moves": _own(str | None, None, "a file of ccenv attack, instead of the shipped one"),
            "runs": _own(int, 48, "with --virtual: runs of the kernel in all"),
            "seed": _own(int, 0, "with --virtual: of the searches and the guest"),
            "adversaries": _own(list[str] | None, None, "with --virtual: searches, scripted ones, and 'stored' moves, mutated"),
        }
    ),
    "live load": _EXPORT,
    "sim": Source(
        "ccenv.simulation:simulate",
        ("profile",),
        {"packet_log": _own(str | None, None, "write what happened to each packet into this .npz")},
    ),
    "ode run": Source(
        "ccenv.engine.fluid.scenario:Scenario",
        ("step_ms", "duration_s"),
        {
            "variables": _own(str | None, None, "draw a flow's variables, as in Fig. 2, to this .png or .svg"),
            "flow": _own(int, 1, "which flow variables draws"),
        },
        others="a constant of the model",
    ),
    "ode sweep": Source(
        more={
            "step_ms": _own(float | None, None, "step of the method of steps, instead of the file's"),
            "mixes": _own(list[str] | None, None, "only these mixes"),
            "disciplines": _own(list[str] | None, None, "only these disciplines"),
            "buffers_bdp": _own(list[float] | None, None, "only these buffers"),
            "threads": _own(int | None, None, "at most so many threads; the result does not depend on it"),
            "steps": _own(list[float] | None, None, "compare these steps in ms: how much each metric moves against the finest"),
        },
        others="a constant of the model",
    ),
    "ode equilibrium": Source(
        more={
            "rate_mbps": _own(float, 100.0, "bottleneck rate"),
            "rtt_ms": _own(list[float], [35.0], "propagation RTT, one for all flows or one for each"),
            "delay_ms": _own(float, 10.0, "one-way bottleneck delay, the unit of --buffer"),
            "numeric": _own(bool, False, "search with the reduced model instead of using the theorems"),
            "plane": _own(Literal["queue", "shares"], "queue", "of the portrait: estimate and queue, or two estimates"),
            "simulate": _own(bool, False, "of a scenario: run it too, and show its means beside"),
        }
    ),
    "board pack": Source(
        more={
            "summary": _own(str, "", "what it does, one line"),
            "licence": _own(str, "MIT", "SPDX identifier"),
            "name": _own(str | None, None, "of the entry; the player's own by default"),
            "url": _own(str | None, None, "where more can be read (https)"),
            "method": _own(str, "", "how it was made, one line"),
            "suite": _own(str | None, None, "that it was made for; the board's nominal one by default"),
        }
    ),
    "board score": Source(more=_LOCAL | {"jobs": _own(int | None, None, "parallel workers; one per core by default")}),
    "board evaluate": Source(
        more={
            "pending": _own(bool, False, "only what was never done; otherwise also what older code did"),
            "retry": _own(bool, False, "also what failed with this code"),
            "traces": _own(bool, True, "store worst traces beside their views"),
            **_LOCAL,
            "cell_cpu_s": _own(float, 900.0, "CPU time that a run of a suite may use"),
            "cell_memory": _own(float, 8.0, "GiB that a process may use"),
        }
    ),
    "board audit": Source(
        more={
            "sample": _own(int, 20, "runs that are played again"),
            "proofs": _own(int, 5, "proved bounds that are decided again"),
            "time_limit_s": _own(float, 60.0, "of the solver per bound"),
            "keep": _own(bool, True, "store the outcome as a record"),
            "signer": _own(str | None, None, "the key that must have signed the files of --expect-head"),
        }
    ),
    "board build": Source(more=_BOARD),
    "board publish": Source(more=_BOARD | {"records": _own(bool, True, "the records beside the pages, for audits by anybody")}),
}


@cache
def model_of(command: str) -> type[BaseModel]:
    """Return the model of a command's settings; those of its config file are another model's (:func:`config_of`)."""
    source = SOURCES[command]
    return settings_of(load_target(source.target) if source.names else None, source.names, source.more)


def config_of(command: str) -> type[BaseModel] | None:
    """Return the model of the config file whose keys ``-s`` takes, if the command has one."""
    source = SOURCES[command]
    return load_target(source.target) if source.configs else None


def read(command: str, texts: Sequence[str], others: Sequence[str] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all settings of a command, and what was given for other keys, as in :func:`ccenv.base.settings.read_pairs`.

    ``others`` are the other keys that may be given; None: any, whose reader refuses what it does not know. Raises InputError.
    """
    pairs, model = read_pairs(texts), model_of(command)
    own = {key: value for key, value in pairs.items() if key.partition(".")[0] in model.model_fields}
    rest = {key: value for key, value in pairs.items() if key not in own}
    for key in rest:
        if others is not None and key not in others:
            raise unknown_setting(key, [*model.model_fields, *others], command)
    return read_settings(model, own, command), rest


# Common name of an option elsewhere -> its name in ccenv.
_OTHER_WORDS = {
    "--output": "--out",
    "--restart": "--fresh",
    "--force": "--fresh",
    "--overwrite": "--fresh",
    "--workers": "--jobs",
    "--processes": "--jobs",
    "--duration-s": "--duration",
    "--rate-mbps": "--rate",
    "--link-rate-mbps": "--rate",
}

OLD_COMMANDS: dict[str, str] = {
    "which": "ccenv compare --kind KIND",
    "replay": "ccenv trace replay FILE; against a sender: ccenv attack SENDER --adversary FILE --timing smt",
    "paths": "ccenv links",
    "trace show": "ccenv show FILE",
    "verify steady": "ccenv verify property NAME --property steady_...",
    "shield report": "ccenv shield frontier PROGRAM... -o DIR, which goes on with what DIR holds",
    "shield plot": "ccenv show PROGRAM -o FILE",
    "bench records": "python docs/tables reproduction",
    "live suite": "ccenv bench run live-worst-case",
    "live record": "python tests/live/record_kernel.py CC... -o FILE",
    "ode phase": "ccenv ode equilibrium MODEL --plot FILE",
    "ode convergence": "ccenv ode sweep NAME -s steps=0.01,0.05",
    "ode network": "ccenv ode equilibrium NAME",
    **{f"ode {word}": f"python docs/tables/record_fluid.py {word}" for word in ("statements", "fit", "compare", "report")},
}
"""Former command -> what to give now."""

_RECORD_TRAINING = "python docs/tables/record_training.py RECORD [JOBS]"
OLD_OPTIONS: dict[tuple[str, str], str] = {
    **{("train", option): _RECORD_TRAINING for option in ("--record", "--shipped", "--page", "--jobs")},
    ("bench report", "--record"): "python docs/tables/record_bench.py RECORDS RUN",
    **{("bench speed", f"--{part}"): f"ccenv bench speed {part}" for part in ("ode", "train", "synth")},
    ("report", "--folder"): "-o FOLDER",
    **{("trace replay", option): "ccenv attack SENDER --adversary FILE --timing smt" for option in ("--as-adversary", "--rtts")},
    ("shield hull", "--name"): "-o NAME.json",
    ("ode sweep", "--plots"): "--plot FOLDER",
    ("ode sweep", "--buffer"): "-s buffers_bdp=4,7",
    ("verify theorem", "--bound"): "-s bounds.CLAIM=X",
    ("board build", "--certificates"): "-s certificates=DIR,DIR",
}
"""Command and former option -> what to give now, where it is no setting of nearly the same name."""


def former_command(name: str) -> str:
    return f"ccenv {name} is now: {OLD_COMMANDS[name]}" if name in OLD_COMMANDS else ""


def usage_message(error: typer.TyperException) -> str:
    """Return the message for a wrong command line: one line that names the new or the right way, where there is one."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    command = " ".join(context.command_path.split()[1:]) if context is not None else ""
    if option is not None and context is not None:
        if (command, option) in OLD_OPTIONS:
            return f"{option} of ccenv {command} is now: {OLD_OPTIONS[command, option]}"
        if option == "--database" and command.startswith("board"):
            return "--database of ccenv board is now: key database of board.yaml in the folder of the board, or CCENV_DATABASE"
        other = _OTHER_WORDS.get(option, option)
        if any(other in parameter.opts for parameter in context.command.params):
            return f"No such option: {option}. Did you mean {other!r}?"
        if key := _setting_of(command, other):
            return f"{option} of ccenv {command} is now a setting: -s {key}=VALUE (ccenv show settings {command})"
    commands = getattr(getattr(context, "command", None), "commands", None)
    if context is not None and commands and error.format_message().startswith("No such command"):
        if former := former_command(f"{command} {error.format_message().split(chr(39))[1]}"):
            return former
        listed = ", ".join(f"{context.command_path} {name}" for name, below in commands.items() if not below.hidden)
        return f"{error.format_message()} There are: {listed}"
    return error.format_message()


def _setting_of(command: str, option: str) -> str | None:
    """Return the setting that a former option is, if any: its name, with a unit, a prefix or in the plural."""
    word = option.lstrip("-").removeprefix("no-").replace("-", "_")
    word = {"T": "samples", "time_limit": "time_limit|call"}.get(word, rf"{word}|{re.sub('_(ms|rtts|bdp|mbps)$', '', word)}")
    if command not in SOURCES:
        return None
    config = config_of(command)
    names = [*model_of(command).model_fields, *(config.model_fields if config else ())]
    return next((name for name in names if re.fullmatch(rf"(?:n_)?(?:{word})(?:_s|_ms|_mbps|es|s)?", name)), None)


@dataclass(frozen=True)
class Row:
    """One option or setting, as ``ccenv show settings`` prints it."""

    key: str
    type: str
    default: Any
    meaning: str
    example: str


def rows(command: str, found: Any) -> list[Row]:
    """Return the options and settings of a command, given by name and as Click has it."""
    listed = [_option_row(parameter, found.help or "") for parameter in found.params if parameter.param_type_name == "option"]
    listed = [row for row in listed if row.key not in ("--help", "--install-completion", "--show-completion")]
    if command in SOURCES:
        source, config = SOURCES[command], config_of(command)
        for model in (model_of(command), *([config] if config else [])):
            listed += _field_rows(model, "", source)
    return listed


_READ_WHOLE = ("training",)
"""Keys of a config that name another config, in place of a group of settings."""

EXAMPLES: dict[str, str] = {
    "environment.adversary": "kind", "environment.reward": "mine.py", "--against": "cubic", "--rtt": "40ms", "--jitter": "20ms",
    "--name": "mine", "--stack": "aioquic", "--rate": "24mbps", "--buffer": "2bdp", "--adversary": "kind", "--chooser": "middle",
    "--tag": "classic", "wall_s": "600", "adversaries": "square,stored",
    "--moves": "runs/attack/cubic/corners.moves.npz",
    "--kind": "agents", "--out": "runs/mine", "--seeds": "0,1,2", "--set": "settings.yaml",
    "--only": "deep/*", "--limit": "100", "--jobs": "2", "--sign": "~/.ssh/id_ed25519", "--suite": "quick", "--seed": "1",
    "--agent": "mine.json", "--setting": "history", "--at-most": "1.5", "--recheck": "yices", "--T": "7", "--budget": "10min",
    "--time-limit": "60s", "--plot": "picture.svg", "--trace": "run.npz", "--duration": "10s", "--params": "artefact",
    "name": "mine", "inner": "copa", "shield": "learned_shield_u80", "decision_steps": "4", "utilisation": "0.54,0.6",
    "policies": "runs/attacker-0", "counterexamples": "runs/attack/copa", "networks": "runs/attacker-0", "recheck": "yices",
    "timeouts": "artefact", "steps_per_rtt": "4", "rate": "50mbps", "rtt": "40ms", "jitter": "20ms", "buffer": "4bdp",
    "ratio": "20", "cpu_s": "60", "training": "quick_sender", "summary": "drains its queue", "url": "https://example.org",
    "half_width": "0.02", "beside": "cubic", "warm_start": "runs/mine-0", "last_learning_rate": "0.0001",
    "method": "synthesis", "suite": "quick/1", "jobs": "2", "signer": "SHA256:...", "certificates": "runs/theorem",
    "quic": "docs/data/quic-v1.json",
    "league": "runs/league/quick-0", "setting": "history", "cells": "2:1/2,1:1", "lasso": "2", "bounds": ".utilisation=9/10",
    "lemmas": "cc_qdel", "settle": "2", "samples": "9", "inside": "hull.json", "report": "page.html", "rtt_s": "40ms",
    "chooser": "middle", "tries": "3", "seed": "1", "duration_s": "10s", "moves": "runs/attack/copa/corners.moves.npz",
    "profile": "linux", "packet_log": "packets.npz", "length_s": "60s", "adversary": "legal", "limit": "2min",
    "variables": "variables.svg", "step_ms": "0.05", "mixes": "bbr1,bbr1/reno", "disciplines": "red", "buffers_bdp": "1,6",
    "threads": "2", "steps": "0.01,0.05", "kernel": "linux-6.12",
}  # fmt: skip
"""Option or key -> a value, where neither the default nor the help of a command shows one."""


def _option_row(parameter: Any, help: str) -> Row:
    name = next(name for name in parameter.opts if name.startswith("--"))
    default = None if callable(parameter.default) or parameter.default in (None, ()) else parameter.default
    if parameter.is_flag:
        return Row(name, "flag", bool(default), parameter.help or "", name)
    in_help = re.search(rf"{re.escape(name)}[ =](\S+)", help.replace(";", " "))
    value = in_help[1] if in_help else EXAMPLES.get(name) or (None if default is None else str(default))
    kind = parameter.metavar or _type_text(parameter.type_descriptor.annotation)
    return Row(name, kind, default, parameter.help or "", f"{name} {value}" if value else "")


def _field_rows(model: type[BaseModel], above: str, source: Source) -> list[Row]:
    """Return a row for each field, those of groups with dots between the keys."""
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        meanings |= read_meanings(inspect.cleandoc(base.__doc__ or ""))
    out: list[Row] = []
    for name, field_ in model.model_fields.items():
        key, kinds = above + name, kinds_of(field_.annotation)
        group = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if group is not None and key not in _READ_WHOLE:
            out += _field_rows(group, f"{key}.", source)
            if len(kinds) == 1:
                continue
        default = None if field_.is_required() else field_.get_default(call_default_factory=True)
        value = EXAMPLES.get(key, "") if above else ""
        value = value or _example(kinds, default) or _shipped_example(source.configs, key) or EXAMPLES.get(name, "")
        if source.configs and isinstance(default, (list, tuple)) and not value.startswith("["):
            value = f"[{value}]"  # keys of a file are read as YAML
        example = f"-s {key}{'' if value.startswith('.') else '='}{value}" if value else ""
        meaning = field_.description or meanings.get(name, "")
        out.append(Row(key, " | ".join(map(_type_text, kinds)), default, meaning, example))
    return out


def _type_text(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    if get_origin(kind) in (list, tuple):
        return f"list of {_type_text(next(iter(get_args(kind)), str))}"
    if get_origin(kind) is Annotated:
        return _type_text(get_args(kind)[0])
    words = {int: "whole number", float: "number", str: "text", bool: "true | false", dict: "table", Path: "file"}
    return words.get(get_origin(kind) or kind, getattr(kind, "__name__", str(kind)))


def _example(kinds: Sequence[Any], default: Any) -> str:
    """Return a value that is allowed: another choice, the other truth, the default, or nothing."""
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind) if choice != default]
    if choices:
        return choices[0]
    if bool in kinds:
        return "false" if default else "true"
    if default is None or default in ((), [], {}, ""):
        return ""
    if isinstance(default, (list, tuple)):
        return ",".join(map(str, default))
    return str(default) if isinstance(default, (int, float, str)) else ""


def _shipped_example(folder: str, key: str) -> str:
    """Return the value that the first shipped config with this key has."""
    if not folder:
        return ""

    for name in shipped_names(folder, ".yaml"):
        value: Any = read_yaml(find_data(folder, name, ".yaml", "config"))
        for word in key.split("."):
            value = value.get(word) if isinstance(value, dict) else None
        if value is not None:
            return str(value).replace("'", "").replace("True", "true").replace("False", "false")
    return ""
