"""Packet-level experiments: a scenario in; time series, a summary and a figure out (docs/simulation.md)."""

from ccenv.engine.packet.generators import made_trace
from ccenv.simulation.result import Result
from ccenv.simulation.run import simulate
from ccenv.simulation.scenario import Scenario, load_scenario, read_scenario

__all__ = ["Result", "Scenario", "load_scenario", "made_trace", "read_scenario", "simulate"]
