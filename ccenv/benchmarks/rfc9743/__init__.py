"""Reports: one page that evaluates a sender along the criteria of a document, such as RFC 9743."""

from ccenv.benchmarks.rfc9743.criteria import Criteria, load_criteria
from ccenv.benchmarks.rfc9743.run import Report, report_on

__all__ = ["Criteria", "Report", "load_criteria", "report_on"]
