"""halfspace, Figures 7 and 11–16: where the paths go when half of the classes are simple.

DLGN: deep linearly gated network; DLGN-PWC: its piecewise constant variant.
"""

from collections.abc import Mapping
from functools import cache

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from gatelab.data import Dataset, load, modified_fashion
from gatelab.data.fashion_clusters import SIMPLE
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import Findings
from gatelab.lab.hardening import hardening_look, hardening_note
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import readable
from gatelab.network import capture_gates
from gatelab.papers.common import experiment, findings, first_of_each_class, training
from gatelab.papers.halfspace.fashion_figures import figures
from gatelab.papers.halfspace.fashion_findings import FashionRuns, claims, tables
from gatelab.papers.halfspace.options import DlgnOptions
from gatelab.regions import half_spaces
from gatelab.regions.census import active_path_counts


class FashionConfig(DlgnOptions, DataConfig):
    """A ReLU network and a DLGN-PWC learn the modified Fashion-MNIST."""

    runs: int = Field(default=8, ge=1)
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)
    epoch_examples: int = Field(default=6000, ge=1)  # a tenth of the data, so that the first pass is observed closely
    epochs: int = Field(default=60, ge=1)
    per_class: int = Field(default=50, ge=1)  # probes
    train_size: int | None = Field(default=None, ge=1)
    pictures: int = Field(default=8, ge=1)  # half-space normals shown for each layer

    def data(self) -> Dataset:
        """The modified data."""
        return _data(self.data_root, self.train_size, self.seed)

    def looks_at(self) -> list[int]:
        """The epochs to observe: each of the first ones, then every fifth, and the last."""
        return [e for e in range(self.epochs + 1) if e <= 10 or e % 5 == 0 or e == self.epochs]

    def make(self, kind: str, seed: int) -> nn.Module:
        """Make a network of a kind; it flattens the images."""
        widths = [784, *[self.width] * self.layers, 10]
        if kind == "relu":
            return nn.Sequential(nn.Flatten(), *self.relu_network(widths, seed))
        return nn.Sequential(nn.Flatten(), self.dlgn(widths, seed))


@cache
def _data(root: str | None, train_size: int | None, seed: int) -> Dataset:
    """The modified data. Clustering takes seconds, so the cells of one process share it."""
    return modified_fashion(load("fashion-mnist", root).subset(train_size, seed=seed), seed=seed)


def _look(model: nn.Module, data: Dataset, config: FashionConfig, *, pictures: bool) -> Look:
    """Observe paths, tangent kernel and accuracy on both parts, and kernels averaged over classes."""
    probes, labels = first_of_each_class(data, data.test_x, data.test_y, config.per_class)
    own = capture_gates(model, probes)
    gates_are_soft, gates, tangent = own.kind != "bits", own.hard(), neural_tangent_kernel(model, probes)
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
    if gates_are_soft:
        seen["hardening"] = hardening_look(model, data)
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
    how = training(config, final_beta=config.final_beta if cell.name == "dlgn" else None)
    return train_and_look(nets, seeds, data, how, context, config.looks_at(), see)


def _findings(config: FashionConfig, results: Mapping[str, Result]) -> Findings:
    names = {"relu": "ReLU", "dlgn": config.name()}
    seen = {kind: FashionRuns(names[kind], results[kind]) for kind in names}
    dlgn, passes = seen["dlgn"], config.epochs * config.epoch_examples / 60000
    simple, other = (dlgn.part("paths", part, "end").mean for part in (0, 1))
    return findings(
        f"halfspace, Figures 7, 11–16: {results['relu']['data']}",
        f"At the end the {dlgn.name} opens {readable(simple)} paths for an image of the simple classes and "
        f"{readable(other)} for one of the complex ones, on average. It gets "
        f"{dlgn.part('accuracy', 0, 'end').text()} % of the simple and {dlgn.part('accuracy', 1, 'end').text()} % of "
        "the complex test images right.",
        *tables(seen),
        *figures(seen, config.epoch_examples / 60000),
        *claims(seen),
        "The paper does not name its clustering: ours is k-means, 5 clusters in each of the last 5 classes, dealt "
        "to labels 6 to 10 at random, 5 to each.",
        (
            f"{passes:.3g} passes over 60,000 images, Adam {config.learning_rate:g}, batches of {config.batch_size}; "
            "the paper does not say how long it trains, and averages over 3 runs."
        ),
        f"Paths, kernels and their class means are on {config.per_class} test images of each class, gates hard.",
        *config.told(),
        *hardening_note(dlgn.name, dlgn.gaps),
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
