"""The ``gatelab`` command, one module for each of its commands."""

from gatelab.cli import data, kernel, running, theorems  # they register themselves with the app
from gatelab.cli.app import app, main

__all__ = ["app", "data", "kernel", "main", "running", "theorems"]
