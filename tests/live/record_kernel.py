"""Record this kernel on a plain link, as a reference of the packet engine: ``python tests/live/record_kernel.py CC... -o FILE``.

A run that is not valid is repeated; nothing is written if no try is valid. A line is added to the file. With ``--like RECORDS``
all cases of another file are recorded, those that FILE has already excepted.
"""

import argparse
from pathlib import Path

from kernel_recording import append_record, make_record, parse_thinning, read_cases, read_records, record_scenario, scenario_of

from ccenv.base.units import MBPS, SECONDS, buffer_units, positive, quantity
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("cc", nargs="*", help="congestion controls of the kernel, one per flow")
parser.add_argument("-o", "--out", type=Path, required=True, help="records, one JSON line each")
parser.add_argument("--name", help="of the record; by default its senders, rate and buffer")
parser.add_argument("--rate", default="20mbps")
parser.add_argument("--rtt", default="40ms")
parser.add_argument("--buffer", default="1bdp")
parser.add_argument("--duration", default="60s", help="of the run; its last three quarters are measured")
parser.add_argument("--stagger", default="0s", help="between the starts of two flows")
parser.add_argument("--thin", action="append", default=[], metavar="FLOW:PACKETS", help="an ACK of this flow for so many packets")
parser.add_argument("--virtual", type=int, metavar="SEED", help="on user-mode Linux in virtual time, with this seed")
parser.add_argument("--like", type=Path, metavar="RECORDS", help="in place of all of these: the cases of this file")
options = parser.parse_args()
if options.like:
    done = {(one["name"], one.get("seed")) for one in (read_records(options.out) if options.out.exists() else [])}
    for name, like in read_cases(options.like).items():
        if (name, options.virtual) not in done:
            append_record(options.out, make_record(name, scenario_of(like), like["stagger_s"], seed=options.virtual))
            print(f"added {name} to {options.out}", flush=True)
    raise SystemExit
rate_mbps, stagger_s = quantity("--rate", options.rate, MBPS), quantity("--stagger", options.stagger, SECONDS)
rtt_s = quantity("--rtt", options.rtt, SECONDS)
bdp_bytes = rate_mbps * MBPS_IN_BPS * rtt_s
buffer_bytes = positive("--buffer", options.buffer, buffer_units(bdp_bytes, DEFAULT_MSS_BYTES))
scenario = record_scenario(
    options.cc, rate_mbps=rate_mbps, rtt_ms=1e3 * rtt_s, buffer_bytes=buffer_bytes,
    duration_s=quantity("--duration", options.duration, SECONDS), stagger_s=stagger_s, thinning=parse_thinning(options.thin),
)  # fmt: skip
name = options.name or f"{'+'.join(options.cc)}/{rate_mbps:g}/{buffer_bytes / bdp_bytes:g}"
record = make_record(name, scenario, stagger_s, seed=options.virtual)
append_record(options.out, record)
print(f"added {name} to {options.out}: {record['throughput_mbps']} Mbit/s, mean queue {record['mean_queue_packets']:g} packets")
