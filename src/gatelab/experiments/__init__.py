"""Experiments: the papers' tables and figures, and the study of a user's own network."""

from gatelab.experiments.findings import Animation, Claim, Decision, FigureFacts, Findings, Frame, Table
from gatelab.experiments.registry import Config, Experiment, all_experiments, find_experiment
from gatelab.experiments.team import SingleTeam, StackedTeam, Team, teams
from gatelab.experiments.train import Loss, Optimiser, Progress, TrainConfig, train

__all__ = [
    "Animation",
    "Claim",
    "Config",
    "Decision",
    "Experiment",
    "FigureFacts",
    "Findings",
    "Frame",
    "Loss",
    "Optimiser",
    "Progress",
    "SingleTeam",
    "StackedTeam",
    "Table",
    "Team",
    "TrainConfig",
    "all_experiments",
    "find_experiment",
    "teams",
    "train",
]
