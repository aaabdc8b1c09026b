"""The settings of a study."""

from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator

from gatelab.dynamics import Kernels
from gatelab.errors import InputError
from gatelab.lab.experiment import DataConfig
from gatelab.lab.objectives import Loss, Metric
from gatelab.lab.optimisers import Optimiser, Schedule
from gatelab.lab.training import TrainConfig


class Task(StrEnum):
    """What the network does: auto looks at the labels and at the number of outputs."""

    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


OTHER_SEED, SHUFFLED, OTHER_DATA = "seed", "shuffled", "data"


class StudyConfig(DataConfig):
    """The network, the data, how to train, and which rows the table has.

    Args:
        model: ``file.py:factory``; an MLP of 64 and 64 units if left out.
        weights: a file with the network's weights: it is then studied as it is.
        trained: whether the network is studied as it is; true if there are weights.
        data: a name, a file, a folder or ``file.py:function``; see :func:`gatelab.data.places.open_data`.
        test_data: the same for the test part, if ``data`` has none.
        label: the column of a table, or the .npy file, that holds the labels.
        image_size: images of a folder are brought to this height and width.
        standardise: whether each feature is shifted and scaled to mean 0 and standard deviation 1 on the training part.
        task: classification or regression.
        runs: how often everything is repeated, with other seeds.
        epochs: passes over the data, of every network.
        batch_size: examples per step.
        optimiser: the rule by which weights move.
        optimiser_options: further arguments of torch's optimiser, such as ``weight_decay``.
        learning_rate: step size.
        momentum: of SGD and RMSprop.
        schedule: how the step size changes.
        warm_up: the share of training in which the step size rises.
        loss: what to minimise; cross-entropy for classes, squared for real targets if left out.
        metric: what counts; accuracy for classes, r2 for real targets if left out.
        augment: ``file.py:function`` that changes a batch of training examples.
        beta: steepness of the decoupled network's soft gates.
        stages: shares of training after which gates are fixed.
        dependent: whether there is a row for random gates that are the values' own.
        decoupled: whether there is a row for decoupled gates.
        kernels: how kernels are looked at while networks train: exact, sketch or off; if left out, exact, or sketched
            where exact kernels would take more than a tenth of the study's time.
        probes: test examples on which gates and kernels are looked at.
        train_size: use only so many training examples.
        test_size: use only so many test examples.
        layers: rows for each gate layer: its trained gates alone, and all but its trained gates.
        layer_names: the network's gate layers, filled in before a run starts.
        gates_from: rows for gates learnt elsewhere: "seed", "shuffled" labels, other "data".
        other_data: what "data" in ``gates_from`` means.
        refit: a row for values in closed form, fitted to so many training examples.
        amounts: shares of the training data for a learning curve under fixed gates.
        fingerprint: digests of what came from Python or from files; a changed one is refused when a run goes on.
    """

    model: str | None = None
    weights: str | None = None
    trained: bool = False
    data: str = "digits"
    test_data: str | None = None
    label: str | None = None
    image_size: int | None = Field(default=None, ge=1)
    standardise: bool = False
    task: Task = Task.AUTO
    runs: int = Field(default=16, ge=1)
    epochs: int = Field(default=15, ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimiser: Optimiser = Optimiser.ADAM
    optimiser_options: dict[str, bool | float] = Field(default_factory=dict)
    learning_rate: float = Field(default=1e-3, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    schedule: Schedule = Schedule.CONSTANT
    warm_up: float = Field(default=0.0, ge=0, lt=1)
    loss: Loss | None = None
    metric: Metric | None = None
    augment: str | None = None
    beta: float = Field(default=8.0, gt=0)
    stages: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0)
    dependent: bool = True
    decoupled: bool = True
    kernels: Kernels | None = None
    probes: int = Field(default=100, ge=2)
    train_size: int | None = Field(default=None, ge=2)
    test_size: int | None = Field(default=None, ge=2)
    layers: bool = False
    layer_names: tuple[str, ...] = ()
    gates_from: tuple[str, ...] = ()
    other_data: str | None = None
    refit: int = Field(default=0, ge=0)
    amounts: tuple[float, ...] = ()
    fingerprint: dict[str, str] = Field(default_factory=dict)

    @field_validator("gates_from", "stages", "amounts", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Take one value for a list of one."""
        return (value,) if isinstance(value, str | float | int) else value

    @field_validator("stages", "amounts")
    @classmethod
    def _shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= share <= 1 for share in value):
            raise ValueError("shares lie between 0 and 1")
        return value

    @field_validator("gates_from")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if set(value) - {OTHER_SEED, SHUFFLED, OTHER_DATA}:
            raise ValueError(f"gates may come from '{OTHER_SEED}', '{SHUFFLED}' or '{OTHER_DATA}'")
        return tuple(dict.fromkeys(value))

    @property
    def studies_trained(self) -> bool:
        """Whether the network is studied as it is."""
        return self.trained or self.weights is not None

    def training(self, task: Task, **changed: Any) -> TrainConfig:
        """How all networks of the study are trained."""
        is_regression = task is Task.REGRESSION
        shared = {name: getattr(self, name) for name in TrainConfig.model_fields if name in type(self).model_fields}
        return TrainConfig(
            **{
                **shared,
                "loss": self.loss or (Loss.SQUARED if is_regression else Loss.CROSS_ENTROPY),
                "metric": self.metric or (Metric.R2 if is_regression else Metric.ACCURACY),
                **changed,
            }
        )

    def stage_epochs(self) -> tuple[int, ...]:
        """The epochs after which gates are fixed; a trained network has its last stage only."""
        if self.studies_trained:
            return (self.epochs,)
        return tuple(sorted({round(stage * self.epochs) for stage in self.stages} | {self.epochs}))

    def refuse_contradictions(self) -> None:
        """Refuse settings that exclude each other.

        Raises:
            InputError: names them.
        """
        if self.weights is not None and self.model is None:
            raise InputError("there are weights but no network; give file.py:factory, whose weights they are")
        if (OTHER_DATA in self.gates_from) != (self.other_data is not None):
            raise InputError(
                "gates from other data need both gates_from='data' (--gates-from data) and other_data (--other-data), "
                "a data set with examples of the same shape"
            )
