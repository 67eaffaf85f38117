"""The version of ccenv; setup.cfg reads it from here."""

VERSION = "0.1.0"
