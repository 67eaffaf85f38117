"""Certificates of theorems, and a checker that stands alone: it writes laws, beliefs, programs and reasoning anew.

Nothing here imports another folder of ``ccenv.proofs`` or a solver's library; tests/proofs/certificates hold
that. docs/theorems.md has the format and the list of laws that :mod:`ccenv.proofs.certificates.laws` writes out.
"""
