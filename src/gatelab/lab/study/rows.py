"""The rows of a study's table, and the cells that train their networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from gatelab.lab.runs import Cell, Result
from gatelab.lab.study.config import OTHER_DATA, OTHER_SEED, SHUFFLED, StudyConfig
from gatelab.lab.verdicts import Sample

SETTING, NETWORK, RANDOM, DECOUPLED, REFIT = "setting", "network", "random", "decoupled", "refit"
OWN = "the network itself"
CONTROL = "random gates"
DEPENDENT = "random gates, the values' own"
DECOUPLED_ROW = "decoupled gates, learnt beside the values"
_SOURCES = {
    OTHER_SEED: "the network trained anew, from another seed",
    SHUFFLED: "a network trained on shuffled labels",
    OTHER_DATA: "a network trained on other data",
}
# Passes over a batch that a step takes, in forward passes of the network: a gated twin runs its feature copy, too.
PASSES = {"network": 3.0, "fixed": 4.0, "soft": 6.0, "none": 0.0}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: what a reader sees.
        cell: the cell with its results.
        place: which of the cell's groups of networks, one network for each run.
        regime: the paper's name for such gates, or what else to say in brackets.
        is_fixed: whether fresh values were trained on fixed gates with all data: such a row has a share of the gain.
    """

    name: str
    cell: str
    place: int = 0
    regime: str = ""
    is_fixed: bool = False

    @property
    def title(self) -> str:
        """The name with what stands in brackets."""
        return f"{self.name} ({self.regime})" if self.regime else self.name

    def histories(self, results: Mapping[str, Result], runs: int) -> list[list[float]]:
        """The metric after each epoch, one history for each run."""
        return results[self.cell]["test_score"][self.place * runs : (self.place + 1) * runs]

    def last(self, results: Mapping[str, Result], runs: int, *, percent: bool) -> Sample:
        """The metric after the last epoch."""
        return Sample(tuple(history[-1] for history in self.histories(results, runs)), percent)


def stage_name(config: StudyConfig, epoch: int) -> str:
    """The name of the row whose gates were fixed after some epochs; those of the end are the trained gates."""
    if epoch == config.epochs:
        return "its trained gates, fresh values"
    when = "before training" if epoch == 0 else f"after {epoch} of {config.epochs} epochs"
    return f"its gates {when}, fresh values"


def rows(config: StudyConfig) -> list[Row]:
    """All rows in the order of the table."""
    listed = [Row(OWN, NETWORK), Row(CONTROL, RANDOM, 0, "the control; FRNPF II")]
    if config.dependent:
        listed.append(Row(DEPENDENT, RANDOM, 1, "FRNPF DI", is_fixed=True))
    listed += [Row(stage_name(config, e), f"stage/{e}", 0, "FLNPF", is_fixed=True) for e in config.stage_epochs()]
    if config.decoupled:
        listed.append(Row(DECOUPLED_ROW, DECOUPLED, 0, "DNPFL"))
    for place, layer in enumerate(config.layer_names):
        listed.append(Row(f"trained gates in '{layer}' only", f"layer/{place}", 0, "the others random", is_fixed=True))
        listed.append(Row(f"random gates in '{layer}' only", f"layer/{place}", 1, "the others trained", is_fixed=True))
    for source in config.gates_from:
        listed.append(Row(_SOURCES[source], f"source/{source}"))
        listed.append(Row(f"gates of {_SOURCES[source]}", f"gates/{source}", 0, "fresh values", is_fixed=True))
    if config.refit:
        listed.append(Row("its trained gates, values in closed form", REFIT, 0, f"{config.refit:,} examples"))
        listed.append(Row("random gates, values in closed form", REFIT, 1, f"{config.refit:,} examples"))
    for amount in config.amounts:
        listed.append(Row(f"its trained gates, {amount:.3g} of the data", f"amount/{amount:g}", 0))
        listed.append(Row(f"random gates, {amount:.3g} of the data", f"amount/{amount:g}", 1))
    return listed


def is_watched(config: StudyConfig) -> bool:
    """Whether the study trains networks whose gates move; their gates and kernels are looked at meanwhile."""
    return config.decoupled or not config.studies_trained


def cells(config: StudyConfig) -> list[Cell]:
    """The cells of a study: first the facts about the network and the data, then what is trained.

    The parameters say what is trained: which kind of network, how many for each run, on what share of the data.
    """
    own = ((SETTING,), (SETTING, NETWORK))

    def trained(name: str, kind: str, networks: int = 1, share: float = 1.0, needs: tuple[str, ...] = own[0]) -> Cell:
        about = {"kind": kind, "networks": networks, "share": share}
        return Cell(name, about, needs, weight=PASSES[kind] * networks * share)

    listed = [Cell(SETTING, {"kind": "none", "networks": 0, "share": 0.0}, weight=0.5)]
    first = trained(NETWORK, "none" if config.studies_trained else "network")
    listed += [first, trained(RANDOM, "fixed", 1 + config.dependent)]
    listed += [trained(f"stage/{epoch}", "fixed", needs=own[1]) for epoch in config.stage_epochs()]
    if config.decoupled:
        listed.append(trained(DECOUPLED, "soft"))
    count = len(config.layer_names)  # there are none unless they were asked for
    listed += [trained(f"layer/{place}", "fixed", 2, needs=own[1]) for place in range(count)]
    for source in config.gates_from:
        listed.append(trained(f"source/{source}", "network"))
        listed.append(trained(f"gates/{source}", "fixed", needs=(SETTING, f"source/{source}")))
    if config.refit:
        listed.append(Cell(REFIT, {"kind": "none", "networks": 0, "share": 0.0}, own[1]))
    listed += [trained(f"amount/{amount:g}", "fixed", 2, amount, own[1]) for amount in config.amounts]
    return listed
