"""What an experiment is: configuration, cells, findings, and profiles from seconds to as published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatelab.errors import InputError
from gatelab.lab.findings import Findings
from gatelab.lab.runs import Cell, Result
from gatelab.lab.runs.cells import Work


class Config(BaseModel):
    """What decides an experiment; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SeededConfig(Config):
    """What decides an experiment that is repeated over seeds."""

    runs: int = Field(default=5, ge=1)
    seed: int = 0

    def seeds(self) -> list[int]:
        """One for each run; those of two configurations differ."""
        return [1000 * self.seed + run for run in range(self.runs)]


class DataConfig(SeededConfig):
    """What decides an experiment on data that lie somewhere."""

    data_root: str | None = None  # where to look first


def cell_per_run(config: SeededConfig) -> list[Cell]:
    """The runs as pieces that do not need each other."""
    return [Cell(f"run {run}", {"seed": seed}) for run, seed in enumerate(config.seeds())]


@dataclass(frozen=True)
class Experiment:
    """A table or figure as something to run.

    Attributes:
        id: "npk-table2", say.
        title: what it is.
        config: the type of its configuration.
        profiles: the configuration's values that make a profile, for each profile; they may depend on what is set.
        cells: the pieces of a run.
        work: does one piece; a function of its module.
        findings: from the results of all pieces.
    """

    id: str
    title: str
    config: type[Config]
    profiles: Mapping[str, Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]]
    cells: Callable[[Any], list[Cell]]
    work: Work
    findings: Callable[[Any, Mapping[str, Result]], Findings]

    def configure(self, profile: str, settings: Mapping[str, Any]) -> Config:
        """A profile with some values changed.

        Raises:
            InputError: an unknown profile or key, or a value that does not fit.
        """
        if profile not in self.profiles:
            raise InputError(f"{self.id} has no profile '{profile}'; it has {', '.join(self.profiles)}")
        values = self.profiles[profile]
        return self.read({**(values(settings) if callable(values) else values), **settings})

    def read(self, values: Mapping[str, Any]) -> Config:
        """A configuration from plain data."""
        try:
            return self.config(**values)
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise InputError(f"{self.id}: {told}. Its keys are {', '.join(self.config.model_fields)}") from error
