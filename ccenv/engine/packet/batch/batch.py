"""A batch of networks of one form: their memory, their beginnings, their running, copies of their state."""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import ACK, ADVERSARY_SLOTS, LOSS, MOVE, STATE_SLOTS, TICK, VIEW
from ccenv.agents.interface.signals import MEASURES
from ccenv.base.errors import InputError
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
        words: of memory for the rings of each at first (``needed_words``); one that needs more, or far less, gets its own size.
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
            rings=np.zeros(size, np.int64),
            room=np.zeros(size, np.int64),
            needed=np.zeros(size, np.int64),
            trees=_zeros_on_lines(size, 4 * int(run["tree_leaves"])),
            shares=np.zeros((size, monitors, flows, SHARE_STRIDE)),
            box_words=np.zeros((size, counts["boxes"], ADVERSARY_SLOTS)),
            policies=np.zeros((size, *form.tables.policies.shape), np.uint8),
        )
        self._rings = [np.zeros(0)] * size
        for b in range(size):
            self._give(b, words)
        self._all = np.arange(size)
        self._packet_logs = np.empty((size, packet_log, EVENT_STRIDE))

    def begin(self, which: np.ndarray, beginnings: Beginnings) -> None:
        """Begin the networks ``which``, (k,), anew."""
        self._begin(which, beginnings)
        needed, room = self._memory.needed[which], self._memory.room[which]
        other = np.flatnonzero((self.arrays.run["error"][which, 0] == ERROR_MEMORY) | (needed < room // _SPARE))
        for b in which[other].tolist():
            self._give(b, int(self._memory.needed[b]))
        if len(other):
            self._begin(which[other], Beginnings(*(column[other] for column in beginnings)))
        self._point_at_logs()

    def _begin(self, which: np.ndarray, beginnings: Beginnings) -> None:
        begin_networks(which, self.arrays, self.form.tables, beginnings, self._memory, self.form.record, self._log_s)

    def _give(self, b: int, words: int) -> None:
        """Give a network rings of so many words."""
        self._rings[b] = _zeros_on_lines(1, words)[0]
        self._memory.rings[b], self._memory.room[b] = self._rings[b].ctypes.data, words

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
        arrays = [getattr(self.arrays, name) for name in _STATE] + [*self._memory, *self._rings]
        return float(sum(array.nbytes for array in arrays)) / self.size

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of all that decides the future, by name."""
        kept = {name: getattr(self.arrays, name).copy() for name in _STATE}
        kept |= {name: array.copy() for name, array in self._memory._asdict().items() if name not in _PLACES}
        return kept | {"rings": np.concatenate([ring[:n] for ring, n in zip(self._rings, self._memory.needed, strict=True)])}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go back to what ``state`` returned, or to its bytes, also in another process. Packet logs stay as they are.

        Raises InputError if it is that of another batch.
        """
        memory = {name: array for name, array in self._memory._asdict().items() if name not in _PLACES}
        targets = {name: getattr(self.arrays, name) for name in _STATE} | memory
        sizes = {name: target.nbytes for name, target in targets.items()}
        if len(needed := state.get("needed", np.zeros(0)).tobytes()) == sizes["needed"]:
            sizes["rings"] = 8 * int(np.frombuffer(needed, np.int64).sum())
        for name, size in sizes.items():
            if name not in state or state[name].nbytes != size:
                raise InputError(f"state of a batch without {name!r} of {size} bytes")
        for name, target in targets.items():
            target[...] = np.frombuffer(state[name].tobytes(), target.dtype).reshape(target.shape)
        rings = np.split(np.frombuffer(state["rings"].tobytes()), np.cumsum(self._memory.needed)[:-1])
        for b, ring in enumerate(rings):
            if len(ring) != self._memory.room[b]:
                self._give(b, len(ring))
            self._rings[b][: len(ring)] = ring
        wire_networks(self._all, self.arrays, self.form.tables, self._memory)
        self._point_at_logs()


_PLACES = ("rings", "room")  # of this process
_SPARE = 4  # times what a network needs that its rings have at most
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
