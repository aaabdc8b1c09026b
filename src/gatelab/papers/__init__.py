"""The papers: one folder each, with its theorems and a file for each table or figure."""

from gatelab.papers.catalogue import all_experiments, all_theorems, find_experiment, find_theorems

__all__ = ["all_experiments", "all_theorems", "find_experiment", "find_theorems"]
