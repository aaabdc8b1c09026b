"""The ``gatelab`` command, one module for each of its commands."""

from gatelab.cli import (  # importing a module adds its commands to the app
    data,
    explore,
    guidance,
    kernel,
    playground,
    running,
    study,
    theorems,
    verify,
)
from gatelab.cli.app import app, main

__all__ = [
    "app",
    "data",
    "explore",
    "guidance",
    "kernel",
    "main",
    "playground",
    "running",
    "study",
    "theorems",
    "verify",
]
