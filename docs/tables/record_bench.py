"""Write the report of finished runs of suites, and their numbers and small pictures into a folder of records.

``python docs/tables/record_bench.py docs/data/bench RUN...``
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.benchmarks.report.page import build_report
from tables.bench_records import write_record

records, *runs = sys.argv[1:] or sys.exit(__doc__)
for run in runs:
    build_report(Path(run))
    print(f"wrote {write_record(Path(run), Path(records))}")
