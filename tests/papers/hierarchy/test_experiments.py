"""The experiments on teachers and students, on little; and the measures that they add."""

import pytest
import torch

from gatelab.hierarchy import build_teacher, exact_events, full_information, parity, string_fields, student_for
from gatelab.lab import Verdict
from gatelab.lab.findings import mean_curve
from gatelab.lab.runs import Run
from gatelab.lab.verdicts import Sample, greater_within_runs
from gatelab.papers import find_experiment
from gatelab.papers.hierarchy.overfitting import reliance, world
from gatelab.papers.hierarchy.reformulation import information
from tests.lab.test_experiments import _run


@pytest.fixture(autouse=True)
def _single_precision():
    """As the command runs."""
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("name", "claims", "figures"),
    [
        ("reformulation", 3, 2),
        ("batchnorm", 7, 2),
        ("expressibility", 4, 1),
        ("disentangle", 5, 1),
        ("overfitting", 6, 1),
        ("selectivity", 2, 2),
    ],
)
def test_smoke_profiles(name, claims, figures, tmp_path):
    path, findings = _run(find_experiment(f"hierarchy-{name}"), "smoke", {}, tmp_path / "run")
    assert path.exists()
    assert len(findings.claims) == claims
    assert len(findings.figures) == figures
    assert all(len(row) == len(table.columns) for table in findings.tables for row in table.rows)


def test_the_theorems_hold_in_the_smallest_runs(tmp_path):
    """Theorems 3, 5 and 6 are exact: one run decides them."""
    for name, places in (("reformulation", (0,)), ("batchnorm", (0,)), ("expressibility", (0, 1))):
        _, findings = _run(find_experiment(f"hierarchy-{name}"), "smoke", {}, tmp_path / name)
        assert all(findings.claims[place].verdict is Verdict.HOLDS for place in places)


def test_a_run_is_reproducible(tmp_path):
    experiment = find_experiment("hierarchy-overfitting")
    for name in ("one", "two"):
        _run(experiment, "smoke", {}, tmp_path / name)
    one, two = (Run.read(tmp_path / name).results() for name in ("one", "two"))
    assert one == two


def test_information_by_hand():
    teacher = build_teacher(string_fields(4, [2]), parity)
    assert information(exact_events(teacher), 4) == pytest.approx((1 / 2 + 1 / 2 + 1 / 4) / 3)
    assert information(exact_events(full_information(teacher)), 4) == pytest.approx(1)


def test_the_label_is_the_subtle_cause_and_the_coin_means_nothing():
    teacher = world(3)
    x, p = teacher.inputs.support()
    z = teacher(x)
    assert torch.equal(teacher.label(x), x[:, :3].sum(dim=1) % 2)
    assert torch.equal(z["gamma"], x[:, 3])
    assert float(p[(z["gamma"] == 1) & (z["top"] == 1)].sum()) == pytest.approx(0.25)


def test_reliance_of_answers_known_beforehand():
    """A student that answers with the coin has a dependence of ½ · √2 on γ, none on α."""
    teacher = world(2)
    student = student_for(teacher, 2, dtype=torch.float64)
    with torch.no_grad():
        for region in student.fields.inner:
            student.weights[region].zero_()
        student.incoming("gamma")["x2"].copy_(torch.eye(2))  # a node for each side of the coin
        student.incoming("top")["gamma"].copy_(torch.eye(2))
    assert reliance(student, teacher, "gamma") == pytest.approx(0.5**0.5)
    assert reliance(student, teacher, "alpha") == pytest.approx(0)


def test_curves_of_means():
    curve = mean_curve("x", (1.0,), [Sample((1.0, 3.0), percent=False)])
    assert curve.y == (2.0,)
    assert curve.error == (1.0,)


def test_runs_are_compared_with_themselves():
    """Runs that differ much, and each a little from its twin: only the second matters."""
    before, after = (Sample(tuple(10.0 * run + gap for run in range(3)), percent=False) for gap in (0.0, 1.0))
    assert greater_within_runs("more", after, before).verdict is Verdict.HOLDS
    assert greater_within_runs("more", before, after).verdict is Verdict.FAILS
