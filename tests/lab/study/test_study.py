"""A study end to end: trained networks, factories, files, resuming, every optional row."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import gatelab as gl
from gatelab.cli import main
from gatelab.data.user_data import UserData
from gatelab.errors import RunError
from gatelab.lab.objectives import Metric
from gatelab.lab.runs import Run
from gatelab.lab.study.closed_form import refit_score
from gatelab.lab.study.entry import read_settings
from gatelab.lab.study.materials import fitted
from gatelab.lab.study.rows import cells, rows
from gatelab.lab.study.sizing import sized
from gatelab.lab.study.source import from_factory, from_trained
from gatelab.lab.study.work import shuffled

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 2, "runs": 2, "kernels": "off", "progress": False, "decoupled": False, "dependent": False}


def blobs(n, seed=0):
    """Two classes that a line separates badly: inside and outside of a circle."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator)
    return x, (x.norm(dim=1) > 1.2).long()


class Small(nn.Module):
    """A network with gates in two layers, and a batch norm with a state of its own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.layers(x))


def trained(epochs=60):
    torch.manual_seed(1)
    net, (x, y) = Small(), blobs(300)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(epochs):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


def test_a_trained_network_is_studied_as_it_is_and_left_as_it_was():
    net = trained()  # in training mode, as users have it
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = gl.study(net, blobs(200), blobs(100, seed=1), **QUICK)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert net.training
    table = found.table().set_index("gates")
    x, y = blobs(100, seed=1)
    right = float((net.eval()(x).argmax(dim=1) == y).double().mean())
    assert table.loc["the network itself", "mean"] == pytest.approx(right)
    assert table.loc["the network itself", "sd"] == 0
    assert list(table.index) == ["the network itself", "random gates", "its trained gates, fresh values"]
    assert any("was studied as it is" in note for note in found.notes)


def test_its_gates_are_the_trained_ones_and_the_controls_are_not(monkeypatch):
    """The features of what is trained: the trained weights in one row, and in the control none of them."""
    from gatelab.lab.study import work

    seen = []
    monkeypatch.setattr(work, "train_cell", lambda nets, *a, **k: seen.append(nets) or {"test_score": [[0.5, 0.5]] * 2})
    net = trained(2).eval()
    gl.study(net, blobs(60), blobs(40), **QUICK)
    weights = net.layers[0].weight
    features = [[twin.get_parameter("feature.layers.0.weight") for twin in nets] for nets in seen]
    control, learnt = sorted(features, key=lambda found: torch.equal(found[0], weights))
    assert all(torch.equal(weight, weights) for weight in learnt)
    assert not any(torch.equal(weight, weights) for weight in control)
    assert not torch.equal(control[0], control[1])
    values = [[twin.get_parameter("value.head.weight") for twin in nets] for nets in seen]
    assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))  # the same fresh values under both gates
    assert not torch.equal(values[0][0], net.head.weight)


def test_every_optional_row(tmp_path):
    settings = {**QUICK, "layers": True, "gates_from": ("seed", "shuffled", "data"), "refit": 40, "amounts": (0.5,)}
    found = gl.study(Small, blobs(80), blobs(60, 1), other_data=blobs(80, 2), **settings)
    assert [row["gates"] for row in found.records()] == [
        "the network itself",
        "random gates",
        "its gates before training, fresh values",
        "its gates after 1 of 2 epochs, fresh values",
        "its trained gates, fresh values",
        "trained gates in 'layers.2' only",
        "random gates in 'layers.2' only",
        "trained gates in 'layers.4' only",
        "random gates in 'layers.4' only",
        "the network trained anew, from another seed",
        "gates of the network trained anew, from another seed",
        "a network trained on shuffled labels",
        "gates of a network trained on shuffled labels",
        "a network trained on other data",
        "gates of a network trained on other data",
        "its trained gates, values in closed form",
        "random gates, values in closed form",
        "its trained gates, 0.5 of the data",
        "random gates, 0.5 of the data",
    ]
    titles = [figure.title for figure in found.figures]
    assert "Which layers' gates hold it?" in titles
    assert "How many examples do values need, once gates are fixed?" in titles
    page = found.report(tmp_path / "study.html").read_text()
    assert "trained gates in &#39;layers.4&#39; only" in page
    assert found.plot().axes


def test_regression_by_r2_with_options_by_name():
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(3))
    y = x[:, :2].abs() + 0.1

    def net():
        return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))

    quick = {**QUICK, "epochs": 15, "optimiser": "nadam", "schedule": "cosine", "loss": "huber", "learning_rate": 0.02}
    found = gl.study(net, (x, y), augment=lambda batch: batch + 0.0, **quick)
    assert found.metric == "r2"
    assert "R²" in found.tables[0].title
    own = found.records()[0]
    assert 0.3 < own["mean"] <= 1.0
    assert "%" not in found.tables[0].rows[0][1]


FILES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        pooled = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(*pooled, nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with a network, its weights and data, as a user has them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FILES)
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=150)
    images = generator.normal(0.0, 0.3, (150, 1, 8, 8)) + np.eye(3)[labels][:, :, None, None].sum(axis=1, keepdims=True)
    images[np.arange(150), 0, labels * 2, :] += 1.0
    np.savez("mine.npz", x=images.astype(np.float32), y=labels)
    namespace: dict = {}
    exec(FILES, namespace)
    torch.manual_seed(0)
    save_file(namespace["Net"]().state_dict(), "w.safetensors")
    return tmp_path


def call(*arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gatelab", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0, *capsys.readouterr()


def test_a_cnn_its_weights_and_an_npz_by_command(folder, monkeypatch, capsys):
    line = ["study", "net.py:Net", "--weights", "w.safetensors", "--data", "mine.npz", "--kernels", "sketch"]
    few = ["--set", "epochs=1", "--set", "runs=2", "--set", "dependent=false", "--out", "mine"]
    code, out, err = call(*line, *few, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    assert "network: net.py:Net, 283 parameters" in err
    assert "studied as it is, never retrained" in err
    assert "6 tensors by the network's factory, under another seed" in err
    assert "time: about" in err
    assert "a random fifth, 30 examples, is held out" in err
    assert "report: mine/report.html" in out
    results = json.loads((folder / "mine" / "results.json").read_text())
    assert results["results"][0]["name"] == "the network itself"
    # The same command goes on where the run stands: nothing is left to do, nothing is measured again.
    code, again, err = call(*line, *few, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "5 cells, 5 already finished" in err
    assert "time: about" not in err
    assert again.splitlines()[-1] == out.splitlines()[-1]
    # Other data under the same name are another study.
    np.savez(
        "mine.npz", x=np.random.default_rng(1).normal(size=(150, 1, 8, 8)).astype(np.float32), y=np.arange(150) % 3
    )
    code, _, err = call(*line, *few, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert "fingerprint" in err


def test_the_five_lines_of_a_notebook(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    cell = """
import numpy as np, gatelab as gl
from safetensors.torch import load_model
from net import Net
model = Net(); load_model(model, "w.safetensors")
data = np.load("mine.npz")
found = gl.study(model, (data["x"], data["y"]), runs=2, epochs=1, decoupled=False, dependent=False, kernels="off")
"""
    namespace: dict = {}
    exec(cell, namespace)
    found = namespace["found"]
    assert found.answer.startswith(
        ("No answer", "Not decided", "All", "Nearly all", "Most", "Some", "About half", "None")
    )
    assert list(found.table().columns) == ["gates", "regime", "mean", "sd", "low", "high", "best", "runs",
                                           "share", "share_low", "share_high"]  # fmt: skip
    assert found.plot().axes
    assert found.report("x.html").read_text().startswith("<!doctype html>")


def test_a_python_study_goes_on_and_refuses_other_data(tmp_path):
    first = gl.study(Small, blobs(60), blobs(40, 1), out=tmp_path / "run", **QUICK)
    lines = (tmp_path / "run" / "journal.jsonl").read_text()
    again = gl.study(Small, blobs(60), blobs(40, 1), out=tmp_path / "run", **QUICK)
    assert again.answer == first.answer
    assert (tmp_path / "run" / "journal.jsonl").read_text() == lines
    with pytest.raises(RunError, match="fingerprint"):
        gl.study(Small, blobs(60, 5), blobs(40, 1), out=tmp_path / "run", **QUICK)
    assert Run.read(tmp_path / "run").experiment == "study"


def test_a_refit_is_that_of_refit_values(generator):
    """The same ridge, the same gates: the closed form agrees with refit_values, kernel for kernel."""
    x, y = blobs(40)
    net = nn.Sequential(nn.Linear(2, 20, bias=False), nn.ReLU(), nn.Linear(20, 2, bias=False)).double().eval()
    kernel = gl.neural_path_kernel(net, x.double())
    targets = nn.functional.one_hot(y).double() - 0.5
    ridge = 1e-2
    fit = gl.kernels.refit_values(net, x.double(), targets, ridge * float(kernel.diagonal().mean()))
    ours = gl.kernels.kernel_ridge(kernel, targets, ridge).predict(kernel)
    torch.testing.assert_close(ours, fit.predict(x.double()), rtol=1e-6, atol=1e-8)
    data = fitted(read_settings({}), UserData("blobs", x, y, x, y), from_trained("net", net.float())).data
    assert refit_score(net, data, 40, Metric.ACCURACY) > 0.75


def test_sizes_depend_on_the_network_alone_and_leave_what_was_given():
    small = fitted(read_settings({}), gl.data.load("digits"), None)
    chosen = sized(read_settings({}), small)
    assert (chosen.runs, chosen.epochs, chosen.batch_size, chosen.decoupled) == (16, 15, 32, True)
    assert sized(read_settings({"runs": 3, "decoupled": False}), small).model_dump(
        include={"runs", "epochs", "decoupled"}
    ) == {"runs": 3, "epochs": 15, "decoupled": False}
    layers = sized(read_settings({"layers": True}), small)
    assert len(layers.layer_names) == 2
    names = {cell.name for cell in cells(layers)}
    assert {row.cell for row in rows(layers)} <= names


def test_a_refit_uses_no_more_examples_than_there_are(tmp_path):
    how = {**QUICK, "stages": (1.0,), "epochs": 1, "refit": 5000, "out": tmp_path / "run"}
    found = gl.study(dense, blobs(40), blobs(30, 1), **how)
    assert found.results[-1].regime == "40 examples"
    again = gl.study(dense, blobs(40), blobs(30, 1), **how)  # the same call goes on
    assert again.answer == found.answer


def test_a_network_that_learnt_nothing_is_told_so():
    """Nine of ten examples are of one class, and steps of almost zero leave the network at its start."""
    x, y = blobs(100)
    y = (torch.arange(100) % 10 == 0).long()
    found = gl.study(dense, (x, y), (x, y), **{**QUICK, "epochs": 1, "learning_rate": 1e-9})
    told = [note for note in found.notes if "is no better than one answer for all examples (90.00 %)" in note]
    assert bool(told) == (found.records()[0]["mean"] <= 0.9)
    found = gl.study(dense, (x, x), (x, x), **{**QUICK, "epochs": 1, "learning_rate": 1e-9})
    assert any("is no better than one answer for all examples (0)" in note for note in found.notes)


def test_trainings_that_diverge_are_told_and_do_not_end_the_study():
    made = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))  # noqa: E731
    wild = {"optimiser": "sgd", "learning_rate": 30.0}
    found = gl.study(made, "digits", epochs=3, runs=2, train_size=300, probes=20, stages=(1.0,), progress=False, **wild)
    (note,) = [note for note in found.notes if "diverged" in note]
    assert "random" in note
    assert not found.decided
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    made = lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))  # noqa: E731
    wild["learning_rate"] = 3.0  # squared losses: weights grow until kernels overflow, then they are no numbers
    found = gl.study(made, (x, 2 * x[:, :1]), epochs=3, runs=2, probes=20, progress=False, **wild)
    assert any("diverged" in note for note in found.notes)
    assert not found.decided


def test_labels_are_shuffled_and_nothing_else():
    data = fitted(read_settings({}), gl.data.load("digits"), None).data
    mixed = shuffled(data, 0)
    assert torch.equal(mixed.train_y.sort().values, data.train_y.sort().values)
    assert float((mixed.train_y == data.train_y).double().mean()) < 0.2
    assert torch.equal(mixed.test_y, data.test_y)


def test_the_rows_are_those_of_a_plain_loop(tmp_path):
    """Gates fixed and values trained by hand, in the lab's order of batches: the same scores after each epoch."""
    (x, y), (test_x, test_y) = blobs(96), blobs(80, seed=1)
    how = {**QUICK, "epochs": 3, "stages": (1.0,), "learning_rate": 0.05}
    gl.study(dense, (x, y), (test_x, test_y), out=tmp_path / "run", **how)
    results = Run.read(tmp_path / "run").results()
    source = from_factory("dense", dense)
    for place, seed in enumerate(results["network"]["seeds"]):
        own = source.start(seed)
        everything = torch.ones(96, 8), torch.ones(80, 8)
        scores = {"network": by_hand(own, None, (x, y), (test_x, test_y), seed, everything)}
        for cell, decides in (("random", source.control(seed)), ("stage/3", own)):
            with torch.no_grad():
                gates = (decides[0](x) > 0).float(), (decides[0](test_x) > 0).float()
            scores[cell] = by_hand(source.fresh(seed), nn.Identity(), (x, y), (test_x, test_y), seed, gates)
        for cell, expected in scores.items():
            assert results[cell]["test_score"][place] == pytest.approx(expected), cell


def dense():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def by_hand(net, between, train, test, seed, gates):
    """Train a network of two dense layers; ``between`` takes the ReLU's place in front of given gates."""
    optimiser, scores, between = torch.optim.Adam(net.parameters(), 0.05), [], between or torch.relu
    for epoch in range(3):
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        for batch in order.split(32):
            optimiser.zero_grad()
            answers = net[2](between(net[0](train[0][batch])) * gates[0][batch])
            nn.functional.cross_entropy(answers, train[1][batch]).backward()
            optimiser.step()
        with torch.no_grad():
            answers = net[2](between(net[0](test[0])) * gates[1])
        scores.append(float((answers.argmax(dim=1) == test[1]).double().mean()))
    return scores
