"""npk, Figure 3, right: the tangent kernels of values and of gates."""

from collections.abc import Mapping

from pydantic import Field

from gatelab.convert import Regime
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import DataConfig, Experiment, cell_per_run
from gatelab.lab.findings import FigureFacts, Findings
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_and_track
from gatelab.lab.twins import twin
from gatelab.lab.verdicts import Claim, Verdict
from gatelab.papers.npk.figure3_dynamics import first_of_each_class
from gatelab.papers.npk.table2 import Table2Config


class KernelsConfig(DataConfig):
    """A decoupled network on MNIST and its two tangent kernels."""

    epochs: int = Field(default=60, ge=1)
    every: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    per_class: int = Field(default=10, ge=1)
    train_size: int | None = Field(default=None, ge=1)


def _kernels_work(config: KernelsConfig, cell: Cell, context: Context) -> Result:
    base = Table2Config(width=config.width, train_size=config.train_size, seed=config.seed, data_root=config.data_root)
    data, seed = base.data(), int(cell.parameters["seed"])
    probes, labels = first_of_each_class(data, config.per_class)
    nets, training = [twin(base.make, Regime.DNPFL, seed, base.beta)], TrainConfig(epochs=config.epochs)
    return train_and_track(nets, [seed], data, training, context, (probes, labels.to(probes)), every=config.every)


def _kernels_findings(config: KernelsConfig, results: Mapping[str, Result]) -> Findings:
    del config
    figures, ratios = [], []
    for place, measure in enumerate(("trace", "Frobenius norm")):
        curves = []
        for part, label in (("value", "K^V"), ("feature", "K^F")):
            for number, result in enumerate(results.values()):
                epochs = tuple(float(record["epoch"]) for record in result["records"])
                values = tuple(record["tangent"][part][place] for record in result["records"])
                curves.append(Curve(f"{label}, run {number}", epochs, values, line=True))
        figures.append(
            FigureFacts(
                f"{measure} of K^V and K^F", Plot("epoch", measure, tuple(curves)), "Of one decoupled network each."
            )
        )
    for result in results.values():
        ratios += [record["tangent"]["feature"][0] / record["tangent"]["value"][0] for record in result["records"][1:]]
    low, high = min(ratios), max(ratios)
    return Findings(
        "npk, Figure 3, right: tangent kernels of values and of gates",
        f"Trace K^F over trace K^V lies between {low:.2g} and {high:.2g} over training.",
        (),
        tuple(figures),
        (
            Claim(
                "K^V and K^F are of the same scale",
                Verdict.HOLDS if low > 0.1 and high < 10 else Verdict.FAILS,
                f"ratio of traces between {low:.2g} and {high:.2g}; same scale means a factor of ten",
            ),
        ),
    )


KERNELS = Experiment(
    "npk-figure3-kernels",
    "Tangent kernels of values and of gates in a decoupled network",
    KernelsConfig,
    {
        "smoke": {"runs": 1, "epochs": 2, "every": 1, "train_size": 500, "per_class": 2, "width": 32},
        "quick": {"runs": 2, "epochs": 20},
        "paper": {},
    },
    cell_per_run,
    _kernels_work,
    _kernels_findings,
)
EXPERIMENTS = (KERNELS,)
