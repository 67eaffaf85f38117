"""A shield for tests, in the shape of the shipped one."""

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.programs import Program, parse_program
from ccenv.agents.sender import PolicySender, ShieldSender

RULE = {
    "if": {"qdel_L": 1},
    "then": {"rate_between": [{"C_L": "3/4"}, {"C_L": "4/5", "MSS/Rm": "1/4"}]},
    "else": {
        "if": {"C_U": 1, "C_L": "-5/4"},
        "then": {
            "if": "utilised",
            "then": {"rate_between": [{"C_L": 1}, {"C_L": "6/5", "MSS/Rm": "1/2"}]},
            "else": {"rate_between": [{"C_L": "6/5"}, {"C_L": "8/5", "MSS/Rm": 1}]},
        },
        "else": {"rate": {"C_L": 1}},
    },
}


def document(**more):
    return {"format": "ccenv-program", "version": 2, "name": "test_shield", "rule": RULE, **more}


def shield() -> Program:
    return parse_program(document())


def policy(seed: int = 0, scale: float = 1.0) -> PolicySender:
    """Return a random policy, whose outputs reach far beyond [-1, 1] with a large scale."""
    rng = np.random.default_rng(seed)
    weights = (rng.normal(size=(N_OBSERVATION, 8)), scale * rng.normal(size=(8, 1)))
    return PolicySender("random_policy", weights, (rng.normal(size=8), np.zeros(1)), "tanh")


def inside(chooser: str, seed: int = 0, program: Program | None = None) -> ShieldSender:
    """Return a chooser inside the shield."""
    return ShieldSender("inside", program or shield(), chooser, policy(seed, 3.0) if chooser == "policy" else None)
