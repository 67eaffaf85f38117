"""Links of varying rate: traces from files, their checks and formats, and the traces that ccenv ships."""

from ccenv.network.links.reading import Imported, load_trace, read_trace, save_trace, shipped_traces
from ccenv.network.links.table import LinkTrace, of_opportunities, of_rates

__all__ = ["Imported", "LinkTrace", "load_trace", "of_opportunities", "of_rates", "read_trace", "save_trace", "shipped_traces"]
