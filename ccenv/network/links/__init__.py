"""Links of varying rate: trace files, their formats and checks, and the shipped traces."""

from ccenv.network.links.reading import Imported, load_trace, read_trace, save_trace, shipped_traces
from ccenv.network.links.table import LinkTrace, of_opportunities, of_rates

__all__ = ["Imported", "LinkTrace", "load_trace", "of_opportunities", "of_rates", "read_trace", "save_trace", "shipped_traces"]
