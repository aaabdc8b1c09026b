"""halfspace, Figures 7 and 11–16: where the paths go when half of the classes are simple."""

from collections.abc import Iterator, Mapping
from functools import cache

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import Dataset, load, modified_fashion
from gatelab.data.fashion_clusters import SIMPLE
from gatelab.figures import Curve, Heatmap, Panels
from gatelab.gates import SoftGate
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, Verdict, all_of, equivalent, greater, larger_ratio, readable
from gatelab.network import capture_gates
from gatelab.papers.common import experiment, figure, findings, first_of_each_class, training
from gatelab.regions import half_spaces
from gatelab.regions.census import active_path_counts

KINDS = {"relu": "ReLU", "dlgn": "DLGN-PWC"}
PARTS = ("simple", "complex")
# What is observed on both parts: its name, and the factor by which figures show it.
QUANTITIES = {
    "paths": ("active paths", 1.0),
    "diagonal": ("mean of K(x, x)", 1.0),
    "accuracy": ("test accuracy, %", 100.0),
}
MIDDLE = 0.72  # accuracy on the simple part at which the paper shows its kernels a second time


class FashionConfig(DataConfig):
    """A ReLU network and a DLGN-PWC learn the modified Fashion-MNIST."""

    runs: int = Field(default=3, ge=1)
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    beta: float = Field(default=10.0, gt=0)
    learning_rate: float = Field(default=2e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)
    epoch_examples: int = Field(default=6000, ge=1)  # a tenth of the data, to observe the first pass closely
    epochs: int = Field(default=60, ge=1)
    per_class: int = Field(default=50, ge=1)  # probes
    train_size: int | None = Field(default=None, ge=1)
    pictures: int = Field(default=8, ge=1)  # half-space normals shown for each layer

    def data(self) -> Dataset:
        """The modified data."""
        return _data(self.data_root, self.train_size, self.seed)

    def looks_at(self) -> list[int]:
        """The epochs to observe: every one at first, then every fifth, and the last."""
        return [e for e in range(self.epochs + 1) if e <= 10 or e % 5 == 0 or e == self.epochs]

    def make(self, kind: str, seed: int) -> nn.Module:
        """Make a network of a kind; it flattens the images."""
        widths, generator = [784, *[self.width] * self.layers, 10], torch.Generator().manual_seed(seed)
        if kind == "relu":
            return nn.Sequential(nn.Flatten(), *models.mlp(widths, bias=True, generator=generator))
        gate = SoftGate(self.beta)
        net = models.DeepLinearlyGatedNetwork(widths, gate=gate, piecewise_constant=True, generator=generator)
        return nn.Sequential(nn.Flatten(), net)


@cache
def _data(root: str | None, train_size: int | None, seed: int) -> Dataset:
    """The modified data. Clustering takes seconds, so the cells of one process share it."""
    return modified_fashion(load("fashion-mnist", root).subset(train_size, seed=seed), seed=seed)


def _look(model: nn.Module, data: Dataset, config: FashionConfig, *, pictures: bool) -> Look:
    """Observe paths, tangent kernel and accuracy on both parts, and kernels averaged over classes."""
    probes, labels = first_of_each_class(data, data.test_x, data.test_y, config.per_class)
    gates, tangent = capture_gates(model, probes).hard(), neural_tangent_kernel(model, probes)
    paths = torch.tensor(active_path_counts(gates), dtype=torch.float64)
    with torch.no_grad():
        right = (model(data.inputs(data.test_x)).argmax(dim=1) == data.test_y).double()
    seen: Look = {
        "paths": _parts(paths, labels),
        "diagonal": _parts(tangent.diagonal(), labels),
        "accuracy": _parts(right, data.test_y),
        "overlap": short(class_means(trace_normalised(overlap_kernel(gates)), labels)),
        "tangent": short(class_means(trace_normalised(tangent), labels)),
    }
    if pictures:
        chosen = list(range(min(config.pictures, config.width)))
        seen["normals"] = [short(layer.normals(chosen)[:, 0]) for layer in half_spaces(model, (1, 28, 28)).values()]
    return seen


def _parts(values: Float[Tensor, " n"], labels: Tensor) -> list[float]:
    """Return the means over the simple and over the complex classes."""
    return [float(values[part].mean()) for part in (labels < SIMPLE, labels >= SIMPLE)]


def class_means(kernel: Float[Tensor, "n n"], labels: Tensor) -> Float[Tensor, "c c"]:
    """Return the kernel's mean over the examples of each pair of classes."""
    member = torch.nn.functional.one_hot(labels).to(kernel)
    weights = member / member.sum(dim=0).clamp(min=1)
    return weights.T @ kernel @ weights


def _work(config: FashionConfig, cell: Cell, context: Context) -> Result:
    data, seeds = config.data(), config.seeds()

    def see(model: nn.Module, epoch: int, place: int) -> Look:
        last = epoch == config.epochs and place == 0 and cell.name == "dlgn"
        return _look(model, data, config, pictures=last)

    nets = [config.make(cell.name, seed) for seed in seeds]
    return train_and_look(nets, seeds, data, training(config), context, config.looks_at(), see)


class _FashionRuns:
    """The observations of one kind of network."""

    def __init__(self, result: Result):
        self._seen = result["seen"]
        self.epochs = [entry["epoch"] for entry in self._seen]
        self.final = Sample.last(result["test_accuracy"])
        learnt = [k for k in range(len(self._seen)) if self.first_run(k)["accuracy"][0] >= MIDDLE]
        self.has_learnt = bool(learnt)
        # The look when the first run has almost learnt the simple part; half-way if it never does.
        self.middle = learnt[0] if learnt else len(self._seen) // 2
        self.moments = {"start": 0, "middle": self.middle, "end": -1}

    def part(self, what: str, part: int, place: int) -> Sample:
        """Return a quantity on a part of the classes at a look, over runs."""
        return Sample(tuple(look[what][part] for look in self._seen[place]["members"]), percent=what == "accuracy")

    def first_run(self, place: int) -> Look:
        """Return the observation of the first run at a look."""
        return self._seen[place]["members"][0]

    def more_on_simple(self, what: str, place: int) -> Verdict:
        """Decide whether a quantity is larger on the simple part at a look."""
        return larger_ratio(self.part(what, 0, place), self.part(what, 1, place))


def _findings(config: FashionConfig, results: Mapping[str, Result]) -> Findings:
    seen = {kind: _FashionRuns(results[kind]) for kind in KINDS}
    dlgn, passes = seen["dlgn"], config.epochs * config.epoch_examples / 60000
    simple, other = (dlgn.part("paths", part, -1).mean for part in (0, 1))
    return findings(
        f"halfspace, Figures 7, 11–16: {results['relu']['data']}",
        f"At the end the DLGN-PWC opens {readable(simple)} paths for an image of the simple classes and "
        f"{readable(other)} for one of the complex ones, on average. It gets "
        f"{dlgn.part('accuracy', 0, -1).text()} % of the simple and {dlgn.part('accuracy', 1, -1).text()} % of the "
        "complex test images right.",
        _table(seen),
        *_curves(config, seen),
        *_kernels(seen),
        _normals(dlgn),
        *_claims(seen),
        "The paper does not name its clustering: ours is k-means, 5 clusters in each of the last 5 classes, dealt "
        "to labels 6 to 10 at random, 5 to each.",
        (
            f"{passes:.3g} passes over 60,000 images, Adam {config.learning_rate:g}, batches of {config.batch_size}; "
            "the paper does not say how long it trains."
        ),
        f"Paths, kernels and their class means are on {config.per_class} test images of each class, gates hard.",
        "All networks start from Glorot weights and zero biases; the paper's start is probably PyTorch's default.",
    )


def _table(seen: Mapping[str, _FashionRuns]) -> Table:
    rows = []
    for kind, name in KINDS.items():
        for when, place in seen[kind].moments.items():
            numbers = [seen[kind].part(what, part, place).text() for what in QUANTITIES for part in (0, 1)]
            rows.append((f"{name}, {when} (epoch {seen[kind].epochs[place]})", *numbers))
    columns = [f"{what}, {part}" for what in ("active paths", "K(x, x)", "test accuracy, %") for part in PARTS]
    note = f"The middle is the first look at which the first run gets {MIDDLE:.0%} of the simple test images right."
    for never in (name for kind, name in KINDS.items() if not seen[kind].has_learnt):
        note += f" {never} never did: its middle is the look half-way."
    title = "Simple and complex classes, mean ± standard deviation over runs"
    return Table(title, ("network", *columns), tuple(rows), note)


def _claims(seen: Mapping[str, _FashionRuns]) -> tuple[Claim, ...]:
    made = []
    for kind, name in KINDS.items():
        one = seen[kind]
        for what, text in (("paths", "more paths are active"), ("diagonal", "the tangent kernel's diagonal is larger")):
            for place, when in ((one.middle, "in the middle"), (-1, "at the end")):
                made.append(Claim(f"{name}: {text} on the simple part {when}", one.more_on_simple(what, place)))
        looks = [one.more_on_simple("paths", place) for place in range(one.middle, len(one.epochs))]
        made.append(Claim(f"{name}: the simple part has more paths from the middle to the end", all_of(looks)))
    dlgn = seen["dlgn"]
    return (
        *made,
        Claim(
            "DLGN-PWC: the simple part is learnt first (accuracies in the middle)",
            greater(*(dlgn.part("accuracy", part, dlgn.middle) for part in (0, 1)), paired=True),
        ),
        Claim(
            "DLGN-PWC and ReLU are about equally good", equivalent(dlgn.final, seen["relu"].final, 0.02, paired=True)
        ),
    )


def _curves(config: FashionConfig, seen: Mapping[str, _FashionRuns]) -> Iterator[FigureFacts]:
    for what, (label, factor) in QUANTITIES.items():
        curves = []
        for kind, name in KINDS.items():
            passes = tuple(epoch * config.epoch_examples / 60000 for epoch in seen[kind].epochs)
            for part, part_name in enumerate(PARTS):
                samples = [seen[kind].part(what, part, place) for place in range(len(passes))]
                means = tuple(factor * sample.mean for sample in samples)
                spreads = tuple(factor * sample.spread for sample in samples)
                curves.append(Curve(f"{name}, {part_name}", passes, means, spreads, line=True))
        title = f"{label[0].upper()}{label[1:]} on the simple and the complex part"
        caption, log_y = "Bars are standard deviations over runs.", what != "accuracy"
        yield figure(title, "passes over the data", label, curves, caption, log_y=log_y)


def _kernels(seen: Mapping[str, _FashionRuns]) -> Iterator[FigureFacts]:
    for what, name in (("overlap", "Overlap kernel"), ("tangent", "Tangent kernel")):
        panels = tuple(
            Heatmap(when, tuple(map(tuple, one.first_run(place)[what])))
            for one in seen.values()
            for when, place in one.moments.items()
        )
        caption = "Trace-normalised, averaged over pairs of classes, first run; the simple classes come first."
        yield FigureFacts(f"{name}, class by class", Panels(panels, 3, tuple(KINDS.values())), caption)


def _normals(dlgn: _FashionRuns) -> FigureFacts:
    layers = dlgn.first_run(-1)["normals"]
    panels = []
    for image in (image for layer in layers for image in layer):
        largest = max(abs(value) for row in image for value in row)
        panels.append(Heatmap("", tuple(map(tuple, image)), low=-largest, high=largest, diverging=True, scale=None))
    return FigureFacts(
        "Half-space normals of the DLGN-PWC",
        Panels(tuple(panels), len(layers[0]), tuple(f"layer {number}" for number in range(1, len(layers) + 1))),
        "Each picture is the direction in which a neuron opens: light at red pixels opens it, at blue ones closes it.",
    )


_SMOKE = {"runs": 2, "width": 16, "layers": 3, "train_size": 1000, "epochs": 2, "epoch_examples": 500}
EXPERIMENTS = (
    experiment(
        "halfspace-fashion",
        "Paths, kernels and accuracy on simple and complex classes of the modified Fashion-MNIST",
        FashionConfig,
        lambda _config: [Cell("relu"), Cell("dlgn", weight=2.0)],
        _work,
        _findings,
        smoke={**_SMOKE, "per_class": 4, "pictures": 2},
        paper={"epochs": 500},
    ),
)
