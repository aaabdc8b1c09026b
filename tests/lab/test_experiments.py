"""Experiments end to end, on little."""

import json
import sys

import pytest
import torch

from gatelab.cli import main
from gatelab.data import load
from gatelab.errors import DataError, InputError, UnsupportedModelError
from gatelab.kernels import neural_tangent_kernel
from gatelab.kernels.solve.blocks import DenseKernel
from gatelab.lab.kernel_machines import ridge_answers, support_vector_answers
from gatelab.lab.report import write_report
from gatelab.lab.runs import Run, execute
from gatelab.lab.study import StudyConfig
from gatelab.lab.study.materials import materials_of, source_of
from gatelab.lab.verdicts import Outcome
from gatelab.models import MemorisationNetwork
from gatelab.papers import all_experiments, find_experiment
from gatelab.papers.npk.kernel_at_scale import AtScaleConfig, held_out_accuracies
from gatelab.papers.npk.memorisation import _ByIndex, ideal_ecdf, steps_needed
from tests.lab.runs.test_runs import Log

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 16, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(x.flatten(1))

def curved():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.ReLU(), nn.Linear(8, 10))

def narrow():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4))

nothing = 3
"""


@pytest.fixture(autouse=True)
def _single_precision():
    """As the command runs."""
    torch.set_default_dtype(torch.float32)


def _run(experiment, profile, settings, path, workers=1):
    config = experiment.configure(profile, settings)
    run = Run.open(path, experiment.id, config.model_dump(mode="json"))
    execute(run, config, experiment.cells(config), experiment.work, Log(), workers)
    return write_report(run, experiment)


def test_a_study_of_a_users_network_alone_and_in_a_pool(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    study, settings = find_experiment("study"), {"model": f"{tmp_path}/net.py:Net", "train_size": 100, "stages": (1.0,)}
    path, findings = _run(study, "smoke", settings, tmp_path / "alone")
    assert path.exists()
    names = [row[0] for row in findings.tables[0].rows]
    assert names[0] == "the network itself"
    assert "its trained gates, fresh values (FLNPF)" in names
    results = json.loads((tmp_path / "alone" / "results.json").read_text())
    assert results["answer"] == findings.answer
    assert (tmp_path / "alone" / "tables" / "table-1.tex").exists()
    _run(study, "smoke", settings, tmp_path / "pool", workers=2)
    alone, pool = (Run.read(tmp_path / name).results() for name in ("alone", "pool"))
    assert alone == pool


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("net.py", InputError, "write file.py:factory"),
        ("missing.py:Net", InputError, "there is no file"),
        ("net.py:Missing", InputError, "has no 'Missing'; it has torch, nn, Net"),
        ("net.py:curved", UnsupportedModelError, r"module '2' \(Tanh\)"),
        ("net.py:narrow", InputError, r"must give \(2, 10\)"),
        ("broken.py:Net", InputError, "broken.py cannot be imported: SyntaxError"),
    ],
)
def test_bad_models_are_refused_before_anything_is_trained(place, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("def Net(:")
    with pytest.raises(error, match=message):
        materials_of(StudyConfig(model=place))


def test_factories_are_reproducible(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    source = source_of(StudyConfig(model=f"{tmp_path}/net.py:Net"))
    first, second, third = (source.start(seed).conv.weight for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def _needs(name):
    try:
        load(name)
    except DataError:
        pytest.skip(f"{name} is not here: run 'make data'")


SMALL_IMAGES = {"arch": "gconv", "shrink": 4, "train_size": 200, "test_size": 100}


@pytest.mark.data
@pytest.mark.parametrize(("data", "settings"), [("mnist", {}), ("cifar10", SMALL_IMAGES)])
def test_table_2_end_to_end(tmp_path, data, settings):
    _needs(data)
    _, findings = _run(find_experiment("npk-table2"), "smoke", settings, tmp_path / "run")
    assert [row[0] for row in findings.tables[0].rows] == ["FRNPF (II)", "FRNPF (DI)", "DNPFL", "FLNPF", "ReLU"]
    assert len(findings.claims) == 5
    assert any(note.startswith("The gates of DNPFL are soft.") for note in findings.notes)


SOFT = {"npk-figure3-kernels", "halfspace-fashion", "halfspace-table1", "halfspace-table2"}


@pytest.mark.data
@pytest.mark.parametrize(
    ("identifier", "data", "figures"),
    [
        pytest.param("npk-figure3-stages", "cifar10", 1, marks=pytest.mark.slow),
        ("npk-figure3-dynamics", "mnist", 1),
        ("npk-figure3-kernels", "mnist", 2),
        ("npk-kernel-regression", "mnist", 1),
        pytest.param("halfspace-fashion", "fashion-mnist", 7, marks=pytest.mark.slow),
        pytest.param("halfspace-table1", "cifar10", 2, marks=pytest.mark.slow),
        pytest.param("halfspace-table2", "cifar10", 2, marks=pytest.mark.slow),
    ],
)
def test_smoke_profiles_on_real_data(identifier, data, figures, tmp_path):
    _needs(data)
    path, findings = _run(find_experiment(identifier), "smoke", {}, tmp_path / "run")
    assert path.exists()
    assert len(findings.figures) == figures
    assert findings.claims
    assert any("are soft. Made hard" in note for note in findings.notes) == (identifier in SOFT)


LITTLE = {"train_size": 60, "test_size": 20, "epochs": 2, "eigenvalues": 3, "ridges": (0.1, 1.0)}


@pytest.mark.parametrize(
    ("identifier", "settings", "claims"),
    [
        ("npk-figure5", {}, 0),
        ("npk-figure6", {"depths": (2, 4)}, 1),
        ("npk-theorem51", {}, 1),
        ("npk-kernel-at-scale", LITTLE, 2),
        ("halfspace-circle", {}, 22),
        pytest.param("halfspace-initialisation", {"starts": ("pytorch", "signs")}, 6, marks=pytest.mark.slow),
        pytest.param("halfspace-path-regions", {}, 5, marks=pytest.mark.slow),
        pytest.param("halfspace-figure8", {}, 0, marks=pytest.mark.slow),
        ("halfspace-hardening", {}, 5),
    ],
)
def test_smoke_profiles(identifier, settings, claims, tmp_path):
    path, findings = _run(find_experiment(identifier), "smoke", settings, tmp_path / "run")
    assert path.exists()
    assert len(findings.claims) == claims
    assert all(claim.outcome is Outcome.UNDECIDED for claim in findings.claims), "a smoke run decides nothing"
    assert findings.figures


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Data has no positive values")
def test_a_network_without_open_paths_has_a_report(tmp_path):
    path, findings = _run(find_experiment("halfspace-circle"), "smoke", {"width": 1}, tmp_path / "run")
    assert path.exists()
    assert any(claim.verdict.test == "no test" for claim in findings.claims)
    assert {claim.outcome for claim in findings.claims} == {Outcome.UNDECIDED}


def test_memorisation_kernels_are_those_of_autograd():
    generator = torch.Generator().manual_seed(0)
    network = MemorisationNetwork(7, 5, 4, generator=generator).double()
    rows = []
    for index in range(7):
        network.zero_grad()
        network(torch.tensor([index])).sum().backward()
        rows.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    jacobian = torch.stack(rows)
    kernel = neural_tangent_kernel(_ByIndex(network), torch.eye(7, dtype=torch.float64))
    torch.testing.assert_close(kernel, jacobian @ jacobian.T, rtol=1e-10, atol=1e-12)
    expected = (1 - 0.5**3, 6 * (1 - 0.5**3), 7.0)
    ecdf = ideal_ecdf(7, 0.5, 4)
    assert (ecdf[0], ecdf[5], ecdf[6]) == pytest.approx(expected)


def test_steps_needed_are_counted_or_unknown():
    decay = [0.9**step for step in range(100)]
    assert steps_needed(decay) == 44  # 0.9^44 < 0.01 < 0.9^43
    assert steps_needed(decay[:20]) is None


def test_ridge_regression_with_a_kernel_is_that_with_its_features():
    digits = load("digits").subset(300, 100)
    x, others = (digits.inputs(part, torch.float64).flatten(1) for part in (digits.train_x, digits.test_x))
    targets = torch.nn.functional.one_hot(digits.train_y, 10).double() - 0.1
    weights = torch.linalg.solve(x.T @ x + 0.5 * torch.eye(64), x.T @ targets)
    kernel = x @ x.T  # its ridge is relative to the mean diagonal
    said = ridge_answers(kernel, others @ x.T, digits.train_y, 0.5 / kernel.diagonal().mean().item())
    assert torch.equal(said, (others @ weights).argmax(dim=1))


def test_ridges_are_chosen_on_examples_that_the_regression_has_not_seen():
    digits = load("digits").subset(300, 100)
    x = digits.inputs(digits.train_x).flatten(1)
    config = AtScaleConfig(data="digits", ridges=(1e-3, 1e-1, 1e2))
    targets = torch.nn.functional.one_hot(digits.train_y, 10).double() - 0.1
    kernel = DenseKernel(x @ x.T, symmetric=True, size=64)
    found = held_out_accuracies(kernel, digits.train_y, targets, config, seed=0)
    entries = (x @ x.T).double()
    for ridge, accuracy in zip(config.ridges, found, strict=True):
        said = ridge_answers(entries[:240, :240], entries[240:, :240], digits.train_y[:240], ridge)
        assert accuracy == pytest.approx((said == digits.train_y[240:]).double().mean().item(), abs=1e-12)


def test_support_vector_machines_find_what_is_there():
    digits = load("digits").subset(300, 100)
    x, others = (digits.inputs(part, torch.float64).flatten(1) for part in (digits.train_x, digits.test_x))
    said = support_vector_answers(x @ x.T, others @ x.T, digits.train_y, 1.0)
    assert (said == digits.test_y).double().mean() > 0.85
    blind = support_vector_answers(torch.eye(300), torch.zeros(100, 300), digits.train_y, 1.0)
    assert (blind == digits.test_y).double().mean() < 0.3


def test_every_experiment_has_its_profiles_and_refuses_unknown_keys():
    for experiment in all_experiments():
        for profile in ("smoke", "quick", "paper"):
            config = experiment.configure(profile, {})
            assert experiment.read(config.model_dump(mode="json")) == config
            assert experiment.cells(config)
        with pytest.raises(InputError, match=r"no setting 'epoch'.*Its settings are"):
            experiment.configure("smoke", {"epoch": 3})
        with pytest.raises(InputError, match="no profile 'huge'"):
            experiment.configure("huge", {})
    with pytest.raises(InputError, match="there is no experiment 'npk'"):
        find_experiment("npk")


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        """The command in this process; returns its exit code, and what it printed."""
        monkeypatch.setattr(sys, "argv", ["gatelab", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    settings = ("--set", "epochs=1", "--set", "train_size=50")
    code, out, err = call("run", "study", "--profile", "smoke", *settings, "--out", "runs/little")
    assert code == 0, err
    assert "report: runs/little/report.html" in out
    assert "6 cells, 0 already finished" in err  # one epoch has two stages, 0 and 1
    assert "6 of 6 cells" in call("runs")[1]
    assert call("report", "runs/little")[1].strip().endswith("report.html")
    code, _, err = call("run", "study", "--set", "epochs=two")
    assert code == 2
    assert err.startswith("gatelab: study: epochs: 'two' is not a whole number; give one, such as 15")
    assert call("run", "study", "--set", "epochs")[2] == (
        "gatelab: --set epochs: write key=value (more: gatelab explain InputError)\n"
    )
    assert "study" in call("experiments")[1]
