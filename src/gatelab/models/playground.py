"""Networks that were built and trained in the playground (``gatelab playground``)."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates.functions import GateFunction, HardGate, SoftGate, StraightThroughGate
from gatelab.models.dgn import DeepGatedNetwork, DeepLinearlyGatedNetwork
from gatelab.models.feedforward import dln, mlp
from gatelab.models.init import check_widths
from gatelab.observe import plain_surroundings

FORMAT = "gatelab-playground"
VERSION = 1
KINDS = ("relu", "dgn", "dlgn", "dlgn-pwc", "dln")
_STEEPEST = 1e300
_EXPORT = "export it again from the playground (Export, JSON)"


def from_playground(source: str | PathLike[str] | Mapping[str, Any], network: int = 0) -> nn.Module:
    """Rebuild a network from the playground, in float64, with exactly the same weights.

    Args:
        source: the result of the playground's "Export, JSON": its text, the path of the file as a ``Path``, or the
            parsed object.
        network: which of two networks side by side: 0 for A, 1 for B.

    Returns:
        :func:`mlp`, :func:`dln`, :class:`DeepGatedNetwork` or :class:`DeepLinearlyGatedNetwork`. Its outputs agree with
        the browser's up to rounding.

    Raises:
        InputError: this is not a playground export, or its parts do not fit together.

    Example:
        >>> layer = {"weight": [[2.0, 0.0]], "bias": None}
        >>> told = {"kind": "relu", "widths": [2, 1, 1], "feature": [], "value": [layer, {**layer, "weight": [[3.0]]}]}
        >>> net = from_playground({"format": "gatelab-playground", "version": 1, "networks": [told]})
        >>> net(torch.tensor([[1.0, 5.0], [-1.0, 5.0]], dtype=torch.float64)).tolist()
        [[6.0], [0.0]]
    """
    told = _network(_read(source), network)
    widths: Any = told.get("widths")
    check_widths("the widths of the playground's network", widths, 3, "[2, 8, 1]")
    value, feature = (_layers(told, part) for part in ("value", "feature"))
    _refuse_other_sizes(widths, value)
    with plain_surroundings(torch.empty(0)):  # layers draw weights, which are then overwritten
        model = _module(told, widths, _has_biases(feature, "feature"), _has_biases(value, "value"))
    if isinstance(model, nn.Sequential):
        _fill([], feature, "feature")
        _fill([layer for layer in model if isinstance(layer, nn.Linear)], value, "value")
    else:
        _fill(model.feature, feature, "feature")
        _fill(model.value, value, "value")
    return model


def _read(source: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, str | PathLike):
        place = "this" if isinstance(source, str) else str(source)
        try:
            source = json.loads(source if isinstance(source, str) else Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{place} cannot be read ({error.strerror}); give the file of an export") from None
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{place} is not JSON ({error}); give the text of an export, or Path('network.json') for a file"
            ) from None
    if not isinstance(source, Mapping) or source.get("format") != FORMAT:
        raise InputError(f"this is not a playground export: its 'format' is not {FORMAT!r}; {_EXPORT}")
    if source.get("version") != VERSION:
        raise InputError(f"the export has version {source.get('version')!r}, gatelab reads {VERSION}; {_EXPORT}")
    return source


def _network(export: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    networks = export.get("networks")
    if not isinstance(networks, Sequence) or isinstance(networks, str) or not networks:
        raise InputError(f"the export holds no networks; {_EXPORT}")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(networks):
        raise InputError(f"network {number!r} does not exist; the export holds {len(networks)}, numbered from 0")
    told = networks[number]
    if not isinstance(told, Mapping) or told.get("kind") not in KINDS:
        kind = told.get("kind") if isinstance(told, Mapping) else told
        raise InputError(f"networks[{number}]: kind {kind!r:.100} is unknown; the known kinds are {', '.join(KINDS)}")
    return told


def _layers(told: Mapping[str, Any], part: str) -> list[dict[str, Tensor | None]]:
    """The weights and biases of a part, as tensors."""
    layers = told.get(part) or []
    if not isinstance(layers, list | tuple) or not all(isinstance(one, Mapping) and "weight" in one for one in layers):
        raise InputError(f"{part!r} is no list of layers, or a layer has no 'weight'; {_EXPORT}")
    return [
        {name: _numbers(layer.get(name), f"{part}[{number}].{name}") for name in ("weight", "bias")}
        for number, layer in enumerate(layers)
    ]


def _numbers(given: Any, place: str) -> Tensor | None:
    """An array of finite numbers; None for a bias that is not there."""
    if given is None and place.endswith("bias"):
        return None
    try:
        array = np.asarray(given)
    except (ValueError, RecursionError):  # ragged, or nested deeper than NumPy goes
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{place} is not an array of numbers; {_EXPORT}")
    if not np.isfinite(array).all():
        raise InputError(f"{place} holds a number that is not finite; {_EXPORT}")
    return torch.from_numpy(array.astype(np.float64))


def _refuse_other_sizes(widths: Sequence[int], value: list[dict[str, Tensor | None]]) -> None:
    """Refuse widths that are not those of the weights, before anything of that size is made."""
    if any(isinstance(width, bool) for width in widths):
        raise InputError(f"the widths {widths!r:.200} are not all numbers; {_EXPORT}")
    if len(value) != len(widths) - 1:
        raise InputError(f"'value' has {len(value)} layers; a network of these widths has {len(widths) - 1}")
    for number, ((before, after), layer) in enumerate(zip(pairwise(widths), value, strict=True)):
        _in_shape(layer["weight"], (after, before), f"value[{number}].weight")


def _in_shape(numbers: Tensor | None, wanted: tuple[int, ...], place: str) -> Tensor:
    if numbers is None or numbers.shape != wanted:
        shape = None if numbers is None else tuple(numbers.shape)
        raise InputError(f"{place} has shape {shape}; the widths require {wanted}")
    return numbers


def _has_biases(layers: list[dict[str, Tensor | None]], part: str) -> bool:
    biases = {layer.get("bias") is not None for layer in layers}
    if len(biases) > 1:
        raise InputError(f"some layers of {part!r} have biases and some have none; {_EXPORT}")
    return True in biases


def _module(
    told: Mapping[str, Any], widths: Sequence[int], feature_bias: bool, value_bias: bool
) -> nn.Sequential | DeepGatedNetwork | DeepLinearlyGatedNetwork:
    kind, dtype = told["kind"], torch.float64
    if kind in {"relu", "dln"}:
        return (mlp if kind == "relu" else dln)(widths, bias=value_bias, dtype=dtype)
    gate = _gate(told)
    if kind == "dgn":
        if feature_bias != value_bias:
            raise InputError(f"one of 'feature' and 'value' has biases, the other has none; {_EXPORT}")
        return DeepGatedNetwork(widths, gate=gate, bias=value_bias, dtype=dtype)
    return DeepLinearlyGatedNetwork(
        widths,
        gate=gate,
        piecewise_constant=kind == "dlgn-pwc",
        gate_bias=feature_bias,
        value_bias=value_bias,
        dtype=dtype,
    )


def _gate(told: Mapping[str, Any]) -> GateFunction:
    name, beta = told.get("gate"), told.get("beta", 8.0)
    if name == "hard":
        return HardGate()
    number = isinstance(beta, int | float) and not isinstance(beta, bool)
    if name not in ("soft", "straight") or not number or not 0 < beta <= _STEEPEST:
        raise InputError(
            f"gate is {name!r:.100} with β = {beta!r:.100}; it is 'hard', 'soft' or 'straight', with β > 0 and finite"
        )
    return SoftGate(float(beta)) if name == "soft" else StraightThroughGate(float(beta))


@torch.no_grad()
def _fill(linears: Sequence[nn.Module] | nn.ModuleList, layers: list[dict[str, Tensor | None]], part: str) -> None:
    if len(linears) != len(layers):
        raise InputError(f"{part!r} has {len(layers)} layers; a network of these widths has {len(linears)}")
    for number, (linear, layer) in enumerate(zip(linears, layers, strict=True)):
        for name, parameter in linear.named_parameters():
            parameter.copy_(_in_shape(layer[name], tuple(parameter.shape), f"{part}[{number}].{name}"))
