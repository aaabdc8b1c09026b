"""The study: how much of what a network knows is in its gates? On a user's own network and data."""

from gatelab.lab.experiment import Experiment
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.entry import study
from gatelab.lab.study.findings import StudyFindings, study_findings
from gatelab.lab.study.rows import cells
from gatelab.lab.study.work import study_work

EXPERIMENTS = (
    Experiment(
        "study",
        "How much of what a network knows is in its gates?",
        StudyConfig,
        {
            "smoke": {"runs": 2, "epochs": 2, "train_size": 200, "test_size": 100, "probes": 20},
            "quick": {},
            "paper": {"runs": 5, "epochs": 100},
        },
        cells,
        study_work,
        study_findings,
    ),
)

__all__ = ["EXPERIMENTS", "StudyConfig", "StudyFindings", "study"]
