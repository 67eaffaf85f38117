"""A property of a belief program, proved, refuted or unknown."""

import tempfile

import ccenv

with tempfile.TemporaryDirectory() as folder:
    answer = ccenv.verify("cc_qdel", "invariant", model="cbr_delay", samples=4, out=folder)
verdict: str = answer["verdict"]
print(repr(answer), verdict, answer.verified)
