"""The network that hurts a sender most, as a table and a trace."""

import ccenv

result = ccenv.attack("copa", budget_flow_steps=1_000_000, seed=1)
worst: float = result.worst_utilisation
trace: ccenv.Trace = result.trace
queue_bytes: float = float(trace.queue_bytes.max())
print(repr(result), worst, queue_bytes, len(result.to_frame()))
