"""Reports, pages and figures of results."""
