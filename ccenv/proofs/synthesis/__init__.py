"""Synthesis of all belief programs of a template that provably meet a query ([CCmatic] s.5, s.6.1)."""
