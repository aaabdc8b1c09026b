"""What each cell of a study does: train networks, or values on fixed gates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.convert import Regime, to_dgn
from gatelab.convert.regimes import to_mixed_dgn
from gatelab.data.user_data import UserData
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.study.closed_form import refit_score
from gatelab.lab.study.config import OTHER_DATA, SHUFFLED, StudyConfig
from gatelab.lab.study.control import control_facts
from gatelab.lab.study.materials import Materials, materials_of
from gatelab.lab.study.rows import DECOUPLED, NETWORK, RANDOM, REFIT, SETTING
from gatelab.lab.study.watching import watch
from gatelab.lab.team import SingleTeam
from gatelab.lab.training import evaluate
from gatelab.lab.training_cells import kept_weights, records_of, train_cell
from gatelab.models.states import load_state

_PROBES_OF_CONTROL = 64
_MOST_EPOCHS = 10  # times the epochs of the other rows, when there are few examples


def study_work(config: StudyConfig, cell: Cell, context: Context) -> Result:
    """Do a cell of a study whose configuration names its network and data."""
    return study_work_with(materials_of(config), config, cell, context)


def study_work_with(materials: Materials, config: StudyConfig, cell: Cell, context: Context) -> Result:
    """Do a cell of a study."""
    return _StudyCell(materials, config, context).do(cell)


def setting_facts(config: StudyConfig, materials: Materials) -> dict[str, Any]:
    """What a report says about the network, the data and the control; nothing is trained.

    Raises:
        InputError: the control's gates cannot be drawn apart from the network's.
    """
    data, source = materials.data, materials.source
    x = data.inputs(data.test_x[:_PROBES_OF_CONTROL])
    counts = torch.bincount(data.train_y) if data.classes else torch.zeros(0)
    return {
        "name": source.name,
        "parameters": sum(parameter.numel() for parameter in source.template.parameters()),
        "draws_alike": list(source.draws_alike),
        "data": data.title,
        "train": len(data.train_x),
        "test": len(data.test_x),
        "shape": list(data.train_x.shape[1:]),
        "classes": len(data.classes),
        "largest_class": float(counts.max() / counts.sum()) if data.classes else None,
        "remarks": list(data.remarks),
        "task": materials.task.value,
        "control": control_facts(source, x, config.seeds()[0]),
    }


class _StudyCell:
    """A cell at work."""

    def __init__(self, materials: Materials, config: StudyConfig, context: Context):
        self._materials, self._config, self._context = materials, config, context
        self._source, self._seeds, self._data = materials.source, config.seeds(), materials.data

    def do(self, cell: Cell) -> Result:
        """Return the cell's result."""
        kind, _, rest = cell.name.partition("/")
        does: dict[str, Callable[[], Result]] = {
            SETTING: lambda: setting_facts(self._config, self._materials),
            NETWORK: self._network,
            RANDOM: self._random,
            DECOUPLED: self._decoupled,
            REFIT: self._refit,
            "stage": lambda: self._train(self._values_under(self._learnt(int(rest)))),
            "source": lambda: self._learn_elsewhere(rest),
            "gates": lambda: self._train(self._values_under(self._weights(f"source/{rest}", self._config.epochs))),
            "layer": lambda: self._layer(self._config.layer_names[int(rest)]),
            "amount": lambda: self._amount(float(rest)),
        }
        return does[kind]()

    def _network(self) -> Result:
        how = self._config.training(self._materials.task)
        if self._source.is_trained:
            team = SingleTeam(self._source.start(0))
            found = {name: values.tolist() for name, values in evaluate(team, self._data, how.loss, how.metric).items()}
            return {"data": self._data.title, **{name: [values] * len(self._seeds) for name, values in found.items()}}
        nets = [self._source.start(seed) for seed in self._seeds]
        return self._train(nets, keep=self._config.stage_epochs(), watched=True)

    def _random(self) -> Result:
        nets = self._values_under([self._source.control(seed) for seed in self._seeds])
        if self._config.dependent:
            nets += self._values_under([self._source.before_training(self._source.fresh(s)) for s in self._seeds])
        return self._train(nets)

    def _decoupled(self) -> Result:
        nets = [
            to_dgn(self._source.fresh(seed), Regime.DNPFL, self._config.beta, self._source.control(seed), x=self._two)
            for seed in self._seeds
        ]
        return self._train(nets, watched=True)

    def _learn_elsewhere(self, where: str) -> Result:
        data = self._data
        if where == OTHER_DATA:
            assert self._materials.other is not None
            data = self._materials.other
        elif where == SHUFFLED:
            data = shuffled(self._data, self._config.seed)
        nets = [self._source.again(seed) for seed in self._seeds]
        return self._train(nets, data, keep=(self._config.epochs,))

    def _layer(self, layer: str) -> Result:
        learnt, control = self._learnt(self._config.epochs), [self._source.control(seed) for seed in self._seeds]
        pairs = [*zip(learnt, control, strict=True), *zip(control, learnt, strict=True)]
        nets = [
            to_mixed_dgn(self._source.fresh(seed), inside, outside, [layer], x=self._two)
            for seed, (inside, outside) in zip(self._seeds * 2, pairs, strict=True)
        ]
        return self._train(nets)

    def _amount(self, share: float) -> Result:
        part = self._data.subset(max(2, round(share * len(self._data.train_x))), seed=self._config.seed)
        gates = [*self._learnt(self._config.epochs), *(self._source.control(seed) for seed in self._seeds)]
        # As many steps as with all data: otherwise the curve would show how long was trained.
        steps = round(self._config.epochs * min(_MOST_EPOCHS, 1 / max(share, 1e-9)))
        return self._train(self._values_under(gates), part, epochs=steps)

    def _refit(self) -> Result:
        learnt, control = self._learnt(self._config.epochs), [self._source.control(seed) for seed in self._seeds]
        metric = self._config.training(self._materials.task).metric
        assert metric is not None
        scores = []
        for place, network in enumerate([*learnt, *control]):
            self._context.tell(place / (2 * len(learnt)), "values in closed form")
            scores.append([refit_score(network, self._data, self._config.refit, metric)])
        return {"data": self._data.title, "test_score": scores}

    def _values_under(self, gates: Sequence[nn.Module]) -> list[nn.Module]:
        """Fresh values, the same in every row, under fixed gates; one network for each of the gates."""
        seeds = self._seeds * (len(gates) // len(self._seeds))
        return [
            to_dgn(self._source.fresh(seed), Regime.FLNPF, gates_from=network, x=self._two)
            for seed, network in zip(seeds, gates, strict=True)
        ]

    def _learnt(self, epoch: int) -> list[nn.Module]:
        """The networks whose gates are fixed: those of an epoch, or the trained one, once for each run."""
        if self._source.is_trained:
            return [self._source.start(seed) for seed in self._seeds]
        networks = self._weights(NETWORK, epoch)
        return networks if epoch else [self._source.before_training(network) for network in networks]

    def _weights(self, cell: str, epoch: int) -> list[nn.Module]:
        folder: Path = self._context.folders[cell]
        networks = []
        for seed, state in zip(self._seeds, kept_weights(folder, epoch, len(self._seeds)), strict=True):
            network = self._source.start(seed)
            load_state(network, state)
            networks.append(network.eval())
        return networks

    @property
    def _two(self) -> Tensor:
        return self._materials.two

    def _train(
        self,
        nets: Sequence[nn.Module],
        data: UserData | None = None,
        *,
        keep: tuple[int, ...] = (),
        watched: bool = False,
        epochs: int | None = None,
    ) -> Result:
        config, materials, context = self._config, self._materials, self._context
        changed = {} if epochs is None else {"epochs": epochs}
        seeds = self._seeds * (len(nets) // len(self._seeds))
        looks = watch(config, materials, context.folder) if watched else None
        how = config.training(materials.task, **changed)
        result = train_cell(
            nets, seeds, data or self._data, how, context, looks=looks, keep=keep, augment=materials.augment
        )
        if looks is not None:
            result["records"] = records_of(looks)
        return result


def shuffled(data: UserData, seed: int) -> UserData:
    """The same examples, the training labels in random order."""
    order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(seed))
    return replace(data, train_y=data.train_y[order])
