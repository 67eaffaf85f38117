"""Criteria of reports about senders: data only."""
