"""Two flows packet by packet; times and rates of each."""

from typing import Any

import ccenv

scenario: dict[str, Any] = {
    "links": [{"rate_mbps": 12, "buffer_bdp": 1}],
    "flows": [{"sender": "cubic", "rtt_ms": 40}, {"sender": "mine", "rtt_ms": 20, "start_s": 1}],
    "duration_s": 4,
}
result = ccenv.simulate(scenario, senders={"mine": "vegas"})
frame = result.to_frame()
throughputs: list[float] = [flow["throughput_mbps"] for flow in result.summary()["flows"]]
print(repr(result), throughputs, frame.shape)
