"""The senders of a batch, as the kernel takes them: one row each, whichever flows they send for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccenv.engine.compiled.calls import address_of
from ccenv.engine.compiled.policies import has_belief_interface
from ccenv.agents.callbacks import ACK, LOSS, STATE_SLOTS, TICK
from ccenv.engine.packet.batch.players import SENDER_DTYPE
from ccenv.engine.packet.beliefs import BELIEFS_DTYPE, RATE_HOLDER, STEPS, belief_templates, ignore, step_watch
from ccenv.engine.packet.layout import FLOW_DTYPE, GRID_DTYPE
from ccenv.engine.packet.monitor import Decider
from ccenv.base.errors import InputError, did_you_mean
from ccenv.agents.sender import ClassicSender, ContractSender, ExternalSender, HeldSender, PolicySender, Sender, bare


class SenderTable:
    """Senders as rows of tables.

    Attributes:
        senders: as given.
        calls: (n, 4) addresses of init, on_ack, on_loss, on_tick of the CCA of each; 0: it ignores the signal.
        templates: (n, STATE_SLOTS) its initial state.
        rows: (n,) SENDER_DTYPE.
        beliefs: (max(1, n),) BELIEFS_DTYPE templates.
    """

    def __init__(self, senders: Sequence[Sender], deciders: Sequence[Decider | None]) -> None:
        """Compile them.

        Args:
            senders: one per row.
            deciders: who decides for the flows of each; needed for those that are driven from outside.

        Raises:
            InputError: for a sender that cannot run per packet, or parameters that it does not have.
        """
        self.senders = list(senders)
        n = len(self.senders)
        self.calls, self.templates = np.zeros((n, 4), np.int64), np.zeros((n, STATE_SLOTS))
        self.rows = np.zeros(n, SENDER_DTYPE)
        self._keep: list[np.ndarray] = []
        self.beliefs = belief_templates([bare(sender) for sender in self.senders], self._keep)
        for row, (sender, decider) in enumerate(zip(self.senders, deciders, strict=True)):
            if isinstance(sender, HeldSender):
                self.rows[row]["hold_s"] = sender.target_s
                if sender.mode == "lambda":
                    self.rows[row]["hold_target_s"], self.rows[row]["hold_window_s"] = sender.target_s, sender.window_s
            self._put(row, self._cca(row, bare(sender), decider))

    def _cca(self, row: int, sender: Sender, decider: Decider | None) -> ClassicSender:
        gridded = not isinstance(sender, PolicySender) or has_belief_interface(sender)
        step = STEPS.get(type(sender)) if gridded else None
        if isinstance(sender, ContractSender) and sender.chooser == "external" and decider is None:
            raise InputError(f"contract {sender.name!r}: an external chooser is the agent of an environment; here is none")
        watches = decider is not None and decider.watches_beliefs
        if step is not None or watches:
            self.rows[row]["step_at"] = address_of(step or step_watch, GRID_DTYPE, BELIEFS_DTYPE, FLOW_DTYPE)
            self.rows[row]["watches"] = step is None
        if step is not None:
            return RATE_HOLDER
        if isinstance(sender, (ExternalSender, PolicySender)) and decider is not None:
            return decider.inner or RATE_HOLDER
        if not isinstance(sender, ClassicSender):
            raise InputError(f"flow {row}: sender {sender.name!r} cannot run per packet; it has no rule of its own")
        return sender

    def _put(self, row: int, cca: ClassicSender) -> None:
        signals = ((cca.on_ack, ACK), (cca.on_loss, LOSS), (cca.on_tick, TICK))
        calls = [0 if function is ignore else address_of(function, cca.state, signal) for function, signal in signals]
        self.rows[row]["per_packet"] = cca.per_packet
        self.calls[row] = [address_of(cca.init, cca.state), *calls]
        names = cca.state.names or ()
        for name, value in cca.parameters.items():
            if name not in names:
                raise InputError(f"sender {cca.name!r} has no parameter {name!r}.{did_you_mean(name, names)}")
            self.templates[row, names.index(name)] = value
