"""The explorer: one self-contained page about a user's own network, with facts that the library computed."""

from gatelab.lab.explore.entry import Exploration, explore
from gatelab.lab.explore.facts import ExplorerFacts

__all__ = ["Exploration", "ExplorerFacts", "explore"]
