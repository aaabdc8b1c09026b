"""Networks that were built and trained in the playground (``gatelab playground``)."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gatelab.errors import InputError
from gatelab.gates.functions import GateFunction, HardGate, SoftGate, StraightThroughGate
from gatelab.models.dgn import DeepGatedNetwork, DeepLinearlyGatedNetwork
from gatelab.models.feedforward import dln, mlp
from gatelab.models.init import check_widths

FORMAT = "gatelab-playground"
VERSION = 1
KINDS = ("relu", "dgn", "dlgn", "dlgn-pwc", "dln")
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
    widths, value = told["widths"], _layers(told, "value")
    check_widths("the widths of the playground's network", widths, 3, "[2, 8, 1]")
    feature = _layers(told, "feature")
    with torch.random.fork_rng(devices=[]):  # layers draw weights, which are then overwritten
        model = _module(told, widths, _has_biases(feature, "feature"), _has_biases(value, "value"))
    if isinstance(model, nn.Sequential):
        _fill([layer for layer in model if isinstance(layer, nn.Linear)], value, "value")
    else:
        _fill(model.feature, feature, "feature")
        _fill(model.value, value, "value")
    return model


def _read(source: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, str | PathLike):
        text = source if isinstance(source, str) else Path(source).read_text(encoding="utf-8")
        try:
            source = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"this is not JSON ({error}); give the text of an export, or Path('network.json') for a file"
            ) from None
    if not isinstance(source, Mapping) or source.get("format") != FORMAT:
        raise InputError(f"this is not a playground export: its 'format' is not {FORMAT!r}; {_EXPORT}")
    if source.get("version") != VERSION:
        raise InputError(f"the export has version {source.get('version')!r}, gatelab reads {VERSION}; {_EXPORT}")
    return source


def _network(export: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    networks = export.get("networks")
    if not isinstance(networks, Sequence) or not networks:
        raise InputError(f"the export holds no networks; {_EXPORT}")
    if not isinstance(number, int) or not 0 <= number < len(networks):
        raise InputError(f"network {number!r} does not exist; the export holds {len(networks)}, numbered from 0")
    told = networks[number]
    if not isinstance(told, Mapping) or told.get("kind") not in KINDS:
        kind = told.get("kind") if isinstance(told, Mapping) else told
        raise InputError(f"networks[{number}]: kind {kind!r} is unknown; the known kinds are {', '.join(KINDS)}")
    return told


def _layers(told: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    layers = told.get(part) or []
    if not all(isinstance(layer, Mapping) and "weight" in layer for layer in layers):
        raise InputError(f"a layer of {part!r} has no 'weight'; {_EXPORT}")
    return list(layers)


def _has_biases(layers: list[Mapping[str, Any]], part: str) -> bool:
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
    if name not in {"soft", "straight"} or not isinstance(beta, int | float) or not beta > 0:
        raise InputError(f"gate is {name!r} with β = {beta!r}; it is 'hard', 'soft' or 'straight', with β > 0")
    return SoftGate(float(beta)) if name == "soft" else StraightThroughGate(float(beta))


@torch.no_grad()
def _fill(linears: Sequence[nn.Module] | nn.ModuleList, layers: list[Mapping[str, Any]], part: str) -> None:
    if len(linears) != len(layers):
        raise InputError(f"{part!r} has {len(layers)} layers; a network of these widths has {len(linears)}")
    for number, (linear, layer) in enumerate(zip(linears, layers, strict=True)):
        for name, parameter in linear.named_parameters():
            try:
                numbers = torch.tensor(layer[name], dtype=torch.float64)
            except (TypeError, ValueError):
                raise InputError(f"{part}[{number}].{name} is not an array of numbers; {_EXPORT}") from None
            if numbers.shape != parameter.shape or not bool(torch.isfinite(numbers).all()):
                raise InputError(
                    f"{part}[{number}].{name} has shape {tuple(numbers.shape)}, or a number that is not finite; the "
                    f"widths require {tuple(parameter.shape)}"
                )
            parameter.copy_(numbers)
