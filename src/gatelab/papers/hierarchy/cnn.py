"""Where the theory's assumptions break in a convolutional network that was trained on images, or in your own."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from gatelab.data import Dataset, load
from gatelab.data.dataset import evenly
from gatelab.hierarchy import batchnorm_projection_report, diagnose, teacher_from
from gatelab.hierarchy.cells import Gap
from gatelab.hierarchy.diagnosis import Diagnosis
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.quantise import Clusters, ProductCodes, Quantiser, SignPattern
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import Findings
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import train_and_look
from gatelab.models.from_file import factory_from_file, load_weights, seeded_network
from gatelab.models.init import initialise
from gatelab.papers.common import experiment, training
from gatelab.papers.hierarchy.cnn_findings import cnn_findings

STAGES = ("start", "trained", "student at the start", "student")
"""The network before and after training, and a second network, analysed with the first one's teacher."""


class Codes(StrEnum):
    """How nodes become a discrete variable."""

    CLUSTERS = "clusters"
    PRODUCT = "product codes"
    SIGNS = "sign pattern"


class CnnConfig(DataConfig):
    """A convolutional network with batch norm, or ``model=file.py:factory``, perhaps with ``weights`` of your own.

    With weights there is one network, which is not trained, and so one run: error bars are over examples.
    """

    runs: int = Field(default=3, ge=1)
    data: str = "mnist"
    model: str | None = None
    weights: str | None = None
    depth: int = Field(default=4, ge=1, le=8)
    width: int = Field(default=12, ge=2)
    epochs: int = Field(default=3, ge=1)
    epoch_examples: int = Field(default=10_000, ge=100)
    batch_size: int = Field(default=64, ge=4)
    learning_rate: float = Field(default=2e-3, gt=0)
    examples: int = Field(default=4_000, ge=40)
    codes: Codes = Codes.CLUSTERS
    values: int = Field(default=16, ge=2)  # of z; for product codes and sign patterns rounded down to a power of two
    regions: int = Field(default=25, ge=1)

    @model_validator(mode="after")
    def _weights_need_a_model(self) -> "CnnConfig":
        if self.weights and not self.model:
            raise ValueError("weights belong to your own model; set model=file.py:factory as well")
        return self

    def quantiser(self) -> Quantiser:
        """Return how z is made."""
        bits = self.values.bit_length() - 1
        if self.codes is Codes.PRODUCT:
            return ProductCodes(2, 2 ** max(1, bits // 2))
        return SignPattern(bits) if self.codes is Codes.SIGNS else Clusters(self.values)


def convolutional(depth: int, width: int, shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """Return padded 3×3 convolutions with batch norm and ReLU; max-pooling halves the image after the first two."""
    layers: list[nn.Module] = []
    channels, height, columns = shape
    for number in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
        if number < 2 and min(height, columns) >= 4:
            layers.append(nn.MaxPool2d(2))
            height, columns = height // 2, columns // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * height * columns, classes))


def _make(config: CnnConfig, data: Dataset, seed: int) -> nn.Module:
    if config.model is not None:
        return seeded_network(factory_from_file(config.model), seed)
    shape = tuple(int(size) for size in data.train_x.shape[1:])
    net = convolutional(config.depth, config.width, (shape[0], shape[1], shape[2]), len(data.classes))
    initialise(net, torch.Generator().manual_seed(seed))
    return net


def _work(config: CnnConfig, cell: Cell, context: Context) -> Result:
    seed, data = int(cell.parameters["seed"]), load(config.data, config.data_root)
    nets = [_make(config, data, seed + member * 500) for member in range(1 if config.weights else 2)]
    starts = [{name: value.clone() for name, value in net.state_dict().items()} for net in nets]
    result = _trained(config, nets, data, seed, context)
    trained = [{name: value.clone() for name, value in net.state_dict().items()} for net in nets]
    found: dict[str, Any] = {}
    teacher: NetworkTeacher | None = None
    # The network before and after training, then the student, if there is one, before and after.
    moments = [(net.eval(), weights[place]) for place, net in enumerate(nets) for weights in (starts, trained)]
    for stage, (model, weights) in zip(STAGES, moments, strict=False):
        model.load_state_dict(weights)
        if stage in STAGES[:2]:
            generator = torch.Generator().manual_seed(seed)
            teacher = teacher_from(
                model, data, quantiser=config.quantiser(), limit=config.examples, generator=generator
            )
        assert teacher is not None
        context.tell(0.9, f"diagnosis: {stage}")
        seen = diagnose(model, teacher, regions=config.regions)
        found[stage] = record(seen, teacher)
        if stage == "trained":
            found["patches"] = [_patches(seen, teacher, place, data.classes) for place in range(len(seen.patches))]
    return {"data": data.title, **result, **found}


def _trained(config: CnnConfig, nets: list[nn.Module], data: Dataset, seed: int, context: Context) -> Result:
    """Train both networks, or load the user's weights; return accuracies and what batch norm removes."""
    rows = evenly(len(data.train_x), 256)
    x, y = data.inputs(data.train_x[rows]), data.train_y[rows]

    def removed(model: nn.Module, _epoch: int = 0, _place: int = 0) -> Look:
        if not any(True for _ in _normalisations(model)):
            return {"shares": [], "residual": 0.0, "layers": []}
        exact = deepcopy(model).double()  # float32 would measure its own rounding
        report = batchnorm_projection_report(exact, x.double(), lambda out: nn.functional.cross_entropy(out, y))
        return {
            "shares": [layer.share for layer in report],
            "layers": [layer.layer for layer in report],
            "residual": max(layer.residual for layer in report),
        }

    if config.weights is not None:
        load_weights(nets[0], Path(config.weights))
        return {"normalisation": [removed(nets[0])], "accuracy": [_accuracy(net, data) for net in nets], "loaded": True}
    looks: Callable[[nn.Module, int, int], Look] = removed
    how = training(config, epoch_examples=min(config.epoch_examples, len(data.train_x)))
    seeds = [seed, seed + 500]
    result = train_and_look(nets[:1], seeds[:1], data, how, context, range(config.epochs + 1), looks)
    folder = context.folder / "student"
    folder.mkdir(exist_ok=True)
    other = Context(folder, context.results, context.folders, context.tell)
    second = train_and_look(nets[1:], seeds[1:], data, how, other, (), looks)
    accuracy = [own["test_accuracy"][0][-1] for own in (result, second)]
    return {"normalisation": [seen["members"][0] for seen in result["seen"]], "accuracy": accuracy, "loaded": False}


def _normalisations(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if "Norm" in type(module).__name__]


def _accuracy(net: nn.Module, data: Dataset) -> float:
    net.eval()
    with torch.no_grad():
        parts = [net(data.inputs(x)).argmax(dim=1) for x in data.test_x.split(500)]
    return (torch.cat(parts) == data.test_y).double().mean().item()


def record(seen: Diagnosis, teacher: NetworkTeacher) -> Result:
    """Return a diagnosis as plain data."""
    information = {layer.layer: layer for layer in teacher.information}
    rows = []
    for layer in seen.layers:
        known = information.get(layer.layer)
        rows.append(
            {
                "layer": layer.layer,
                "nodes": layer.nodes,
                "values": layer.values,
                "bits": layer.bits,
                "variance": None if known is None else known.variance,
                "label_bits": None if known is None else known.label_bits,
                **{name: _gap(getattr(layer, name)) for name in GAPS},
                "selectivity": _matched(layer.selectivity),
                "label_selectivity": layer.label_selectivity.abs().amax(dim=1).mean().item(),
                "definition": layer.disentanglement,
                "share": layer.variance_score,
                "entangled": layer.entangled,
                "inseparable": layer.inseparable,
            }
        )
    updates = {name: _gap(gap) for name, gap in seen.updates.items()}
    return {"layers": rows, "updates": updates, "words": seen.words(), "loss": seen.loss}


GAPS = ("focus", "broadness", "activations", "gradients", "forward", "backward")


def _gap(gap: Gap | None) -> list[float] | None:
    return None if gap is None else [gap.value, gap.low, gap.high]


def _matched(matrix: Tensor) -> float:
    """Return the mean over nodes of the correlation with the event that a node is most selective to."""
    return matrix.clamp(min=0).amax(dim=1).mean().item()


def _patches(seen: Diagnosis, teacher: NetworkTeacher, place: int, classes: Sequence[str], nodes: int = 5) -> Result:
    """Return the images that excite a layer's most label-selective nodes, cut to the receptive field."""
    patches, layer = seen.patches[place], seen.layers[place]
    best, label = layer.label_selectivity.max(dim=1)
    order = best.argsort(descending=True)[:nodes].tolist()
    return {
        "layer": patches.layer,
        "nodes": [f"node {node}\n{classes[int(label[node])]}" for node in order],
        "correlations": [float(best[node]) for node in order],
        "labels": [[classes[y] for y in teacher.y[patches.examples[node]].tolist()] for node in order],
        "images": [
            [
                _cut(teacher, int(patches.examples[node, k]), patches.regions[node][k])
                for k in range(patches.examples.shape[1])
            ]
            for node in order
        ],
    }


def _cut(teacher: NetworkTeacher, example: int, region: str) -> list[list[float]]:
    """Return the part of an image inside a region's bounding box, as shades."""
    height, width = teacher.regions.grid if len(teacher.regions.grid) == 2 else (1, teacher.fields.n_positions)
    places = torch.tensor(teacher.fields.positions(region))
    rows, columns = places // width, places % width
    image = teacher.regions.pixels(teacher.x[example : example + 1])[0].mean(dim=1).view(height, width)
    return short(image[int(rows.min()) : int(rows.max()) + 1, int(columns.min()) : int(columns.max()) + 1])


def _findings(config: CnnConfig, results: Mapping[str, Result]) -> Findings:
    del config
    return cnn_findings(list(results.values()))


def _cells(config: CnnConfig) -> list[Cell]:
    seeds = config.seeds()[:1] if config.weights else config.seeds()
    return [Cell(f"run {run}", {"seed": seed}) for run, seed in enumerate(seeds)]


CNN = experiment(
    "hierarchy-cnn",
    "Where the theory's assumptions break in a trained convolutional network",
    CnnConfig,
    _cells,
    _work,
    _findings,
    smoke={
        "runs": 1,
        "data": "digits",
        "depth": 2,
        "width": 4,
        "epochs": 1,
        "epoch_examples": 300,
        "examples": 60,
        "values": 4,
        "regions": 2,
    },
    paper={"runs": 10, "epochs": 20, "epoch_examples": 60_000, "examples": 10_000, "values": 64},
)
EXPERIMENTS = (CNN,)
