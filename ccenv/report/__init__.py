"""Reports: one page that evaluates a sender along the criteria of a document, such as RFC 9743."""

from ccenv.report.criteria import Criteria, load_criteria
from ccenv.report.run import Report, report_on

__all__ = ["Criteria", "Report", "load_criteria", "report_on"]
