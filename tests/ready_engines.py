"""Load the machine code of both engines by a moment of each: what processes that are copies of this one need not load again."""

from ccenv.agents import make_sender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import make_path
from ccenv.simulation import simulate

CurveEngine([make_path(link_rate_mbps=12, rtt_ms=40)], senders=[make_sender("reno")]).advance(1)
simulate({"duration_s": 0.1, "links": [{"rate_mbps": 12}], "flows": [{"sender": "reno", "rtt_ms": 20}]})
