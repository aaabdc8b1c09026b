"""npk, Theorem 5.1 as a convergence plot, and whether the path kernel explains what learnt gates gain."""

import copy
from collections.abc import Mapping
from math import sqrt

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gatelab.data import Dataset, load
from gatelab.experiments.findings import Claim, Decision, FigureFacts, Findings, Sample, Table, greater
from gatelab.experiments.npk_table2 import Table2Config
from gatelab.experiments.regimes import network
from gatelab.experiments.registry import Config, Experiment
from gatelab.experiments.team import SingleTeam, Team
from gatelab.experiments.train import TrainConfig, train
from gatelab.figures import Curve, Plot
from gatelab.kernels import infinite_width_ntk, neural_path_kernel, neural_tangent_kernel
from gatelab.models import DeepGatedNetwork
from gatelab.models.init import bernoulli_
from gatelab.runs import Cell, Context, Result


class ConvergenceConfig(Config):
    """Tangent kernels of fixed random gates and ±σ values over widths."""

    data: str = "digits"
    examples: int = Field(default=50, ge=2)
    depth: int = Field(default=4, ge=2)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    draws: int = Field(default=20, ge=2)
    seed: int = 0
    data_root: str | None = None


def _convergence_work(config: ConvergenceConfig, cell: Cell, context: Context) -> Result:
    data, width = load(config.data, config.data_root), cell.parameters["width"]
    x = data.inputs(data.train_x[: config.examples], torch.float64).flatten(1)
    generator, errors = torch.Generator().manual_seed(1000 * config.seed + width), []
    widths, sigma = [x.shape[1], *[width] * (config.depth - 1), 1], sqrt(2 / width)
    for draw in range(config.draws):
        model = DeepGatedNetwork(widths, dtype=torch.float64, generator=generator)
        for weight in model.value.parameters():
            bernoulli_(weight, sigma, generator)
        # d σ^{2(d−1)} H: the normalised H times what 1/fan_in leaves of σ² = 2/w in the d − 1 layers behind the first.
        limit = (
            config.depth
            * sigma ** (2 * (config.depth - 1))
            * width ** (config.depth - 1)
            * neural_path_kernel(model, x)
        )
        kernel = neural_tangent_kernel(model, x, wrt=model.value)
        errors.append(float((kernel - limit).norm() / limit.norm()))
        context.tell((draw + 1) / config.draws, f"draw {draw + 1} of {config.draws}")
    return {"errors": errors}


def _convergence_findings(config: ConvergenceConfig, results: Mapping[str, Result]) -> Findings:
    samples = {width: Sample(tuple(results[f"w = {width}"]["errors"])) for width in config.widths}
    logs = torch.tensor([[torch.log(torch.tensor(float(w))), 1.0] for w in samples], dtype=torch.float64)
    means = torch.tensor([sample.mean for sample in samples.values()], dtype=torch.float64).log().unsqueeze(1)
    order = float(torch.linalg.lstsq(logs, means).solution[0])
    sizes = tuple(map(float, samples))
    first = next(iter(samples.values())).mean
    curves = (
        Curve(f"measured, exponent {order:.2f}", sizes, tuple(s.mean for s in samples.values())),
        Curve("w^(−1/2)", sizes, tuple(first * sqrt(sizes[0] / size) for size in sizes), line=True),
    )
    holds = Decision.HOLDS if abs(order + 0.5) < 0.1 else Decision.FAILS
    rows = tuple((str(w), f"{s.mean:.3g} ± {s.spread:.2g}") for w, s in samples.items())
    return Findings(
        "npk, Theorem 5.1: the tangent kernel tends to d σ^{2(d−1)} H",
        f"With fixed random gates and ±σ values the relative distance falls as w^{order:.2f}.",
        (Table("‖K − d σ^{2(d−1)} H‖ / ‖d σ^{2(d−1)} H‖", ("width", "mean ± standard deviation"), rows),),
        (FigureFacts("Convergence with width", Plot("width w", "relative distance", curves, log=True), ""),),
        (Claim("The distance vanishes with width as w^(−1/2)", holds, f"fitted exponent {order:.3f}"),),
        ("The theorem bounds the variance by O(1/w), which makes the distance O(w^(−1/2)).",),
    )


CONVERGENCE = Experiment(
    "npk-theorem51",
    "The tangent kernel tends to the path kernel with width",
    ConvergenceConfig,
    {"smoke": {"widths": (16, 64), "draws": 4, "examples": 10}, "quick": {}, "paper": {"draws": 100}},
    lambda config: [Cell(f"w = {width}", {"width": width}, weight=float(width)) for width in config.widths],
    _convergence_work,
    _convergence_findings,
)


class RegressionConfig(Config):
    """Kernel ridge regression with the path kernel of random, early and late gates."""

    data: str = "mnist"
    train_size: int = Field(default=2000, ge=20)
    test_size: int = Field(default=2000, ge=10)
    network_size: int | None = Field(default=None, ge=20)  # examples the network itself learns from; None: all
    epochs: tuple[int, ...] = (0, 1, 10)  # after which gates are taken; 0 is random
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=5, ge=2)
    ridges: tuple[float, ...] = (1e-6, 1e-4, 1e-2)  # relative to the mean diagonal; chosen on a fifth of the examples
    runs: int = Field(default=3, ge=1)
    seed: int = 0
    data_root: str | None = None


def _accuracy(
    kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], data: Dataset, ridges: tuple[float, ...]
) -> float:
    """Test accuracy of one-against-all ridge regression, its ridge chosen on a fifth of the training examples."""
    labels = torch.nn.functional.one_hot(data.train_y, len(data.classes)).to(kernel) - 1 / len(data.classes)
    scale, cut = kernel.diagonal().mean(), len(kernel) * 4 // 5

    def solve(rows: int, ridge: float) -> Tensor:
        system = kernel[:rows, :rows] + ridge * scale * torch.eye(rows, dtype=kernel.dtype)
        return torch.linalg.solve(system, labels[:rows])

    def right(ridge: float) -> float:
        said = (kernel[cut:, :cut] @ solve(cut, ridge)).argmax(dim=1)
        return float((said == data.train_y[cut:]).double().mean())

    best = max(ridges, key=right)
    return float(((cross @ solve(len(kernel), best)).argmax(dim=1) == data.test_y).double().mean())


def _regression_work(config: RegressionConfig, cell: Cell, context: Context) -> Result:
    whole, seed = load(config.data, config.data_root), int(cell.parameters["seed"])
    data = whole.subset(config.train_size, config.test_size, seed=seed)
    x, y = (data.inputs(part, torch.float64).flatten(1) for part in (data.train_x, data.test_x))
    inputs = x.shape[1]
    base = Table2Config(width=config.width, depth=config.depth)
    found: dict[str, float] = {}
    gram = x @ x.T
    found["linear kernel"] = _accuracy(gram, y @ x.T, data, config.ridges)
    infinite = infinite_width_ntk(torch.cat([x, y]) / inputs**0.5, depth=config.depth)
    n = len(x)
    found["infinite width, K^(d)"] = _accuracy(infinite[:n, :n], infinite[n:, :n], data, config.ridges)

    def observe(epoch: int, team: Team) -> None:
        if epoch not in config.epochs:
            return
        model = copy.deepcopy(team.member(0)).double()
        images, others = (data.inputs(part, torch.float64) for part in (data.train_x, data.test_x))
        kernel, cross = neural_path_kernel(model, images), neural_path_kernel(model, others, images)
        name = "path kernel, random gates" if epoch == 0 else f"path kernel, gates after {epoch} epochs"
        found[name] = _accuracy(kernel, cross, data, config.ridges)
        context.tell(min(0.99, (epoch + 1) / (max(config.epochs) + 1)), f"{name}: {found[name]:.2%}")

    learns = whole.subset(config.network_size, None, seed=seed + 1)
    team = SingleTeam(network(base.make, seed))
    progress = train(team, learns, TrainConfig(epochs=max(1, *config.epochs)), [seed], observe=observe)
    found["the network itself"] = progress.history["test_accuracy"][-1][0]
    return found


def _regression_findings(config: RegressionConfig, results: Mapping[str, Result]) -> Findings:
    names = list(next(iter(results.values())))
    samples = {name: Sample(tuple(result[name] for result in results.values())) for name in names}
    late = f"path kernel, gates after {max(config.epochs)} epochs"
    random, own = samples["path kernel, random gates"], samples["the network itself"]
    share = (samples[late].mean - random.mean) / (own.mean - random.mean) if own.mean != random.mean else float("nan")
    part = "all of it" if config.network_size is None else f"{config.network_size} examples"
    return Findings(
        f"Kernel regression with the path kernel, {config.train_size} examples of {config.data}",
        f"With late gates the path kernel gets {samples[late].text()} % right, with random gates {random.text()} %; "
        f"the network has {own.text()} %. The kernel of the gates accounts for {share:.0%} of the gap.",
        (
            Table(
                "Test accuracy in percent, mean ± standard deviation over runs",
                ("kernel", "accuracy"),
                tuple((name, sample.text()) for name, sample in samples.items()),
                f"Kernels learn from {config.train_size} examples; gates and network from {part}.",
            ),
        ),
        (),
        (
            greater("Late gates make a better kernel than random ones", samples[late], random),
            greater(
                "Late gates make a better kernel than infinite width", samples[late], samples["infinite width, K^(d)"]
            ),
        ),
        ("Gates have seen more examples than the kernels learn from: late gates carry what the network learnt.",),
    )


REGRESSION = Experiment(
    "npk-kernel-regression",
    "Kernel ridge regression with the path kernel of random, early and late gates",
    RegressionConfig,
    {
        "smoke": {"train_size": 200, "test_size": 100, "network_size": 500, "epochs": (0, 1), "width": 32, "runs": 2},
        "quick": {},
        "paper": {"train_size": 10000, "test_size": 10000, "runs": 5, "epochs": (0, 1, 10, 50)},
    },
    lambda config: [Cell(f"run {run}", {"seed": 1000 * config.seed + run}) for run in range(config.runs)],
    _regression_work,
    _regression_findings,
)
EXPERIMENTS = (CONVERGENCE, REGRESSION)
