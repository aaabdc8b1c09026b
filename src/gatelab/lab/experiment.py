"""An experiment: its configuration, its cells, its findings, and profiles from seconds to the published size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import isfinite
from numbers import Integral, Real
from typing import Any, LiteralString, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_serializer
from pydantic_core import PydanticCustomError

from gatelab.errors import InputError
from gatelab.lab.findings import Findings
from gatelab.lab.runs import Cell, Result
from gatelab.lab.runs.cells import Work
from gatelab.lab.verdicts import decided_together

_KINDS: dict[str, tuple[type, str]] = {
    "bool": (bool, "neither true nor false; give one of them"),
    "int": (int, "not a whole number; give one"),
    "float": (float, "not a finite number; give one"),
}


class Config(BaseModel):
    """The settings of an experiment; unknown keys raise an error, and so do values of another type.

    ``true`` is no number, 2.0 no whole number, and 1 is not ``true``: whoever writes them meant something else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    smoke: bool = Field(default=False, repr=False)  # set by the profile: such a run decides no claim

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_given(cls, value: Any, read: Callable[[Any], Any]) -> Any:
        taken = read(value)
        for given, used in _numbers(value, taken):
            kind = next(name for name, (type_, _) in _KINDS.items() if isinstance(used, type_))
            if not _fits(given, kind):
                known = {"given": given, "fault": _KINDS[kind][1]}
                raise PydanticCustomError(cast("LiteralString", f"{kind}_type"), "{given} is {fault}", known)
        return taken

    @model_serializer(mode="wrap")
    def _without_default(self, plain: Callable[["Config"], dict[str, Any]]) -> dict[str, Any]:
        """Leave ``smoke`` out unless it is set, so that runs started before it existed can continue."""
        return {key: value for key, value in plain(self).items() if key != "smoke" or value}


def _numbers(given: Any, taken: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each number or truth value that was taken, and what was given for it."""
    if isinstance(taken, bool | int | float):
        yield given, taken
    elif isinstance(taken, Mapping) and isinstance(given, Mapping):
        for key, value in taken.items():
            yield from _numbers(given.get(key), value)
    elif isinstance(taken, list | tuple) and isinstance(given, list | tuple):
        for one, other in zip(given, taken, strict=True):
            yield from _numbers(one, other)


def _fits(given: Any, kind: str) -> bool:
    if kind == "bool" or isinstance(given, bool):
        return kind == "bool" and isinstance(given, bool)
    return isinstance(given, Integral) if kind == "int" else isinstance(given, Real) and isfinite(given)


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
        problems = error.errors()
        said = "; ".join(_problem(kind, problem) for problem in problems)
        unknown = any(problem["type"] == "extra_forbidden" for problem in problems)
        listed = f". Its settings are {', '.join(kind.model_fields)}" if unknown else ""
        raise InputError(f"{name}: {said.replace('Value error, ', '')}{listed}") from error


def _problem(kind: type[Config], problem: Any) -> str:
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"there is no setting '{key}'{_similar(key, kind)}"
    expected, context = problem["type"].partition("_")[0], problem.get("ctx", {})
    if isinstance(problem["input"], bool | str):  # it was read as a number, and that one is out of bounds
        numbers = (value for name, value in context.items() if name != "given" and isinstance(value, int | float))
        bounds = [type(bound).__name__ for bound in numbers]
        expected = bounds[0] if bounds else expected
    if expected not in _KINDS:
        return f"{key}: {problem['msg']}"
    given, field = context.get("given", problem["input"]), kind.model_fields.get(str(problem["loc"][0]))
    example = field.default if field is not None else None
    suggested = f", such as {example!r}" if isinstance(example, _KINDS[expected][0]) and expected != "bool" else ""
    return f"{key}: {given!r:.60} is {_KINDS[expected][1]}{suggested}"


def _similar(key: str, kind: type[Config]) -> str:
    found = get_close_matches(key, kind.model_fields, 1)
    return f" (did you mean '{found[0]}'?)" if found else ""
