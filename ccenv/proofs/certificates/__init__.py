"""Certificates of theorems, and a checker that stands alone: it writes laws, beliefs, programs and reasoning anew.

Nothing here imports the prover (``ccenv.proofs``) or a solver's library; tests/certificates hold that. docs/theorems.md has the
format and the list of laws that :mod:`ccenv.proofs.certificates.laws` writes out.
"""
