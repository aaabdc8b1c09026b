"""The ``gatelab`` command, one module for each of its commands."""

from gatelab.cli import data, theorems  # noqa: F401  they register themselves
from gatelab.cli.app import app, main

__all__ = ["app", "main"]
