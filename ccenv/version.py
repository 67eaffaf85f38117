"""The installed version of ccenv."""

from importlib import metadata

try:
    VERSION = metadata.version("ccenv")
except metadata.PackageNotFoundError:
    VERSION = "0+unknown"
