"""The ``gatelab`` command, one module for each of its commands."""

from gatelab.cli import (
    data,
    kernel,
    playground,
    running,
    theorems,
    verify,
)  # importing a module adds its commands to the app
from gatelab.cli.app import app, main

__all__ = ["app", "data", "kernel", "main", "playground", "running", "theorems", "verify"]
