"""Smoke runs of the experiments on teachers and students, and the measures that they define."""

import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import (
    LocalNetwork,
    Teacher,
    exact_events,
    full_information,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy.cells import Gap
from gatelab.hierarchy.rules import parity
from gatelab.lab.findings import mean_curve
from gatelab.lab.verdicts import Outcome, Sample, greater
from gatelab.papers import find_experiment
from gatelab.papers.hierarchy.cnn_findings import _small
from gatelab.papers.hierarchy.overfitting import reliance, signals, world
from gatelab.papers.hierarchy.parents import arriving, parents_of_one_child
from gatelab.papers.hierarchy.reformulation import information
from gatelab.papers.hierarchy.theorems_random import random_parents
from gatelab.papers.hierarchy.worlds import windows
from tests.lab.test_experiments import _run


@pytest.fixture(autouse=True)
def _single_precision():
    """As the command runs."""
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("name", "claims", "figures", "exact"),
    [
        # Theorems 3, 5 and 6 are exact: more runs would not change their claims.
        ("reformulation", 3, 2, (0,)),
        ("batchnorm", 7, 3, (0,)),
        ("expressibility", 4, 1, (0, 1)),
        ("random-rank", 2, 2, ()),
        ("disentangle", 5, 2, ()),
        ("overfitting", 9, 1, ()),
        ("selectivity", 2, 2, ()),
        ("budget", 8, 4, ()),
        ("parents", 3, 1, (0,)),
        ("cnn", 5, 4, (4,)),
    ],
)
def test_smoke_profiles(name, claims, figures, exact, tmp_path):
    path, findings = _run(find_experiment(f"hierarchy-{name}"), "smoke", {}, tmp_path / "run")
    assert path.exists()
    assert len(findings.claims) == claims
    assert len(findings.figures) == figures
    assert all(len(row) == len(table.columns) for table in findings.tables for row in table.rows)
    assert all(claim.outcome is Outcome.UNDECIDED for claim in findings.claims), "a smoke run decides nothing"
    assert all(findings.claims[place].verdict.by_chance == (0.0, 1.0) for place in exact)


def test_a_network_with_weights_of_its_own_is_diagnosed_once(tmp_path):
    """One network, not trained here: no student, intervals over examples, labels by their names."""
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), "
        "nn.ReLU(), nn.Flatten(), nn.Linear(48, 10))\n"
    )
    torch.manual_seed(0)
    namespace: dict = {}
    exec((tmp_path / "own.py").read_text(), namespace)
    torch.save(namespace["make"]().state_dict(), tmp_path / "own.pt")
    settings = {"model": f"{tmp_path / 'own.py'}:make", "weights": str(tmp_path / "own.pt"), "runs": 3}
    _, findings = _run(find_experiment("hierarchy-cnn"), "smoke", settings, tmp_path / "run")
    titles = [table.title for table in findings.tables]
    assert titles[:2] == [
        "Theorem 2's assumptions with your weights, layer by layer",
        "Theorem 2's assumptions with newly drawn weights, layer by layer",
    ]
    assert "–" in findings.tables[0].rows[0][1]  # an interval
    assert not any("student" in column for table in findings.tables for column in table.columns)
    assert len(findings.claims) == 1
    assert "layer" in findings.claims[0].evidence
    assert any("was not trained here" in note for note in findings.notes)


@pytest.mark.parametrize(
    ("gap", "holds"), [(Gap(0.05, 0.04, 0.06), True), (Gap(0.4, 0.35, 0.44), False), (Gap(0.1, 0.05, 0.13), None)]
)
def test_an_interval_over_examples_decides(gap, holds):
    verdict = _small(gap, "1")
    wanted = {True: Outcome.HOLDS, False: Outcome.FAILS, None: Outcome.UNDECIDED}[holds]
    assert verdict.outcome is wanted


def test_a_run_is_reproducible(unchecked):
    """Training and the noise of batches draw all random numbers from the seed of their cell."""
    experiment = find_experiment("hierarchy-overfitting")
    config = experiment.configure("smoke", {"runs": 1, "samples": (8,), "steps": 3})
    one, two = ([experiment.work(config, cell, None) for cell in experiment.cells(config)] for _ in range(2))
    assert one == two
    other = experiment.configure("smoke", {"runs": 1, "samples": (8,), "steps": 3, "seed": 1})
    assert one != [experiment.work(other, cell, None) for cell in experiment.cells(other)]


def test_information_by_hand():
    teacher = Teacher(string_fields(4, [2]), parity)
    assert information(exact_events(teacher), 4) == pytest.approx((1 / 2 + 1 / 2 + 1 / 4) / 3)
    assert information(exact_events(full_information(teacher)), 4) == pytest.approx(1)


def test_the_label_is_the_subtle_cause_and_independent_of_the_coin():
    teacher = world(3)
    x, p = teacher.inputs.support()
    z = teacher(x)
    assert torch.equal(teacher.label(x), x[:, :3].sum(dim=1) % 2)
    assert torch.equal(z["gamma"], x[:, 3])
    assert float(p[(z["gamma"] == 1) & (z["top"] == 1)].sum()) == pytest.approx(0.25)


def test_reliance_of_a_student_that_outputs_the_coin():
    """A student whose output is the coin has a dependence of ½ · √2 on γ and none on α."""
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
    """Runs differ much from each other, and each a little from its twin: only the second matters."""
    noise = (0.1, -0.1, 0.05, -0.05)
    before = Sample(tuple(10.0 * run for run in range(4)), percent=False)
    after = Sample(tuple(value + 1 + small for value, small in zip(before.values, noise, strict=True)), percent=False)
    assert greater(after, before).outcome is Outcome.UNDECIDED
    assert greater(after, before, paired=True).outcome is Outcome.HOLDS
    assert greater(before, after, paired=True).outcome is Outcome.FAILS


DEEP = {
    "reformulation": {"bits": 6, "depth": 2, "keeps": (0, 6)},
    "expressibility": {"depth": 2, "sizes": (3,)},
    "disentangle": {"depth": 2, "steps": 2},
    "overfitting": {"depth": 2, "bits": 3, "samples": (8,)},
    "selectivity": {"depth": 2, "steps": 2},
    "batchnorm": {"depth": 3, "epochs": 1},
}


@pytest.mark.parametrize("name", DEEP)
def test_depth_is_a_setting(name):
    experiment = find_experiment(f"hierarchy-{name}")
    config = experiment.configure("smoke", DEEP[name])
    assert config.depth > 1
    with pytest.raises(InputError):
        experiment.configure("smoke", {"depth": 0})


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_deep_smoke_runs(name, tmp_path):
    path, findings = _run(find_experiment(f"hierarchy-{name}"), "smoke", DEEP[name], tmp_path / "run")
    assert path.exists()
    assert findings.tables


def test_a_deep_world_adds_up_the_parity():
    teacher, flat = world(5, 3), world(5)
    x, _ = teacher.inputs.support()
    assert torch.equal(teacher.label(x), flat.label(x))
    assert len(teacher.fields.hidden) == 4
    assert torch.equal(teacher(x)["alpha0"], x[:, :2].sum(dim=1) % 2)


def test_windows_of_any_depth():
    assert windows(8, 1, (4, 2)).regions == string_fields(8, [4], [2]).regions
    assert windows(8, 5).depth == 6
    with pytest.raises(InputError, match="at most 4 layers"):
        windows(6, 5)


def test_the_signals_of_equations_14_and_15_by_hand():
    """A student that sees the coin and not the parity: only γ's nodes are distinct, and only they are moved."""
    teacher = world(2)
    student = student_for(teacher, 2, dtype=torch.float64)
    with torch.no_grad():
        for region in student.fields.inner:
            student.weights[region].zero_()
        student.incoming("gamma")["x2"].copy_(torch.eye(2))
    x = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    found = signals(student, teacher, x)
    assert found["alpha"]["distinct"] == found["alpha"]["update"] == 0
    # z_γ is 0 with label 0 and 1 with label 1: g₀ = ∓1, f = (1, 0) or (0, 1), with probabilities 1/3 and 2/3.
    assert found["gamma"]["update"] == pytest.approx(2 * 1 * 2 / 9)
    assert found["gamma"]["signal"] == pytest.approx((4 * 2 / 9) ** 0.5)


def test_what_arrives_at_a_child_is_the_derivative_of_the_loss_on_z():
    """Σ Pᵀ G̃ Wᵀ against the loss of two students whose child's nodes differ a little."""
    generator = torch.Generator().manual_seed(0)
    prior, given = random_parents(2, 3, generator)
    events = parents_of_one_child(prior, given)
    code = torch.randn(4, 2, generator=generator, dtype=torch.float64)

    def student(change):
        seeded = torch.Generator().manual_seed(1)
        fields, codes = events.fields, {"beta": code + change}
        return LocalNetwork(fields, 2, 2, encodings=codes, dtype=torch.float64, generator=seeded)

    step = torch.zeros(4, 2, dtype=torch.float64)
    step[2, 1] = 1e-6
    losses = [reformulate(student(sign * step), events).loss for sign in (1, -1)]
    assert (losses[1] - losses[0]) / 2e-6 == pytest.approx(arriving(student(0 * step), events)[2, 1].item(), rel=1e-5)
