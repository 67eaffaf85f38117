"""The curve engine by hand: a path, two senders, an adversary, a trace."""

import ccenv

path = ccenv.make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2, n_flows=2)
senders = [ccenv.make_sender("reno"), ccenv.make_sender("copa:default_delta=0.1")]
adversary = ccenv.make_adversary("square:period_rtts=4")
engine = ccenv.CurveEngine([path], model="ccac", senders=senders, adversary=adversary, record=True)
engine.advance(50 * engine.steps_per_rtt)
delivered = engine.totals()["S"][0]
shares: list[float] = [float(share) for share in delivered / delivered.sum()]
print(shares, repr(engine.trace(0)))
