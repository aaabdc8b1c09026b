"""Does the path kernel explain what learnt gates gain? Kernel machines with H of random, early and late gates."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from gatelab.data import Dataset, load
from gatelab.kernels import infinite_width_ntk, neural_path_kernel
from gatelab.lab.experiment import DataConfig, cell_per_run
from gatelab.lab.findings import FigureFacts, Findings, Table, percent_curve, percent_level
from gatelab.lab.kernel_machines import best_accuracy, ridge_answers, support_vector_answers
from gatelab.lab.looks import Look
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, greater, share_of_gap
from gatelab.papers.common import experiment, figure, findings
from gatelab.papers.npk.table2 import Table2Config

NETWORK, RANDOM, INFINITE = "the network itself", "path kernel, random gates", "infinite width, K^(d)"


class RegressionConfig(DataConfig):
    """Kernel machines with the path kernel of random, early and late gates."""

    data: str = "mnist"
    train_size: int = Field(default=2000, ge=20)
    test_size: int = Field(default=2000, ge=10)
    network_size: int | None = Field(default=None, ge=20)  # examples that the network learns from; None: all
    epochs: tuple[int, ...] = (0, 1, 10)  # after which gates are frozen; 0 means random gates
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=5, ge=2)
    ridges: tuple[float, ...] = (1e-6, 1e-4, 1e-2)  # relative to the mean diagonal; chosen on a fifth of the examples
    penalties: tuple[float, ...] = (1.0, 10.0, 100.0)  # C of the support vector machine, chosen likewise
    runs: int = Field(default=3, ge=1)


def _accuracies(
    kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], data: Dataset, config: RegressionConfig
) -> dict[str, float]:
    """Test accuracy of both machines."""
    return {
        "ridge": best_accuracy(kernel, cross, data, ridge_answers, config.ridges)[1],
        "svm": best_accuracy(kernel, cross, data, support_vector_answers, config.penalties)[1],
    }


def _kernel_name(epoch: int) -> str:
    return RANDOM if epoch == 0 else f"path kernel, gates after {epoch} epochs"


def _regression_work(config: RegressionConfig, cell: Cell, context: Context) -> Result:
    whole, seed = load(config.data, config.data_root), int(cell.parameters["seed"])
    data = whole.subset(config.train_size, config.test_size, seed=seed)
    images, others = (data.inputs(part, torch.float64) for part in (data.train_x, data.test_x))

    def look(model: nn.Module, _epoch: int, _place: int) -> Look:
        """Return the accuracies of the path kernel of the network's gates."""
        model = model.double()
        kernel, cross = neural_path_kernel(model, images), neural_path_kernel(model, others, images)
        return _accuracies(kernel, cross, data, config)

    make = Table2Config(width=config.width, depth=config.depth).make
    training = TrainConfig(epochs=max(1, *config.epochs))
    learns = whole.subset(config.network_size, None, seed=seed + 1)
    result = train_and_look([network(make, seed)], [seed], learns, training, context, config.epochs, look)
    x, y = images.flatten(1), others.flatten(1)
    infinite = infinite_width_ntk(torch.cat([x, y]) / x.shape[1] ** 0.5, depth=config.depth)
    n, own = len(x), result["test_accuracy"][0][-1]
    return {
        "linear kernel": _accuracies(x @ x.T, y @ x.T, data, config),
        INFINITE: _accuracies(infinite[:n, :n], infinite[n:, :n], data, config),
        **{_kernel_name(entry["epoch"]): entry["members"][0] for entry in result["seen"]},
        NETWORK: {"ridge": own, "svm": own},
    }


def _regression_findings(config: RegressionConfig, results: Mapping[str, Result]) -> Findings:
    names = list(next(iter(results.values())))
    ridge, svm = (
        {name: Sample(tuple(result[name][machine] for result in results.values())) for name in names}
        for machine in ("ridge", "svm")
    )
    last = _kernel_name(max(config.epochs))
    late, own = ridge[last], ridge[NETWORK]
    part = "all of it" if config.network_size is None else f"{config.network_size} examples"
    table = Table(
        "Test accuracy in percent, mean ± standard deviation over runs",
        ("kernel", "ridge regression", "support vector machine"),
        tuple((name, ridge[name].text(), "" if name == NETWORK else svm[name].text()) for name in names),
        f"Kernels learn from {config.train_size} examples; gates and network from {part}.",
    )
    return findings(
        f"Kernel machines with the path kernel, {config.train_size} examples of {config.data}",
        f"With late gates the path kernel gets {late.text()} % right, with random gates {ridge[RANDOM].text()} %; "
        f"the network has {own.text()} %. {_explained(late, ridge[RANDOM], own)}",
        table,
        _figure(config, ridge, svm),
        Claim("Late gates make a better kernel than random ones", greater(late, ridge[RANDOM], paired=True)),
        Claim("So they do for support vector machines", greater(svm[last], svm[RANDOM], paired=True)),
        Claim("Late gates make a better kernel than infinite width", greater(late, ridge[INFINITE], paired=True)),
        "Gates have seen more examples than the kernels learn from: late gates carry what the network learnt.",
    )


def _explained(late: Sample, random: Sample, own: Sample) -> str:
    share = share_of_gap(late, random, own)
    if share is None:
        return "These runs do not show that the network beats the kernel of random gates; there is no gap to explain."
    part, (low, high) = share
    return f"The kernel of the gates accounts for {part:.0%} (95 % interval {low:.0%} to {high:.0%}) of the gap."


def _figure(config: RegressionConfig, ridge: Mapping[str, Sample], svm: Mapping[str, Sample]) -> FigureFacts:
    epochs = sorted(config.epochs)
    places, ends = tuple(map(float, range(len(epochs)))), (0.0, len(epochs) - 1.0)
    curves = [
        percent_curve(f"path kernel, {machine}", places, [samples[_kernel_name(epoch)] for epoch in epochs])
        for machine, samples in (("ridge regression", ridge), ("support vector machine", svm))
    ]
    curves += [percent_level(name, ends, ridge[name]) for name in (NETWORK, INFINITE)]
    ticks = tuple("random gates" if epoch == 0 else f"after {epoch} epochs" for epoch in epochs)
    title, axes = "Learnt gates make a better kernel", ("gates of the path kernel", "test accuracy in percent")
    caption = "A rise from left to right is what the gates have learnt; the kernel contains no other weights."
    return figure(title, *axes, curves, caption, ticks=ticks)


_SMOKE = {"train_size": 200, "test_size": 100, "network_size": 500, "epochs": (0, 1), "width": 32, "runs": 2}
EXPERIMENTS = (
    experiment(
        "npk-kernel-regression",
        "Kernel machines with the path kernel of random, early and late gates",
        RegressionConfig,
        cell_per_run,
        _regression_work,
        _regression_findings,
        smoke=_SMOKE,
        paper={"train_size": 10000, "test_size": 10000, "runs": 5, "epochs": (0, 1, 10, 50)},
    ),
)
