"""A batch of networks of one form: their memory, their beginnings, their running, copies of their state."""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_SLOTS, TICK, VIEW
from ccenv.agents.interface.signals import MEASURES
from ccenv.base.errors import EngineError, InputError
from ccenv.base.kernels.threads import share
from ccenv.engine.packet.batch.form import Form
from ccenv.engine.packet.batch.place import begin_networks, wire_networks
from ccenv.engine.packet.batch.players import Beginnings, Memory
from ccenv.engine.packet.beliefs import BELIEFS_DTYPE
from ccenv.engine.packet.kernel import PacketArrays, advance
from ccenv.engine.packet.layout import (
    BOX_DTYPE,
    ERROR_BUFFER,
    ERROR_MEMORY,
    ERROR_RETURN,
    ERROR_SEGMENT,
    EVENT_STRIDE,
    FLOW_DTYPE,
    FLOW_LOG,
    GRID_DTYPE,
    LINK_DTYPE,
    LINK_LOG,
    PIPE_DTYPE,
    RUN_DTYPE,
    STATE_DTYPE,
)
from ccenv.engine.packet.monitor import MONITOR_DTYPE, SHARE_STRIDE

# Arrays that hold what happened; the others are tables, or scratch that is written before it is read.
_STATE = (
    *("run", "links", "flows", "pipes", "boxes", "grids", "beliefs", "monitors", "measures", "states", "views", "changes"),
    *("flow_log", "link_log"),
)

_REFUSED = {
    ERROR_RETURN: "flow {}: access and links take longer than its rtt_s",
    ERROR_BUFFER: "link {}: its buffer holds no packet",
    ERROR_SEGMENT: (
        "flow {}: a link carries less than a segment per Rm, but belief bounds start from C >= MSS/Rm, which is wrong there: "
        "take a faster link, smaller segments or a longer Rm, or what needs no beliefs"
    ),
}


class PacketBatch:
    """Networks of one form, run by one call of the kernel; results do not depend on the number of threads.

    Args:
        form: what they have in common.
        size: B, number of networks.
        words: of memory for the rings of each (``needed_words``).
        log_rows: rows of the log of each; 0: none.
        log_s: interval of the log.
        packet_log: rows that the packet log of each keeps; 0: none.
        threads: that share the networks among them.
    """

    def __init__(
        self, form: Form, size: int, words: int, *, log_rows: int = 0, log_s: float = 1.0, packet_log: int = 0, threads: int = 1
    ) -> None:
        self.form, self.size, self.threads, self._log_s = form, size, threads, log_s
        run = form.record[0]
        counts = {name: max(1, int(run[f"n_{name}"])) for name in ("links", "flows", "pipes", "boxes", "grids", "monitors")}
        flows, monitors = counts["flows"], counts["monitors"]
        states = np.zeros((size, flows), STATE_DTYPE)
        self.arrays = PacketArrays(
            run=np.zeros((size, 1), RUN_DTYPE),
            links=np.zeros((size, counts["links"]), LINK_DTYPE),
            flows=np.zeros((size, flows), FLOW_DTYPE),
            pipes=np.zeros((size, counts["pipes"]), PIPE_DTYPE),
            boxes=np.zeros((size, counts["boxes"]), BOX_DTYPE),
            grids=np.zeros((size, counts["grids"]), GRID_DTYPE),
            beliefs=np.zeros((size, counts["grids"]), BELIEFS_DTYPE),
            monitors=np.zeros((size, monitors), MONITOR_DTYPE),
            measures=np.zeros((size, monitors), MEASURES),
            states=states,
            words=states.view("<f8").reshape(size, flows, STATE_SLOTS),
            templates=form.table.templates,
            sender_calls=form.table.calls,
            acks=np.zeros((size, 1), ACK),
            losses=np.zeros((size, 1), LOSS),
            ticks=np.zeros((size, 1), TICK),
            views=np.zeros((size, 1), VIEW),
            moves=np.zeros((size, 1), MOVE),
            changes=np.zeros((size, sum(len(link.rate_steps) for link in form.network.links), 3)),
            flow_log=np.zeros((size, log_rows, flows), [(name, "<f8") for name in FLOW_LOG]),
            link_log=np.zeros((size, log_rows, counts["links"]), [(name, "<f8") for name in LINK_LOG]),
        )
        self._memory = Memory(
            rings=_zeros_on_lines(size, words),
            trees=_zeros_on_lines(size, 4 * int(run["tree_leaves"])),
            shares=np.zeros((size, monitors, flows, SHARE_STRIDE)),
            box_words=np.zeros((size, counts["boxes"], ADVERSARY_SLOTS)),
            policies=np.zeros((size, *form.tables.policies.shape), np.uint8),
        )
        self._all = np.arange(size)
        self._packet_logs = np.empty((size, packet_log, EVENT_STRIDE))

    def begin(self, which: np.ndarray, beginnings: Beginnings) -> None:
        """Begin the networks ``which``, (k,), anew. Raises EngineError where one needs more memory than the batch has."""
        words = begin_networks(which, self.arrays, self.form.tables, beginnings, self._memory, self.form.record, self._log_s)
        if (self.arrays.run["error"][which] == ERROR_MEMORY).any():
            raise EngineError(f"a network needs {words} words of memory; the batch was made with {self._memory.rings.shape[1]}")
        self._point_at_logs()

    def _point_at_logs(self) -> None:
        limit = self._packet_logs.shape[1]
        if limit:
            run = self.arrays.run[:, 0]
            run["packet_log_at"] = self._packet_logs.ctypes.data + self._all * self._packet_logs.strides[0]
            run["packet_log_limit"] = limit

    def packet_log(self, network: int) -> np.ndarray:
        """Return the rows of a network's packet log that were kept, as the kernel wrote them; not a copy."""
        rows: np.ndarray = self._packet_logs[network, : int(self.arrays.run["packet_log_rows"][network, 0])]
        return rows

    def advance(self, until_s: np.ndarray, max_events: int, which: np.ndarray | None = None) -> None:
        """Let each network run up to its time, (B,), exclusive, an error, or a decision that is awaited from outside.

        Decisions that are awaited are those of ``arrays.monitors["asked"]``. Networks that are not ``which``, (k,), stay where
        they are.
        """
        networks = self._all if which is None else which
        share(lambda first, last: advance(networks[first:last], self.arrays, until_s, max_events), len(networks), self.threads)

    @property
    def box_words(self) -> np.ndarray:
        """States of the adversaries of the jitter boxes, (B, boxes, ADVERSARY_SLOTS); not a copy."""
        return self._memory.box_words

    @property
    def bytes_per_network(self) -> float:
        arrays = [getattr(self.arrays, name) for name in _STATE] + list(self._memory)
        return float(sum(array.nbytes for array in arrays)) / self.size

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of all that decides the future, by name."""
        kept = {name: getattr(self.arrays, name).copy() for name in _STATE}
        return kept | {name: array.copy() for name, array in self._memory._asdict().items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go back to what ``state`` returned, or to its bytes, also in another process. Packet logs stay as they are.

        Raises InputError if it is that of another batch.
        """
        targets = {name: getattr(self.arrays, name) for name in _STATE} | self._memory._asdict()
        for name, target in targets.items():
            if name not in state or state[name].nbytes != target.nbytes:
                raise InputError(f"state of a batch without {name!r} of {target.nbytes} bytes")
        for name, target in targets.items():
            target[...] = np.frombuffer(state[name].tobytes(), target.dtype).reshape(target.shape)
        wire_networks(self._all, self.arrays, self.form.tables, self._memory)
        self._point_at_logs()


_LINE = 64  # bytes of a cache line


def _zeros_on_lines(rows: int, words: int) -> np.ndarray:
    """Return (rows, words) zeros, each row at the beginning of a cache line; untouched pages take no memory."""
    per_line = _LINE // 8
    width = -(-words // per_line) * per_line
    memory = np.zeros(rows * width + per_line)
    first = -memory.ctypes.data % _LINE // 8
    return memory[first : first + rows * width].reshape(rows, width)


def needed_words(form: Form, beginnings: Beginnings) -> int:
    """Return how many words of memory the largest of some networks needs. Raises InputError for one that cannot be built."""
    trial = PacketBatch(form, len(beginnings.keys), 0)
    which = np.arange(trial.size)
    words = int(begin_networks(which, trial.arrays, form.tables, beginnings, trial._memory, form.record, 1.0))
    for error, flow in zip(trial.arrays.run["error"][:, 0], trial.arrays.run["error_flow"][:, 0], strict=True):
        if error in _REFUSED:
            raise InputError(_REFUSED[int(error)].format(flow))
    return words
