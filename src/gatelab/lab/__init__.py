"""The laboratory: training, teams, verdicts, runs, reports, and the study of a user's own network."""

from gatelab.lab.experiment import Config, Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.theorem import Theorem
from gatelab.lab.training import TrainConfig, train
from gatelab.lab.verdicts import Claim, Verdict

__all__ = [
    "Claim",
    "Config",
    "Experiment",
    "FigureFacts",
    "Findings",
    "Table",
    "Theorem",
    "TrainConfig",
    "Verdict",
    "train",
]
