"""The laboratory: training, teams, verdicts, runs, reports, and the study of a user's own network."""

from gatelab.lab.experiment import Config, Experiment
from gatelab.lab.findings import Animation, Claim, FigureFacts, Findings, Frame, Table, Verdict
from gatelab.lab.team import SingleTeam, StackedTeam, Team, teams
from gatelab.lab.theorem import Check, Measurement, Theorem, TheoremResult
from gatelab.lab.training import Loss, Optimiser, Progress, TrainConfig, train

__all__ = [
    "Animation",
    "Check",
    "Claim",
    "Config",
    "Experiment",
    "FigureFacts",
    "Findings",
    "Frame",
    "Loss",
    "Measurement",
    "Optimiser",
    "Progress",
    "SingleTeam",
    "StackedTeam",
    "Table",
    "Team",
    "Theorem",
    "TheoremResult",
    "TrainConfig",
    "Verdict",
    "teams",
    "train",
]
