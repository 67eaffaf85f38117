"""Certificates of the shipped theorems: data only, ``NAME.certificate.json.xz``."""
