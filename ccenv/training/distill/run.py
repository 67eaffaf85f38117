"""``ccenv distill``: imitate, polish, prove, measure, report."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.adversaries.search import attack
from ccenv.agents.learned import load_policy
from ccenv.benchmarks.provenance import machine, versions
from ccenv.errors import InputError, unknown_name
from ccenv.files import make_folder, parse_json, write_atomic
from ccenv.programs import Program, parse_program, pseudo_code, to_data, to_json
from ccenv.sender import MlpSender, ProgramSender, Sender
from ccenv.smt.lemma_report import LemmaRun, run_lemmas
from ccenv.smt.report import decide_claim
from ccenv.smt.solvers import SECOND_SOLVERS
from ccenv.smt.store import Store
from ccenv.training.distill.claims import INVARIANT, SAMPLES, SETTING, claim_queries, numbers_for, write_suite
from ccenv.training.distill.imitation import Imitation, imitate
from ccenv.training.distill.polish import Polished, polish
from ccenv.training.distill.prove import prove
from ccenv.training.distill.scores import ProgramScorer
from ccenv.training.distill.template import safety_shell
from ccenv.training.distill.tree import fit_leaves
from ccenv.training.evaluation import evaluate_sender

REPORT = "distill.json"
FORMAT, VERSION = "ccenv-distillation", 1
ATTACK = ("corners", "cem")
SHALLOWEST_SHELL = 3  # drain guard, one guard on C_U / C_L, utilised
DEEPEST = 6


@dataclass(frozen=True)
class DistillSettings:
    """What to distil and how.

    Attributes:
        checkpoint: a learned policy: file, or folder of a training run.
        depth: conditions on the longest way to a leaf.
        seed: of everything random.
        prove: utilisations to prove, one program each; none: no proof.
        n_paths: paths of the search (the reported score is on 1,024 others).
        generations: of the polish.
        population: programs per generation.
        budget_s: wall seconds for the loop of each proof.
        rounds: of each loop at most.
        time_limit_s: per solver call.
        recheck: second solver for the final proofs: ``yices`` or ``cvc5``, or None.
        attack_flow_steps: budget of the attack that measures the worst case.
    """

    checkpoint: str
    depth: int = 3
    seed: int = 0
    prove: tuple[float, ...] = ()
    n_paths: int = 256
    generations: int = 16
    population: int = 40
    budget_s: float = 900.0
    rounds: int = 40
    time_limit_s: float = 300.0
    recheck: str | None = None
    attack_flow_steps: int = 2_000_000

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        low = SHALLOWEST_SHELL if self.prove else 1
        if not low <= self.depth <= DEEPEST:
            why = " (a proof needs a drain guard, a guard on C_U / C_L and 'utilised')" if self.prove else ""
            raise InputError(f"depth is {self.depth}; it must be {low} to {DEEPEST}{why}")
        for name in ("n_paths", "generations", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.removeprefix('n_')} is {getattr(self, name)}; it must be at least 1")
        if not (self.budget_s > 0 and self.time_limit_s > 0):
            raise InputError(f"budget is {self.budget_s:g} s, time limit {self.time_limit_s:g} s; both must be above 0")
        if self.recheck is not None and self.recheck not in SECOND_SOLVERS:
            raise unknown_name("solver", self.recheck, SECOND_SOLVERS)
        for utilisation in self.prove:
            if not 0.05 <= utilisation <= 0.95:
                raise InputError(f"a utilisation to prove is {utilisation}; it must lie in 0.05 to 0.95")


def distill(settings: DistillSettings, folder: FilePath, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Distil a policy into a belief program; with ``prove`` also into programs that the solver verifies.

    What is finished stands in the folder after each stage; the same call goes on from there.

    Args:
        settings: what and how.
        folder: for programs, suites, traces, report and picture.
        say: called with one line per step.

    Returns:
        dict: JSON-ready; ``score``, ``teacher_score``, ``worst_utilisation``, ``program`` and ``proofs``.

    Raises:
        InputError: if the checkpoint is no policy of this observation, or the folder holds something else.
    """
    say = say or (lambda line: None)
    teacher = load_policy(settings.checkpoint)
    stages = _Stages(folder, settings, teacher)
    imitation = imitate(teacher, settings.depth, settings.seed)
    say(f"imitated {teacher.name}: mean relative difference {imitation.error:.3f}")
    scorer = ProgramScorer(settings.n_paths, settings.seed)
    tree = stages.run("tree", lambda: _tree_stage(settings, teacher, imitation, scorer, folder, say))
    proofs = []
    for utilisation in settings.prove:
        name = f"{teacher.name[:40]}_u{100 * utilisation:g}".replace(".", "_")
        proofs.append(_proved(stages, name, replace(settings, prove=(utilisation,)), imitation, scorer, folder, say))
    result = stages.head | {"teacher_score": tree["teacher"]["score"]} | tree | {"proofs": proofs}
    write_atomic(folder / REPORT, (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
    from ccenv.training.distill.report import write_report

    write_report(folder, result)
    return result


class _Stages:
    """Results of finished stages on disk, so that a killed distillation goes on."""

    def __init__(self, folder: FilePath, settings: DistillSettings, teacher: MlpSender) -> None:
        content = b"".join(np.ascontiguousarray(a).tobytes() for a in (*teacher.weights, *teacher.biases))
        self.head: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "teacher_name": teacher.name,
            "teacher_sha256": hashlib.sha256(content).hexdigest(),
            "settings": asdict(settings) | {"prove": list(settings.prove)},
            "versions": versions(),
            "machine": machine(),
        }
        # What decides every stage; proofs name what else decides them.
        self._key = {k: self.head["settings"][k] for k in ("depth", "seed", "n_paths", "generations", "population")}
        self._key |= {"teacher_sha256": self.head["teacher_sha256"]}
        self._folder = folder / "stages"
        if folder.is_dir() and any(folder.iterdir()) and not self._folder.is_dir():
            raise InputError(f"{folder}: holds something else than a distillation; choose another --out")
        make_folder(self._folder)

    def run(
        self, name: str, stage: Callable[[], dict[str, Any]], *, limits: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return a stage's result, from disk if it was finished with the same key.

        Args:
            name: of the stage.
            stage: does it.
            limits: of a search; one that found a proof is not done again with other limits, one that did not goes on.
            more: what decides this stage besides the settings of all stages.
        """
        file = self._folder / f"{name}.json"
        key = self._key | more | (limits or {})
        if file.is_file():
            known = parse_json(file.read_bytes(), str(file))
            if isinstance(known, dict) and isinstance(known.get("key"), dict):
                result: dict[str, Any] = known["result"]
                proved = result.get("verdict") == "verified"
                if (known["key"] | (limits or {}) if proved else known["key"]) == key:
                    return result
        begin = time.perf_counter()
        result = stage() | {"seconds": round(time.perf_counter() - begin, 1)}
        data = json.dumps({"key": key, "result": result}, indent=1, allow_nan=False)
        write_atomic(file, data.encode())
        return result


def _tree_stage(
    settings: DistillSettings,
    teacher: MlpSender,
    imitation: Imitation,
    scorer: ProgramScorer,
    folder: FilePath,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Polish the tree that CART grew and the shell of the same depth; the better one on the search's paths is kept."""
    name = f"{teacher.name[:40]}_d{settings.depth}"
    shapes = [("CART", imitation.template, imitation.numbers)]
    if settings.depth >= SHALLOWEST_SHELL:
        shell, numbers = safety_shell(settings.depth - 2)
        shapes.append(("shell", shell, fit_leaves(shell, numbers, imitation.samples)))
    found: list[tuple[str, Polished]] = []
    for shape, template, numbers in shapes:
        source = f"distilled from {teacher.name} ({shape}, depth {settings.depth}, polished)"
        polished = polish(
            template,
            numbers,
            lambda programs: scorer.scores(programs).score,
            name=name,
            source=source,
            seed=settings.seed,
            generations=settings.generations,
            population=settings.population,
        )
        say(f"polished {shape}: {polished.value:.4f} on the paths of the search")
        found.append((shape, polished))
    shape, best = max(found, key=lambda pair: pair[1].value)
    fidelity = {"mean_relative_difference": imitation.error, "states": len(imitation.samples.rate), "shape": shape}
    measured = {"teacher": _measure(settings, teacher), "fidelity": fidelity}
    return _program_record(settings, best.program, folder / f"{name}.json") | measured


def _proved(
    stages: _Stages,
    name: str,
    settings: DistillSettings,
    imitation: Imitation,
    scorer: ProgramScorer,
    folder: FilePath,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Search a program until it is proved, then decide its written suite; two stages, the second with the second solver."""
    (utilisation,) = settings.prove
    limits = {"budget_s": settings.budget_s, "rounds": settings.rounds, "time_limit_s": settings.time_limit_s}
    record = stages.run(
        name,
        lambda: _proof_stage(name, settings, imitation, scorer, folder, say),
        limits=limits,
        utilisation=utilisation,
    )
    if record["verdict"] != "verified":
        return record
    program = parse_program(json.dumps(record["program"]))
    lemmas = stages.run(
        f"{name}_lemmas",
        lambda: _final_lemmas(settings, program, numbers_for(utilisation), folder / name),
        limits={"time_limit_s": settings.time_limit_s},
        program=record["program"],
        utilisation=utilisation,
        recheck=settings.recheck,
    )
    return record | lemmas | {"seconds": round(record["seconds"] + lemmas["seconds"], 1)}


def _proof_stage(
    name: str,
    settings: DistillSettings,
    imitation: Imitation,
    scorer: ProgramScorer,
    folder: FilePath,
    say: Callable[[str], None],
) -> dict[str, Any]:
    (utilisation,) = settings.prove
    numbers = numbers_for(utilisation)
    shell, plain = safety_shell(settings.depth - 2)
    own = folder / name
    own.mkdir(exist_ok=True)
    proof = prove(
        shell,
        fit_leaves(shell, plain, imitation.samples),
        numbers,
        scorer,
        name=name,
        source=f"distilled from a policy, shell of depth {settings.depth}, searched until proved",
        seed=settings.seed,
        rounds=settings.rounds,
        budget_s=settings.budget_s,
        time_limit_s=settings.time_limit_s,
        store=Store(),
        state=own / "pool.npz",
        report=lambda r: say(f"{name}: round {r['round']}, {r['value']:.4f}: {r['outcome']} ({r['seconds']} s)"),
    )
    return _program_record(settings, proof.program, own / "program.json") | {
        "utilisation": utilisation,
        "claims": {key: str(value) for key, value in asdict(numbers).items()},
        "verdict": proof.verdict,
        "rounds": proof.rounds,
        "traces": proof.traces,
    }


def _final_lemmas(settings: DistillSettings, program: Program, numbers: Any, folder: FilePath) -> dict[str, Any]:
    """Decide the written suite as ``ccenv verify lemmas`` does, and the invariant, on request with a second solver."""
    suite = write_suite(folder, program, numbers)
    run = LemmaRun(str(suite), SETTING, SAMPLES, time_limit_s=settings.time_limit_s, recheck=settings.recheck, folder=str(folder))
    lemmas = run_lemmas(run)["lemmas"]
    queries = dict(claim_queries(program, numbers))[INVARIANT]
    lemmas.append(decide_claim(INVARIANT, queries, run.verifier(), folder).to_dict())
    kept = ("name", "text", "verdict", "bound", "seconds", "recheck")
    verdict = "verified" if all(lemma["verdict"] == "verified" for lemma in lemmas) else "unknown"
    return {"verdict": verdict, "suite": str(suite), "lemmas": [{k: lemma[k] for k in kept if k in lemma} for lemma in lemmas]}


def _program_record(settings: DistillSettings, program: Program, file: FilePath) -> dict[str, Any]:
    # What is measured is what was written.
    write_atomic(file, to_json(program).encode())
    program = parse_program(file.read_text(encoding="utf-8"))
    measured = _measure(settings, ProgramSender(program.name, program))
    return {"name": program.name, "file": str(file), "program": to_data(program), "pseudo_code": pseudo_code(program)} | measured


def _measure(settings: DistillSettings, sender: Sender) -> dict[str, Any]:
    """Return score on the held-out paths and the worst utilisation under the stated attack."""
    evaluation = evaluate_sender(sender)
    worst = attack(sender, adversaries=ATTACK, budget_flow_steps=settings.attack_flow_steps, seed=settings.seed)
    return {
        "score": evaluation.score,
        "evaluation": asdict(evaluation),
        "worst_utilisation": worst.worst_utilisation,
        "worst_adversary": worst.worst_adversary,
    }
