"""What gatelab should answer for a program, from definitions: dense covariances, no rule for any architecture.

With the gates fixed, a signal is a sum over *fields*: the input, and the output of each weight layer, whose weights are
independent of all others. Σ_f A_f z_f is kept as the matrices A_f, one column for each unit of the field, written as
examples, so that every fixed step is simply run on them. A weight layer turns the covariance of what it reads into that
of a new field.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tests.attacks.fuzz.programs import Fixed, Gated, Normed, Program, Selected, Shifted, Step, Weighted


@dataclass
class Run:
    """One forward pass: the values, and per step the factor of a gate or the winners of a pooling."""

    values: dict[str, Tensor]
    decided: dict[int, Tensor] = field(default_factory=dict)
    opened: dict[int, Tensor] = field(default_factory=dict)


def _parameter(model: nn.Module, name: str | None) -> Tensor | None:
    return None if name is None else model.get_parameter(name).detach()


def forward(program: Program, model: nn.Module, x: Tensor) -> Run:
    """Run the steps on x, without the module's own forward."""
    run = Run({"x": x})
    for number, step in enumerate(program.steps):
        signals = [run.values[name] for name in step.reads]
        match step.action:
            case Weighted() as layer:
                result = layer.run(signals[0], _parameter(model, layer.weight), _parameter(model, layer.bias))
            case Normed(name):
                result = model.get_submodule(name)(signals[0]).detach()
            case Shifted(by):
                result = signals[0] + by
            case Gated() as gate:
                run.decided[number], run.opened[number] = gate.factor(signals[0]), gate.opened(signals[0])
                result = gate.value(signals[0])
            case Selected() as pool:
                result, run.decided[number] = pool.run(signals[0])
            case Fixed(call):
                result = call(*signals)
        _write(run.values, step, result)
    return run


def _write(values: dict, step: Step, result) -> None:
    results = result if isinstance(result, tuple) else (result,)
    values.update(zip(step.writes, results, strict=True))


def live_steps(program: Program) -> set[int]:
    """The numbers of the steps on which ``y`` depends."""
    wanted, live = {"y"}, set()
    for number, step in reversed(list(enumerate(program.steps))):
        if wanted & set(step.writes):
            live.add(number)
            wanted = (wanted - set(step.writes)) | set(step.reads)
    return live


@dataclass
class _Fields:
    """Covariances (n, n, u, u) of the independent fields met so far."""

    covariances: list[Tensor]

    def covariance(self, signal: dict[int, Tensor]) -> Tensor:
        """Σ_f A_f C_f A_f', (n, n, u, u), of a signal {field: (n, units of the field, …)}."""
        total = 0.0
        for number, columns in signal.items():
            a = columns.flatten(2)
            total = total + torch.einsum("nfu,nmfg,mgv->nmuv", a, self.covariances[number], a)
        return total


def path_kernel(program: Program, model: nn.Module, x: Tensor, *, normalise: bool, biases: bool = False) -> Tensor:
    """E_v[ŷŷ'] with the gates of ``forward`` held fixed, exactly, as a mean over outputs."""
    run = forward(program, model, x)
    n = x.shape[0]
    fields = _Fields([torch.ones(n, n, 1, 1, dtype=x.dtype)])
    signals = {"x": {0: x[:, None]}}
    for number, step in enumerate(program.steps):
        sources = [signals[name] for name in step.reads]
        match step.action:
            case Weighted() as layer:
                result = _weigh(layer, model, fields, sources[0], normalise=normalise, biases=biases)
            case Normed() | Shifted():
                result = sources[0]
            case Gated():
                factor = run.decided[number][:, None]
                result = {f: columns * factor for f, columns in sources[0].items()}
            case Selected():
                result = {f: _select(columns, run.decided[number]) for f, columns in sources[0].items()}
            case Fixed(call):
                result = _apply(call, sources, [run.values[name].shape[1:] for name in step.reads])
        _write(signals, step, result)
    y = fields.covariance(signals["y"])
    return torch.einsum("nmuu->nm", y) / y.shape[-1]


def _select(columns: Tensor, winners: Tensor) -> Tensor:
    places = winners[:, None].expand(-1, columns.shape[1], *winners.shape[1:])
    return columns.flatten(3).gather(3, places.flatten(3)).view(places.shape)


def _apply(call, sources, shapes):
    """Run a linear step on the columns of each field; a source without the field contributes zeros."""
    results = {}
    for number in sorted(set().union(*sources)):
        n, units = next(source[number].shape[:2] for source in sources if number in source)
        dtype = next(source[number].dtype for source in sources if number in source)
        blank = [torch.zeros(n, units, *shape, dtype=dtype) for shape in shapes]
        columns = [source.get(number, zero).flatten(0, 1) for source, zero in zip(sources, blank, strict=True)]
        made = call(*columns)
        for place, part in enumerate(made if isinstance(made, tuple) else (made,)):
            results.setdefault(place, {})[number] = part.unflatten(0, (n, units))
    return results[0] if len(results) == 1 else tuple(results.values())


def _weigh(layer: Weighted, model, fields: _Fields, signal, *, normalise: bool, biases: bool):
    """A new field, whose covariance is that of the patches, summed over inputs and taps, channel by channel."""
    weight = model.get_parameter(layer.weight)
    shape = next(iter(signal.values())).shape[2:]
    taps = weight[0].numel()
    units = shape.numel()
    # Every weight of a group in an output channel of its own cuts the patches out.
    one_hot = (
        torch.eye(taps, dtype=weight.dtype).view(taps, *weight.shape[1:]).repeat(layer.groups, *[1] * (weight.ndim - 1))
    )
    patches = layer.run(torch.eye(units, dtype=weight.dtype).view(units, *shape), one_hot, None)
    size = patches.shape[2:]
    patches = patches.reshape(units, layer.groups, taps, -1)
    before = fields.covariance(signal)
    of_groups = torch.einsum("ugtp,nmuv,vgtq->nmgpq", patches, before, patches)
    if normalise and set(signal) != {0}:
        of_groups = of_groups / taps
    if biases and layer.bias is not None:
        of_groups = of_groups + 1.0
    n, channels, positions = before.shape[0], weight.shape[0], patches.shape[3]
    per_channel = of_groups.repeat_interleave(channels // layer.groups, dim=2)
    new = torch.zeros(n, n, channels, positions, channels, positions, dtype=weight.dtype)
    for c in range(channels):
        new[:, :, c, :, c, :] = per_channel[:, :, c]
    fields.covariances.append(new.view(n, n, channels * positions, channels * positions))
    identity = torch.eye(channels * positions, dtype=weight.dtype).view(channels * positions, channels, *size)
    return {len(fields.covariances) - 1: identity.expand(n, *identity.shape)}


def open_gates(program: Program, model: nn.Module, x: Tensor) -> list[Tensor | None]:
    """The gates on the way to the output, in order; None at a max-pooling, whose gates have axes of their own."""
    run, live = forward(program, model, x), live_steps(program)
    return [run.opened.get(number) for number in sorted(live & run.decided.keys())]


def count_of_paths(program: Program, model: nn.Module, x: Tensor) -> int:
    """The number of paths with a contribution for one example (1, …): one for each connection that is not zero."""
    run = forward(program, model, x)
    counts = {"x": (x != 0).double()}
    for number, step in enumerate(program.steps):
        sources = [counts[name] for name in step.reads]
        match step.action:
            case Weighted() as layer:
                weight, bias = _parameter(model, layer.weight), _parameter(model, layer.bias)
                starts = None if bias is None else (bias != 0).double()
                result = layer.run(sources[0], (weight != 0).double(), starts)
            case Normed(name):
                module, signal = model.get_submodule(name), run.values[step.reads[0]]
                shift = module(torch.zeros_like(signal)).detach()
                result = sources[0] + (shift != 0).double()
            case Shifted():
                result = sources[0] + 1.0
            case Gated() as gate:
                constant = gate.value(run.values[step.reads[0]]) - run.decided[number] * run.values[step.reads[0]]
                result = sources[0] * (run.decided[number] != 0) + (constant.abs() > 1e-12)
            case Selected():
                result = _select(sources[0][:, None], run.decided[number])[:, 0]
            case Fixed(call):
                result = _connections(call, sources)
        _write(counts, step, result)
    return int(counts["y"].sum())


def _connections(call, sources):
    """Count what each unit reads, by the entries of the step's matrices that are not zero."""
    sizes = [source[0].numel() for source in sources]
    total = sum(sizes)
    blocks = torch.eye(total, dtype=torch.float64).split(sizes, dim=1)
    made = call(*(block.view(total, *source.shape[1:]) for block, source in zip(blocks, sources, strict=True)))
    column = torch.cat([source.flatten() for source in sources])
    parts = [(part != 0).double().flatten(1).T @ column for part in (made if isinstance(made, tuple) else (made,))]
    shaped = [
        part.view(1, *whole.shape[1:])
        for part, whole in zip(parts, made if isinstance(made, tuple) else (made,), strict=True)
    ]
    return tuple(shaped) if isinstance(made, tuple) else shaped[0]


def tangent_kernel(model: nn.Module, x: Tensor) -> Tensor:
    """The trace of the tangent kernel, from plain autograd: one backward pass per example and output."""
    parameters = list(model.parameters())
    frozen = [p for p in parameters if not p.requires_grad]
    for p in frozen:
        p.requires_grad_(True)
    try:
        jacobian = torch.stack([_gradients(model(example[None].clone()).flatten(), parameters) for example in x])
    finally:
        for p in frozen:
            p.requires_grad_(False)
    return torch.einsum("nkp,mkp->nm", jacobian, jacobian)


def _gradients(y: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    rows = [torch.autograd.grad(entry, parameters, retain_graph=True, materialize_grads=True) for entry in y]
    return torch.stack([torch.cat([gradient.flatten() for gradient in row]) for row in rows])
