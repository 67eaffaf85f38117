"""Certificates of theorems and an independent checker, which derives laws, beliefs, programs and reasoning anew.

Nothing here imports another folder of ``ccenv.proofs`` or a solver's library; docs/theorems.md has the format and the laws.
"""
