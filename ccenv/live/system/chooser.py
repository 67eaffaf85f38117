"""The process that chooses inside the shield of an exported program: it reads beliefs from a kernel map and answers.

It is started with a sender's name and the files of the maps, prints ``ready``, and serves until it is killed. The program in the
kernel clips every answer to the interval, and takes the middle without an answer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import sys
import time
from typing import Any

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.agents.interface.signals import fill_beliefs
from ccenv.agents.sender import ShieldSender
from ccenv.base.interrupts import end_with_parent
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.policies import MAX_WIDTH, POLICY_DTYPE, SCRATCH_ROWS, act_on_beliefs, memory_words, pack_policies
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.live.export.bpf import POSITION_BITS, export_constants

CHOICES = 64  # of the exported C
PRIORITY = 49  # of SCHED_FIFO: below the emulator
# struct choice of the exported C.
CHOICE_DTYPE = np.dtype(
    [
        *((name, "<u8") for name in ("answer", "answered_us", "begun", "asked")),
        *((name, "<u8") for name in ("C_L", "C_U", "C_L_lambda", "q_U", "qdel_L_steps", "qdel_U", "rate", "lo", "hi")),
        *((name, "<u4") for name in ("rtt_us", "utilised", "sent", "lost", "in_flight", "unused")),
    ],
    align=True,
)
# Inputs of the signals, in packets and seconds.
_BELIEFS = np.dtype(
    [
        (name, "<f8")
        for name in ("C_L_Bps", "C_U_Bps", "C_L_lambda_Bps", "q_U_bytes", "qdel_L_s", "qdel_U_s", "utilised", "rate_Bps")
    ]
)
_UNBOUNDED = np.uint64(2**64 - 1)
_WHOLE = 1 << POSITION_BITS
_CHOICE_KEY = 2_000_000.0  # of random positions
_LOW, _HIGH = OBSERVATION_LOW.astype(np.float64), OBSERVATION_HIGH.astype(np.float64)


@kernel
def observe(choice, one, beliefs, out):
    """Write the clipped belief signals of a decision (CHOICE_DTYPE) into ``out``, (N_OBSERVATION,) float64.

    ``one`` is the fixed-point value of a packet, ``beliefs`` a scratch record.
    """
    rtt_s = choice.rtt_us * 1e-6
    per_s = STEPS_PER_RTT / (rtt_s * one)  # packets per second: a packet counts as a byte, which no signal sees
    beliefs.C_L_Bps = choice.C_L * per_s
    beliefs.C_U_Bps = np.inf if choice.C_U == _UNBOUNDED else choice.C_U * per_s
    beliefs.C_L_lambda_Bps = choice.C_L_lambda * per_s
    beliefs.q_U_bytes = choice.q_U / one
    beliefs.qdel_L_s = choice.qdel_L_steps * rtt_s / STEPS_PER_RTT
    beliefs.qdel_U_s = choice.qdel_U * 1e-6 / STEPS_PER_RTT
    beliefs.utilised = float(choice.utilised)
    beliefs.rate_Bps = choice.rate * per_s
    fill_beliefs(beliefs, rtt_s, 1.0, float(choice.sent), float(choice.lost), float(choice.in_flight), out, 0)
    for j in range(N_OBSERVATION):
        out[j] = min(_HIGH[j], max(_LOW[j], out[j]))


@kernel
def answer_all(choices, seen, one, has_policy, seed, policy, weights, memory, beliefs, observation, scratch, positions):
    """Answer all decisions that are not answered yet; return their number.

    Args:
        choices: (CHOICES,) CHOICE_DTYPE, shared with the kernel; positions go to ``positions``, the caller writes them.
        seen: (CHOICES,) numbers of the decisions answered last; advances.
        one: fixed-point value of a packet.
        has_policy: a policy chooses; otherwise positions are random.
        seed: of random positions.
        policy: POLICY_DTYPE record.
        weights: flat array of ``pack_policies``.
        memory: (CHOICES, words) of the flows' policies.
        beliefs: scratch record.
        observation: (N_OBSERVATION,) scratch.
        scratch: of the policy.
        positions: (CHOICES,) int64; negative: nothing to write.
    """
    n = 0
    for slot in range(choices.shape[0]):
        positions[slot] = -1
        number = choices[slot].asked
        if number == seen[slot] or number == 0 or choices[slot].begun != number:
            continue
        if number == 1:  # another flow
            for word in range(memory.shape[1]):
                memory[slot, word] = 0.0
        if has_policy:
            observe(choices[slot], one, beliefs, observation)
            u = 0.5 * (act_on_beliefs(policy, weights, observation, memory[slot], scratch) + 1.0)
        else:
            u = uniform(seed, 0.0, _CHOICE_KEY + slot, float(number))
        seen[slot] = number
        u = min(1.0, u) if u > 0.0 else 0.0
        positions[slot] = np.int64(u * _WHOLE + 0.5)
        n += 1
    return n


class Chooser:
    """Serves the maps of one exported shield whose chooser is ``policy`` or ``random``.

    Attributes:
        choices: (CHOICES,) CHOICE_DTYPE, shared with the kernel.
    """

    def __init__(self, shield: ShieldSender, choices: np.ndarray, seed: int = 0) -> None:
        """Prepare the policy; the seed is that of random positions."""
        self.choices, self._seed = choices, float(seed)
        self._seen = np.zeros(len(choices), np.uint64)
        self._one = float(1 << export_constants(shield.program).fraction_bits)
        policy = shield.policy
        self._weights: np.ndarray = np.zeros(1)
        self._policies: np.ndarray = np.zeros(1, POLICY_DTYPE)
        if policy is not None:
            self._weights, self._policies = pack_policies([policy])
        self._memory = np.zeros((len(choices), max(1, memory_words(policy) if policy else 1)))
        self._has_policy = policy is not None
        self._positions = np.zeros(len(choices), np.int64)
        self._beliefs, self._observation = np.zeros(1, _BELIEFS), np.zeros(N_OBSERVATION)
        self._scratch = np.zeros((SCRATCH_ROWS, MAX_WIDTH))

    def serve(self) -> int:
        """Answer the decisions since the last call; return their number."""
        n = int(
            answer_all(
                self.choices, self._seen, self._one, self._has_policy, self._seed, self._policies[0], self._weights,
                self._memory, self._beliefs[0], self._observation, self._scratch, self._positions,
            )
        )  # fmt: skip
        if n:
            for slot in np.flatnonzero(self._positions >= 0):
                self.choices["answered_us"][slot] = time.monotonic_ns() // 1000
                self.choices["answer"][slot] = (int(self._seen[slot]) << 32) | int(self._positions[slot])
        return n


class Bell:
    """The kernel ring that signals decisions; its content is not read."""

    def __init__(self, ring_fd: int) -> None:
        page = mmap.PAGESIZE
        self._heard = np.frombuffer(mmap.mmap(ring_fd, page, mmap.MAP_SHARED), np.uint64, 1)
        self._rung = np.frombuffer(mmap.mmap(ring_fd, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page), np.uint64, 1)
        self._poll = select.poll()
        self._poll.register(ring_fd, select.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Wait until it rings, at most for the time-out."""
        self._poll.poll(timeout_s * 1e3)
        self._heard[0] = self._rung[0]


def map_choices(map_fd: int) -> np.ndarray:
    """Return the map of decisions and answers, shared with the kernel."""
    size = -(-CHOICES * CHOICE_DTYPE.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(map_fd, size, mmap.MAP_SHARED), CHOICE_DTYPE, CHOICES)


def serve_for_ever(shield: ShieldSender, map_fd: int, ring_fd: int, seed: int = 0, ready: Any = None) -> None:
    """Choose until the process ends; ``ready`` is called when everything is compiled."""
    chooser, bell = Chooser(shield, map_choices(map_fd), seed), Bell(ring_fd)
    chooser.serve()
    if ready is not None:
        ready()
    while True:
        bell.wait(1.0)
        chooser.serve()


def main(spec: str, map_fd: int, ring_fd: int, seed: int, parent: int) -> None:
    """Serve for a worker, whose process id is given, and end with it."""
    from ccenv.live.export.bpf import load_exported

    end_with_parent()
    shield = load_exported(spec).shield
    if os.getppid() != parent or shield is None:
        return

    def ready() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    serve_for_ever(shield, map_fd, ring_fd, seed, ready)


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:6]))
