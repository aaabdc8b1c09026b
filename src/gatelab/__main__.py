"""``python -m gatelab``."""

from gatelab.cli import main

main()
