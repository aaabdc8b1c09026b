"""halfspace, Figures 7 and 11–16: where the paths go when half of the classes are simple."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import Dataset, load, modified_fashion
from gatelab.data.fashion_clusters import SIMPLE
from gatelab.figures import Curve, Heatmap, Panels, Plot
from gatelab.gates import SoftGate, capture_gates
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.experiment import DataConfig, Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, Verdict, close, greater, larger_within_runs, readable
from gatelab.regions import active_path_counts, half_spaces

KINDS = {"relu": "ReLU", "dlgn": "DLGN-PWC"}
PARTS = ("simple", "complex")
MIDDLE = 0.72  # accuracy on the simple part at which the paper looks at its kernels a second time


class FashionConfig(DataConfig):
    """A ReLU network and a DLGN-PWC learn the modified Fashion-MNIST."""

    runs: int = Field(default=3, ge=1)
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    beta: float = Field(default=10.0, gt=0)
    learning_rate: float = Field(default=2e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)
    epoch_examples: int = Field(default=6000, ge=1)  # a tenth of the data, so that the beginning can be seen
    epochs: int = Field(default=60, ge=1)
    per_class: int = Field(default=50, ge=1)  # probes
    train_size: int | None = Field(default=None, ge=1)
    pictures: int = Field(default=8, ge=1)  # half-space normals shown in each layer

    def data(self) -> Dataset:
        """The modified data."""
        return _data(self.data_root, self.train_size, self.seed)

    def looks_at(self) -> list[int]:
        """Every epoch at first, then every fifth, and the last."""
        return [e for e in range(self.epochs + 1) if e <= 10 or e % 5 == 0 or e == self.epochs]

    def make(self, kind: str, seed: int) -> nn.Module:
        """A network of a kind; images are flattened."""
        widths, generator = [784, *[self.width] * self.layers, 10], torch.Generator().manual_seed(seed)
        if kind == "relu":
            return nn.Sequential(nn.Flatten(), *models.mlp(widths, bias=True, generator=generator))
        gate = SoftGate(self.beta)
        net = models.DeepLinearlyGatedNetwork(widths, gate=gate, piecewise_constant=True, generator=generator)
        return nn.Sequential(nn.Flatten(), net)


@cache
def _data(root: str | None, train_size: int | None, seed: int) -> Dataset:
    """Clustering takes seconds; cells of one process share it."""
    return modified_fashion(load("fashion-mnist", root).subset(train_size, seed=seed), seed=seed)


def _look(model: nn.Module, data: Dataset, config: FashionConfig, *, pictures: bool) -> Look:
    """Paths, tangent kernel and accuracy on both parts, kernels averaged over classes."""
    probes, labels = _probes(data, config.per_class)
    simple, tests = labels < SIMPLE, data.test_y < SIMPLE
    gates = capture_gates(model, probes)
    paths = torch.tensor(active_path_counts(gates), dtype=torch.float64)
    tangent = neural_tangent_kernel(model, probes)
    with torch.no_grad():
        right = (model(data.inputs(data.test_x)).argmax(dim=1) == data.test_y).double()
    seen: Look = {
        "paths": [float(paths[simple].mean()), float(paths[~simple].mean())],
        "diagonal": [float(tangent.diagonal()[part].mean()) for part in (simple, ~simple)],
        "accuracy": [float(right[tests].mean()), float(right[~tests].mean())],
        "overlap": short(class_means(trace_normalised(overlap_kernel(gates)), labels)),
        "tangent": short(class_means(trace_normalised(tangent), labels)),
    }
    if pictures:
        chosen = list(range(min(config.pictures, config.width)))
        seen["normals"] = [short(layer.normals(chosen)[:, 0]) for layer in half_spaces(model, (1, 28, 28)).values()]
    return seen


def _probes(data: Dataset, per_class: int) -> tuple[Tensor, Tensor]:
    """Test examples, so many of each class, class after class."""
    places = [(data.test_y == label).nonzero()[:per_class, 0] for label in range(len(data.classes))]
    chosen = torch.cat(places)
    return data.inputs(data.test_x[chosen]), data.test_y[chosen]


def class_means(kernel: Float[Tensor, "n n"], labels: Tensor) -> Float[Tensor, "c c"]:
    """The kernel's mean over the examples of each pair of classes."""
    member = torch.nn.functional.one_hot(labels).to(kernel)
    weights = member / member.sum(dim=0).clamp(min=1)
    return weights.T @ kernel @ weights


def _work(config: FashionConfig, cell: Cell, context: Context) -> Result:
    data, seeds = config.data(), config.seeds()

    def see(model: nn.Module, epoch: int, place: int) -> Look:
        last = epoch == config.epochs and place == 0 and cell.name == "dlgn"
        return _look(model, data, config, pictures=last)

    training = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        epoch_examples=config.epoch_examples,
    )
    nets = [config.make(cell.name, seed) for seed in seeds]
    return train_and_look(nets, seeds, data, training, context, config.looks_at(), see)


class _Seen:
    """What was seen of one kind of network."""

    def __init__(self, result: Result):
        self._seen = result["seen"]
        self.epochs = [entry["epoch"] for entry in self._seen]
        self.final = Sample.last(result["test_accuracy"])

    def part(self, what: str, part: int, place: int) -> Sample:
        """A quantity on a part of the classes at a look, over runs."""
        values = tuple(look[what][part] for look in self._seen[place]["members"])
        return Sample(values, percent=what == "accuracy")

    def first_run(self, place: int) -> Look:
        """All that was seen of the first run at a look."""
        return self._seen[place]["members"][0]

    def middle(self) -> int:
        """The first look at which the first run has learnt the simple part almost; the middle one if it never has."""
        found = (k for k, entry in enumerate(self._seen) if entry["members"][0]["accuracy"][0] >= MIDDLE)
        return next(found, len(self._seen) // 2)

    def has_learnt(self) -> bool:
        """Whether the first run ever had."""
        return any(entry["members"][0]["accuracy"][0] >= MIDDLE for entry in self._seen)


def _findings(config: FashionConfig, results: Mapping[str, Result]) -> Findings:
    seen = {kind: _Seen(results[kind]) for kind in KINDS}
    dlgn, passes = seen["dlgn"], config.epochs * config.epoch_examples / 60000
    simple, other = (dlgn.part("paths", part, -1).mean for part in (0, 1))
    return Findings(
        f"halfspace, Figures 7, 11–16: {results['relu']['data']}",
        f"At the end the DLGN-PWC opens {readable(simple)} paths for an image of the simple classes and "
        f"{readable(other)} for one of the complex ones, on average. It gets "
        f"{dlgn.part('accuracy', 0, -1).text()} % of the simple and {dlgn.part('accuracy', 1, -1).text()} % of the "
        "complex test images right.",
        (_table(seen),),
        (*_curves(config, seen), *_kernels(seen), _normals(dlgn)),
        _claims(seen),
        (
            "The paper does not name its clustering: ours is k-means, 5 clusters in each of the last 5 classes, dealt "
            "to labels 6 to 10 at random, 5 to each.",
            f"{passes:.3g} passes over 60,000 images, Adam {config.learning_rate:g}, batches of {config.batch_size}; "
            "the paper does not say how long it trains.",
            f"Paths, kernels and their class means are on {config.per_class} test images of each class, gates hard.",
        ),
    )


def _table(seen: Mapping[str, _Seen]) -> Table:
    rows = []
    for kind, name in KINDS.items():
        one = seen[kind]
        for place, when in ((0, "start"), (one.middle(), "middle"), (-1, "end")):
            numbers = [
                one.part(what, part, place).text() for what in ("paths", "diagonal", "accuracy") for part in (0, 1)
            ]
            rows.append((f"{name}, {when} (epoch {one.epochs[place]})", *numbers))
    columns = [f"{what}, {part}" for what in ("active paths", "K(x, x)", "test accuracy, %") for part in PARTS]
    note = f"The middle is where the first run gets {MIDDLE:.0%} of the simple test images right."
    for never in (name for kind, name in KINDS.items() if not seen[kind].has_learnt()):
        note += f" {never} never did: its middle is the look half-way."
    return Table(
        "Simple and complex classes, mean ± standard deviation over runs", ("network", *columns), tuple(rows), note
    )


def _claims(seen: Mapping[str, _Seen]) -> tuple[Claim, ...]:
    made = []
    for kind, name in KINDS.items():
        one = seen[kind]
        for what, text in (("paths", "more paths are active"), ("diagonal", "the tangent kernel's diagonal is larger")):
            for place, when in ((one.middle(), "in the middle"), (-1, "at the end")):
                made.append(_larger_on_simple(f"{name}: {text} on the simple part {when}", one, what, place))
        made.append(_throughout(f"{name}: the simple part has more paths from the middle to the end", one))
    relu, dlgn = seen["relu"], seen["dlgn"]
    place = dlgn.middle()
    made += [
        greater(
            "DLGN-PWC: the simple part is learnt first (accuracies in the middle)",
            dlgn.part("accuracy", 0, place),
            dlgn.part("accuracy", 1, place),
        ),
        close("DLGN-PWC and ReLU are about equally good", dlgn.final, relu.final, within=0.02),
    ]
    return tuple(made)


def _larger_on_simple(text: str, one: _Seen, what: str, place: int) -> Claim:
    return larger_within_runs(text, one.part(what, 0, place), one.part(what, 1, place))


def _throughout(text: str, one: _Seen) -> Claim:
    """Holds if it does at every look; fails if it fails at one."""
    looks = range(one.middle(), len(one.epochs))
    found = Counter(_larger_on_simple("", one, "paths", place).verdict for place in looks)
    if found[Verdict.FAILS]:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNDECIDED if found[Verdict.UNDECIDED] else Verdict.HOLDS
    told = ", ".join(f"{option.value} at {found[option]}" for option in Verdict)
    return Claim(text, verdict, f"{told} of {len(looks)} looks")


def _curves(config: FashionConfig, seen: Mapping[str, _Seen]) -> tuple[FigureFacts, ...]:
    passes = config.epoch_examples / 60000
    figures = []
    for what, label, factor in (
        ("paths", "active paths", 1.0),
        ("diagonal", "mean of K(x, x)", 1.0),
        ("accuracy", "test accuracy, %", 100.0),
    ):
        curves = []
        for kind, name in KINDS.items():
            one = seen[kind]
            for part, part_name in enumerate(PARTS):
                samples = [one.part(what, part, place) for place in range(len(one.epochs))]
                curves.append(
                    Curve(
                        f"{name}, {part_name}",
                        tuple(epoch * passes for epoch in one.epochs),
                        tuple(factor * sample.mean for sample in samples),
                        tuple(factor * sample.spread for sample in samples),
                        line=True,
                    )
                )
        plot = Plot("passes over the data", label, tuple(curves), log_y=what != "accuracy")
        figures.append(
            FigureFacts(
                f"{label[0].upper()}{label[1:]} on the simple and the complex part",
                plot,
                "Bars are standard deviations over runs.",
            )
        )
    return tuple(figures)


def _kernels(seen: Mapping[str, _Seen]) -> tuple[FigureFacts, ...]:
    figures = []
    for what, name in (("overlap", "Overlap kernel"), ("tangent", "Tangent kernel")):
        panels = [
            Heatmap(when, tuple(map(tuple, seen[kind].first_run(place)[what])))
            for kind in KINDS
            for place, when in ((0, "start"), (seen[kind].middle(), "middle"), (-1, "end"))
        ]
        caption = "Trace-normalised, averaged over pairs of classes, of the first run; the simple classes come first."
        figures.append(FigureFacts(f"{name}, class by class", Panels(tuple(panels), 3, tuple(KINDS.values())), caption))
    return tuple(figures)


def _normals(dlgn: _Seen) -> FigureFacts:
    layers = dlgn.first_run(-1)["normals"]
    panels = tuple(
        Heatmap("", tuple(map(tuple, image)), diverging=True, **_symmetric(image))
        for layer in layers
        for image in layer
    )
    return FigureFacts(
        "Half-space normals of the DLGN-PWC",
        Panels(panels, len(layers[0]), tuple(f"layer {number}" for number in range(1, len(layers) + 1))),
        "Each picture is the direction in which a neuron opens: brightness at red pixels opens it, at blue ones closes "
        "it.",
    )


def _symmetric(image: Sequence[Sequence[float]]) -> dict[str, Any]:
    largest = max(abs(value) for row in image for value in row)
    return {"low": -largest, "high": largest}


EXPERIMENTS = (
    Experiment(
        "halfspace-fashion",
        "Paths, kernels and accuracy on simple and complex classes of the modified Fashion-MNIST",
        FashionConfig,
        {
            "smoke": {
                "runs": 2,
                "width": 16,
                "layers": 3,
                "train_size": 1000,
                "epochs": 2,
                "epoch_examples": 500,
                "per_class": 4,
                "pictures": 2,
            },
            "quick": {},
            "paper": {"epochs": 500},
        },
        lambda _config: [Cell("relu"), Cell("dlgn", weight=2.0)],
        _work,
        _findings,
    ),
)
