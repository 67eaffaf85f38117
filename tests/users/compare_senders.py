"""Three senders on one network: a table and a figure."""

import tempfile
from pathlib import Path

import ccenv

found = ccenv.compare(["cubic", "copa", "bbr3"], rate="20mbps", rtt="40ms", buffer="1bdp", duration="3s", metrics=["power"])
frame = found.to_frame()
best: str = max(found.rows, key=lambda row: row.utilisation or 0.0).sender
with tempfile.TemporaryDirectory() as folder:
    figure = Path(folder) / "compare.pdf"
    found.plot(figure)
    size: int = figure.stat().st_size
print(best, list(frame.columns), size > 1000)
