"""Links of varying rate: traces from files, their checks and formats, and the traces that ccenv ships."""

from ccenv.paths.reading import Imported, read_trace
from ccenv.paths.stored import load_trace, save_trace, shipped_traces
from ccenv.paths.table import LinkTrace, of_opportunities, of_rates

__all__ = ["Imported", "LinkTrace", "load_trace", "of_opportunities", "of_rates", "read_trace", "save_trace", "shipped_traces"]
