"""An experiment: its configuration, its cells, its findings, and profiles from seconds to the published size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer

from gatelab.errors import InputError
from gatelab.lab.findings import Findings
from gatelab.lab.runs import Cell, Result
from gatelab.lab.runs.cells import Work
from gatelab.lab.verdicts import decided_together


class Config(BaseModel):
    """The settings of an experiment; unknown keys raise an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    smoke: bool = Field(default=False, repr=False)  # set by the profile: such a run decides no claim

    @model_serializer(mode="wrap")
    def _without_default(self, plain: Callable[["Config"], dict[str, Any]]) -> dict[str, Any]:
        """Leave ``smoke`` out unless it is set, so that runs started before it existed can continue."""
        return {key: value for key, value in plain(self).items() if key != "smoke" or value}


class SeededConfig(Config):
    """The settings of an experiment that is repeated over seeds."""

    runs: int = Field(default=5, ge=1)
    seed: int = 0

    def seeds(self) -> list[int]:
        """One seed per run; two values of ``seed`` share none."""
        return [1000 * self.seed + run for run in range(self.runs)]


C = TypeVar("C", bound=Config)


class DataConfig(SeededConfig):
    """The settings of an experiment on a data set."""

    data_root: str | None = None  # the folder to search first


def cell_per_run(config: SeededConfig) -> list[Cell]:
    """One independent cell per run."""
    return [Cell(f"run {run}", {"seed": seed}) for run, seed in enumerate(config.seeds())]


@dataclass(frozen=True)
class Experiment:
    """A table or figure that can be run.

    Args:
        id: its name, such as "npk-table2".
        title: one line for lists.
        config: the type of its configuration.
        profiles: for each profile the values it sets, or a function from the user's settings to those values.
        cells: the pieces of a run.
        work: does one piece; must be a function of its module, so that other processes can import it.
        findings: turns the results of all pieces into findings.

    Example:
        >>> from gatelab.papers import find_experiment
        >>> find_experiment("npk-figure5").configure("smoke", {"mu": 0.25})
        SpectrumConfig(n=20, mu=0.25, depths=(2, 4, 6, 8, 12, 16, 20))
    """

    id: str
    title: str
    config: type[Config]
    profiles: Mapping[str, Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]]
    cells: Callable[[Any], list[Cell]]
    work: Work
    findings: Callable[[Any, Mapping[str, Result]], Findings]

    def configure(self, profile: str, settings: Mapping[str, Any]) -> Config:
        """Return a profile's configuration with some values changed.

        Args:
            profile: its name, such as "smoke".
            settings: the values that replace the profile's own.

        Raises:
            InputError: an unknown profile or key, or a value that does not fit.
        """
        if profile not in self.profiles:
            raise InputError(f"{self.id} has no profile '{profile}'; it has {', '.join(self.profiles)}")
        values = self.profiles[profile]
        chosen = {**(values(settings) if callable(values) else values), **settings}
        return self.read({**chosen, "smoke": True} if profile == "smoke" else chosen)

    def conclude(self, config: Config, results: Mapping[str, Result]) -> Findings:
        """Return the findings with their claims decided together; a smoke run decides none."""
        found = self.findings(config, results)
        return replace(found, claims=decided_together(found.claims, smoke=config.smoke))

    def read(self, values: Mapping[str, Any]) -> Config:
        """Read a configuration from plain data."""
        return read_config(self.config, self.id, values)


def read_config(kind: type[C], name: str, values: Mapping[str, Any]) -> C:
    """Make a configuration; unknown keys and wrong values raise an InputError that names them."""
    try:
        return kind(**values)
    except ValidationError as error:
        problems = [(".".join(map(str, e["loc"])), e["type"] == "extra_forbidden", e["msg"]) for e in error.errors()]
        said = "; ".join(
            f"there is no setting '{key}'{_similar(key, kind)}" if unknown else f"{key}: {message}"
            for key, unknown, message in problems
        )
        listed = f". Its settings are {', '.join(kind.model_fields)}" if any(problem[1] for problem in problems) else ""
        raise InputError(f"{name}: {said.replace('Value error, ', '')}{listed}") from error


def _similar(key: str, kind: type[Config]) -> str:
    found = get_close_matches(key, kind.model_fields, 1)
    return f" (did you mean '{found[0]}'?)" if found else ""
