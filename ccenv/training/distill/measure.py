"""What is reported of a policy or a program: nothing of it decided how they were made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ccenv.attacks import SCENE_SETS, attack
from ccenv.attacks.scenes import REPORT
from ccenv.training.distill.teacher import Teacher
from ccenv.agents.sender import Sender
from ccenv.training.evaluation import evaluate_in_world, evaluate_sender
from ccenv.training.records import ATTACK, ATTACK_SCENES


def measure(sender: Sender, teacher: Teacher, attack_flow_steps: int, seed: int) -> dict[str, Any]:
    """Return the score on the set of paths for reports and the worst utilisation on each scene.

    Args:
        sender: the teacher's policy, or a program distilled from it.
        teacher: whose world the score is of.
        attack_flow_steps: budget on each scene.
        seed: of the attacks.

    Returns:
        dict: ``score`` and ``evaluation`` in the teacher's world, ``common`` alone in the common world, ``worst`` per scene with
            its set and whether the making of the sender has ``seen`` it under attack, ``worst_utilisation`` of the report scenes.
    """
    evaluation = evaluate_in_world(teacher.world, sender)
    met = () if teacher.robust is None else teacher.robust.paths
    worst: dict[str, dict[str, Any]] = {}
    for name in ATTACK_SCENES:
        found = attack(sender, path=name, adversaries=ATTACK, budget_flow_steps=attack_flow_steps, seed=seed)
        which = next(which for which, names in SCENE_SETS.items() if name in names)
        worst[name] = {
            "utilisation": found.worst_utilisation,
            "adversary": found.worst_adversary,
            "set": which,
            "seen": name in met,
        }
    report = min((case for case in worst.values() if case["set"] == REPORT), key=lambda case: float(case["utilisation"]))
    return {
        "score": evaluation.score,
        "evaluation": asdict(evaluation),
        "common": asdict(evaluate_sender(sender)),
        "worst": worst,
        "worst_utilisation": report["utilisation"],
        "worst_adversary": report["adversary"],
    }
