"""hierarchy, Section 4: batch norm as a projection in a network that trains, and the energy that it conserves."""

from collections.abc import Callable, Mapping
from statistics import mean

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab.data import load
from gatelab.figures import Curve, Plot
from gatelab.hierarchy import (
    GradientTrainer,
    Norm,
    Unit,
    batchnorm_projection_report,
    build_teacher,
    random_table,
    row_energy,
    string_fields,
    student_for,
)
from gatelab.lab.experiment import DataConfig, Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.looks import Look
from gatelab.lab.measure import fitted_power
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Optimiser, TrainConfig
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, Verdict, greater
from gatelab.models.init import initialise

PLACES = ("before the ReLU", "after the ReLU")


class BatchNormConfig(DataConfig):
    """A dense network with batch norm, watched while it trains; students of a random teacher for the energy."""

    runs: int = Field(default=3, ge=1)
    data: str = "digits"
    width: int = Field(default=32, ge=2)
    epochs: int = Field(default=20, ge=1)
    batch: int = Field(default=64, ge=4)
    learning_rate: float = Field(default=0.05, gt=0)
    horizon: float = Field(default=2.0, gt=0)  # how long the energy is watched: steps × step size
    step_sizes: tuple[float, ...] = (0.04, 0.02, 0.01, 0.005)


def _network(inputs: int, width: int, classes: int, place: str, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in in (inputs, width):
        pair = [nn.BatchNorm1d(width), nn.ReLU()]
        layers += [nn.Linear(fan_in, width), *(pair if place == PLACES[0] else reversed(pair))]
    net = nn.Sequential(*layers, nn.Linear(width, classes))
    initialise(net, generator)
    return net


def _projection(config: BatchNormConfig, seed: int, place: str, context: Context) -> Result:
    """Train on the data; before each epoch and at the end, what batch norm removes of the gradient on one batch."""
    data = load(config.data, config.data_root)
    examples = len(data.train_x)
    net = _network(data.train_x[0].numel(), config.width, len(data.classes), place, torch.Generator().manual_seed(seed))

    def see(model: nn.Module, epoch: int, _place: int) -> Look:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        probe = torch.randperm(examples, generator=generator)[: config.batch]
        x = data.inputs(data.train_x[probe], torch.float64)
        report = batchnorm_projection_report(model.double(), x, _loss_of(data.train_y[probe]))
        return {
            "removed": mean(layer.removed.mean().item() for layer in report),
            "mean": mean(layer.mean_share.mean().item() for layer in report),
            "residual": max(layer.residual for layer in report),
            "leak": max(layer.leak.max().item() for layer in report),
        }

    training = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch,
        optimiser=Optimiser.SGD,
        learning_rate=config.learning_rate,
        epoch_examples=examples // config.batch * config.batch,  # whole batches: one example has no variance
    )
    result = train_and_look([net], [seed], data, training, context, range(config.epochs + 1), see)
    return {"records": [seen["members"][0] for seen in result["seen"]]}


def _loss_of(labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda output: nn.functional.cross_entropy(output, labels)


def _energy(config: BatchNormConfig, seed: int, context: Context) -> Result:
    """By how much ½‖w_j‖² of hidden nodes changes within the horizon, for each step size and place of batch norm."""
    drifts: dict[str, list[float]] = {}
    for norm in Norm:
        drifts[norm.value] = []
        for step in config.step_sizes:
            generator = torch.Generator().manual_seed(seed)
            teacher = build_teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
            hidden = Unit(norm=norm, bias=False, eps=1e-12)
            student = student_for(teacher, 6, hidden=hidden, dtype=torch.float64, generator=generator)
            # Positive at first, so that no node starts closed for all inputs.
            regions = [region for region in student.fields.inner if region != student.fields.top]
            with torch.no_grad():
                for region in regions:
                    student.weights[region].uniform_(0.1, 1.0, generator=generator)
            before = torch.cat([row_energy(student.weights[region].detach()) for region in regions])
            trainer = GradientTrainer(student, teacher, step)
            for _ in range(round(config.horizon / step)):
                trainer.step()
            after = torch.cat([row_energy(student.weights[region].detach()) for region in regions])
            drifts[norm.value].append(((after - before).abs().mean() / before.mean()).item())
        context.tell(1.0, norm.value)
    return {"drifts": drifts}


def _work(config: BatchNormConfig, cell: Cell, context: Context) -> Result:
    seed, place = int(cell.parameters["seed"]), cell.parameters["place"]
    return _energy(config, seed, context) if place is None else _projection(config, seed, place, context)


def _cells(config: BatchNormConfig) -> list[Cell]:
    return [
        *(
            Cell(f"{place}, run {run}", {"seed": seed, "place": place}, weight=2.0)
            for place in PLACES
            for run, seed in enumerate(config.seeds())
        ),
        *(Cell(f"energy, run {run}", {"seed": seed, "place": None}) for run, seed in enumerate(config.seeds())),
    ]


def _findings(config: BatchNormConfig, results: Mapping[str, Result]) -> Findings:
    removed = {place: _over_epochs(config, results, place, "removed") for place in PLACES}
    drifts = {
        norm: [
            Sample(tuple(results[f"energy, run {run}"]["drifts"][norm.value][i] for run in range(config.runs)), False)
            for i in range(len(config.step_sizes))
        ]
        for norm in Norm
    }
    orders = {norm: fitted_power(config.step_sizes, [s.mean for s in drifts[norm]]) for norm in Norm}
    first = {place: samples[0].text() for place, samples in removed.items()}
    return Findings(
        "hierarchy, Section 4: batch norm as a projection",
        f"At the start batch norm removes {first[PLACES[0]]} % of the gradient's energy (before the ReLU) and "
        f"{first[PLACES[1]]} % (after); two random directions of {config.batch} are {100 * _chance(config):.1f} %. "
        f"Energies ½‖w_j‖² drift as η^{orders[Norm.AFTER_RELU]:.2f} with batch norm after the ReLU, as "
        f"η^{orders[Norm.NONE]:.2f} without.",
        (_shares(config, results, removed), _energies(config, drifts, orders)),
        _figures(config, removed, drifts),
        _claims(config, results, removed, orders),
        (
            f"ε = 1e-5 lets up to {_largest(config, results, 'leak'):.1e} of the component along f through; 1 is a "
            "node that does not vary over the batch.",
            "The paper claims the energy for batch norm after the ReLU; after the linear map the argument is the same.",
        ),
    )


def _chance(config: BatchNormConfig) -> float:
    """What the projection would remove of a random gradient."""
    return 2 / config.batch


def _records(config: BatchNormConfig, results: Mapping[str, Result], place: str) -> list[list[Result]]:
    return [results[f"{place}, run {run}"]["records"] for run in range(config.runs)]


def _over_epochs(config: BatchNormConfig, results: Mapping[str, Result], place: str, what: str) -> list[Sample]:
    runs = _records(config, results, place)
    return [Sample(tuple(records[i][what] for records in runs)) for i in range(config.epochs + 1)]


def _largest(config: BatchNormConfig, results: Mapping[str, Result], what: str) -> float:
    return max(r[what] for place in PLACES for records in _records(config, results, place) for r in records)


def _shares(config: BatchNormConfig, results: Mapping[str, Result], removed: Mapping[str, list[Sample]]) -> Table:
    rows = []
    for place, samples in removed.items():
        along = _over_epochs(config, results, place, "mean")
        rows.append((place, samples[0].text(), samples[-1].text(), along[-1].text()))
    return Table(
        "Share of ‖gradient‖² that batch norm removes, %",
        ("batch norm", "at the start", f"after {config.epochs} epochs", "of that along 1"),
        tuple(rows),
        f"{config.data}, batches of {config.batch}, mean over layers and channels; ± over {config.runs} runs.",
    )


def _energies(config: BatchNormConfig, drifts: Mapping[Norm, list[Sample]], orders: Mapping[Norm, float]) -> Table:
    return Table(
        f"Mean relative change of ½‖w_j‖² within η · steps = {config.horizon:g}",
        ("batch norm", *(f"η = {step:g}" for step in config.step_sizes), "exponent"),
        tuple((norm.value, *(s.text() for s in drifts[norm]), f"{orders[norm]:.2f}") for norm in Norm),
    )


def _figures(
    config: BatchNormConfig, removed: Mapping[str, list[Sample]], drifts: Mapping[Norm, list[Sample]]
) -> tuple[FigureFacts, ...]:
    epochs = tuple(float(epoch) for epoch in range(config.epochs + 1))
    shares = [mean_curve(f"batch norm {place}", epochs, samples) for place, samples in removed.items()]
    by_chance = Curve("two random directions", epochs, (_chance(config),) * len(epochs), line=True)
    energies = tuple(mean_curve(f"batch norm: {norm.value}", config.step_sizes, drifts[norm]) for norm in Norm)
    return (
        FigureFacts(
            "What batch norm removes",
            Plot("epoch", "share of the gradient's energy", (*shares, by_chance)),
            "Mean over layers and channels on one batch before each epoch, and its standard error over runs.",
        ),
        FigureFacts(
            "Energy against step size",
            Plot("step η", "mean relative change of ½‖w_j‖²", energies, log=True),
            "Gradient flow (η → 0) conserves the energy of nodes with batch norm behind them.",
        ),
    )


def _claims(
    config: BatchNormConfig,
    results: Mapping[str, Result],
    removed: Mapping[str, list[Sample]],
    orders: Mapping[Norm, float],
) -> tuple[Claim, ...]:
    residual, chance = _largest(config, results, "residual"), Sample((_chance(config),) * config.runs)
    kept, free = orders[Norm.AFTER_RELU], orders[Norm.NONE]
    return (
        Claim(
            "What comes back is (c₁/σ) P^⊥ g (Thm. 5, with ε in the formula)",
            Verdict.HOLDS if residual < 1e-8 else Verdict.FAILS,
            f"autograd against the formula: at most {residual:.1e}, relative",
        ),
        *(
            greater(f"Batch norm {place} removes more than two random directions would, {when}", samples[at], chance)
            for place, samples in removed.items()
            for when, at in (("at the start", 0), ("after training", -1))
        ),
        Claim(
            "With batch norm after the ReLU the energy's drift vanishes with the step (8.6.2)",
            Verdict.HOLDS if abs(kept - 1) < 0.25 else Verdict.FAILS,
            f"exponent {kept:.2f}; η² in each of 1/η steps makes 1",
        ),
        Claim(
            "Without batch norm it does not",
            Verdict.HOLDS if abs(free) < 0.25 else Verdict.FAILS,
            f"exponent {free:.2f}",
        ),
    )


BATCHNORM = Experiment(
    "hierarchy-batchnorm",
    "Batch norm as a projection, and the energy it conserves",
    BatchNormConfig,
    {
        "smoke": {"runs": 1, "width": 8, "epochs": 2, "horizon": 0.4, "step_sizes": (0.04, 0.02)},
        "quick": {},
        "paper": {"runs": 10, "width": 128, "epochs": 100, "step_sizes": (0.04, 0.02, 0.01, 0.005, 0.0025)},
    },
    _cells,
    _work,
    _findings,
)
EXPERIMENTS = (BATCHNORM,)
