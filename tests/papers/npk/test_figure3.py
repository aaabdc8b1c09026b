"""npk, Figure 3: from accuracies of stages and from tangent kernels to tables and claims, without training."""

import pytest

from gatelab.lab.verdicts import Outcome
from gatelab.papers import find_experiment

STAGES = find_experiment("npk-figure3-stages")
SETTINGS = {"runs": 5, "epochs": 12, "stages": 3, "value_epochs": 2}


def _results(config, accuracies):
    """Results in which each kind of network ends at its accuracy; runs differ a little, mostly in all kinds alike."""
    noise = (0.0, 0.004, -0.003, 0.002, -0.001)
    results = {}
    for cell in STAGES.cells(config):
        name, _, run = cell.name.rpartition("/")
        end = accuracies[name] + noise[int(run)] + 0.0005 * (sum(map(ord, cell.name)) % 3)
        results[cell.name] = {"data": "CIFAR-10", "test_accuracy": [[end + 0.05, end]]}
    return results


def _claims(accuracies):
    config = STAGES.configure("quick", SETTINGS)
    findings = STAGES.conclude(config, _results(config, accuracies))
    return findings, [claim.outcome for claim in findings.claims]


RISING = {"network": 0.60, "random": 0.40, "stage 4": 0.45, "stage 8": 0.52, "stage 12": 0.60}


def test_stages_that_rise_from_above_random_gates_to_the_network():
    findings, outcomes = _claims(RISING)
    assert outcomes == [Outcome.HOLDS] * 4
    rows = findings.tables[0].rows
    assert [row[0] for row in rows][1:4] == [f"gates after {epoch} epochs" for epoch in (4, 8, 12)]
    assert rows[0][1].startswith("40.")
    assert rows[0][2].startswith("45."), "the best epoch is 5 points above the last"


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({"stage 4": 0.35}, "Gates of the first stage beat random gates"),
        ({"stage 8": 0.44}, "Accuracy rises from stage to stage"),
        ({"stage 4": 0.61, "stage 8": 0.62}, "Gates of the last stage beat those of the first"),
        ({"network": 0.70}, "Gates of the last stage are as good as ReLU, within 1.5 points"),
    ],
)
def test_each_claim_fails_for_what_it_names(change, fails):
    findings, _ = _claims({**RISING, **change})
    assert {claim.text: claim.outcome for claim in findings.claims}[fails] is Outcome.FAILS


def test_runs_finish_one_after_the_other():
    whole, one = (STAGES.cells(STAGES.configure("quick", {**SETTINGS, "runs": runs})) for runs in (5, 1))
    assert whole[: len(one)] == one


KERNELS = find_experiment("npk-figure3-kernels")


def test_the_table_of_tangent_kernels_has_every_look_with_the_extremes_of_the_ratio():
    config = KERNELS.configure("quick", {"runs": 2})
    traces = [((10.0, 8.0), (100.0, 150.0)), ((12.0, 6.0), (100.0, 250.0))]  # for each run and look: K^V, K^F
    results = {
        f"run {run}": {
            "records": [
                {"epoch": epoch, "tangent": {"value": [v, v / 2], "feature": [f, f / 4]}}
                for epoch, (v, f) in zip((0, 20), looks, strict=True)
            ]
        }
        for run, looks in enumerate(traces)
    }
    findings = KERNELS.conclude(config, results)
    assert findings.tables[0].rows == (
        ("0", "11 ± 1.41", "7 ± 1.41", "0.50 to 0.80", "5.5 ± 0.707", "1.75 ± 0.354"),
        ("20", "100 ± 0", "200 ± 70.7", "1.50 to 2.50", "50 ± 0", "50 ± 17.7"),
    )
