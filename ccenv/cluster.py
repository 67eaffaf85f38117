"""Ray: the one place that starts it. It reports nothing to anybody, and the signals stay with the command line."""

from __future__ import annotations

import logging
import os
from typing import Any

from ccenv.errors import require_extra
from ccenv.interrupts import claim_signals


def start_ray(cores: int | None = None, address: str | None = None) -> Any:
    """Start Ray on this machine, or join a cluster; return the module.

    Ray's usage reports are switched off before it begins.

    Args:
        cores: of a cluster that is started here; a cluster that is joined has its own.
        address: of a cluster to join; None: start one here.

    Raises:
        MissingExtraError: if Ray is not installed.
        ConnectionError: if no cluster answers at the address.
    """
    require_extra("ray", "rllib")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray's own processes read it too
    import ray

    here: dict[str, Any] = {} if address else {"num_cpus": cores, "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **here)
    claim_signals()
    return ray
