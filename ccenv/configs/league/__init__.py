"""Leagues: ccenv league NAME."""
