"""Verification jobs: ccenv verify NAME."""
