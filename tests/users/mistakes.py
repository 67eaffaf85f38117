"""Mistakes are one line each, and say what is meant."""

from collections.abc import Callable

import ccenv

calls: list[Callable[[], object]] = [
    lambda: ccenv.make_sender("renoo"),
    lambda: ccenv.compare(["cubic"], rate="fast"),
    lambda: ccenv.evaluate("quick", "copaa"),
    lambda: ccenv.list_agents("clasic"),
]
told: list[str] = []
for call in calls:
    try:
        call()
    except ccenv.CcenvError as error:
        told.append(str(error))
print("\n".join(told))
