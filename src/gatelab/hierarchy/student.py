"""The student: a locally connected ReLU network with the teacher's receptive fields (hierarchy, Section 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.batchnorm import standardise
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.teacher import Teacher
from gatelab.models.init import glorot_


class Norm(StrEnum):
    """Where batch norm stands in a unit."""

    NONE = "none"
    AFTER_LINEAR = "after the linear map"
    AFTER_RELU = "after the ReLU"


@dataclass(frozen=True)
class Unit:
    """What the nodes of a region do with their weighted sum.

    Attributes:
        relu: whether a gate follows.
        norm: where batch norm stands.
        bias: whether nodes have biases.
        eps: batch norm's ε; 0 is the theory's, and refuses nodes that do not vary.
    """

    relu: bool = True
    norm: Norm = Norm.NONE
    bias: bool = True
    eps: float = 0.0


@dataclass(frozen=True)
class State:
    """One region's nodes at every input.

    Attributes:
        raw: f^raw, the weighted sums.
        gated: what the gate sees: raw, or raw normalised.
        active: behind the gate.
        output: f, what the parents read: active, or active normalised.
    """

    raw: Float[Tensor, "n w"]
    gated: Float[Tensor, "n w"]
    active: Float[Tensor, "n w"]
    output: Float[Tensor, "n w"]

    @property
    def gate(self) -> Float[Tensor, "n w"]:
        """F' ∈ {0, 1}: whether the gate is open."""
        return (self.gated > 0).to(self.gated.dtype)


class LocalNetwork(nn.Module):
    """n_α nodes for each region, which read the nodes of the children; no weights are shared.

    Leaves stand for what is read there: f = one node for each value by default (hierarchy, Section 3: F_β = I), or any
    code of the values. Batch norm always uses the statistics of the batch at hand, with the inputs' probabilities as
    weights where they are given.

    Attributes:
        fields: the hierarchy.
        weights: region → (nodes of all children, n_α).
        biases, scales, shifts: region → (n_α,): b, and batch norm's c₁ and c₀.

    Args:
        fields: the hierarchy.
        nodes: n_α for every inner region but the top, or by name.
        outputs: nodes of the top region, one for each class.
        values: how many values a position takes.
        encodings: leaf → (values, nodes) table of what its nodes say; the identity where missing.
        hidden: what inner regions do.
        top: what the top region does.
        dtype: of the parameters.
        generator: for the Glorot-uniform weights; biases start at 0.
    """

    def __init__(
        self,
        fields: ReceptiveFields,
        nodes: int | Mapping[str, int],
        outputs: int,
        *,
        values: int = 2,
        encodings: Mapping[str, Float[Tensor, "_ _"]] | None = None,
        hidden: Unit | None = None,
        top: Unit | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.fields, self.values = fields, values
        hidden, top = hidden or Unit(), top or Unit(relu=False)
        self.units = {region: top if region == fields.top else hidden for region in fields.inner}
        self._nodes = _widths(fields, nodes, outputs)
        self.encodings = nn.ParameterDict()
        for leaf in fields.leaves:
            size = values ** len(fields.positions(leaf))
            code = (encodings or {}).get(leaf, torch.eye(size, dtype=dtype))
            if len(code) != size:
                raise InputError(f"leaf '{leaf}' takes {size} values, its encoding has {len(code)} rows")
            self.encodings[leaf] = nn.Parameter(code.to(dtype or code.dtype), requires_grad=False)
            self._nodes[leaf] = code.shape[1]
        self.weights, self.biases, self.scales, self.shifts = (nn.ParameterDict() for _ in range(4))
        for region in fields.inner:
            width, unit = self._nodes[region], self.units[region]
            fan_in = sum(self._nodes[child] for child in fields.children(region))
            self.weights[region] = nn.Parameter(glorot_(torch.empty(fan_in, width, dtype=dtype), generator))
            if unit.bias:
                self.biases[region] = nn.Parameter(torch.zeros(width, dtype=dtype))
            if unit.norm is not Norm.NONE:
                self.scales[region] = nn.Parameter(torch.ones(width, dtype=dtype))
                self.shifts[region] = nn.Parameter(torch.zeros(width, dtype=dtype))

    def n_nodes(self, region: str) -> int:
        """n_α."""
        return self._nodes[region]

    def incoming(self, region: str) -> dict[str, Float[Tensor, "_ w"]]:
        """Child β → W_βα, the weights from its nodes: views of the region's weight."""
        children = self.fields.children(region)
        parts = self.weights[region].split([self._nodes[child] for child in children])
        return dict(zip(children, parts, strict=True))

    def states(self, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None) -> dict[str, State]:
        """Every inner region's nodes at each input; ``weights`` are the inputs' probabilities, for batch norm."""
        if x.ndim != 2 or x.shape[1] != self.fields.n_positions or len(x) == 0:
            raise InputError(f"x has shape {tuple(x.shape)}; this network reads (n, {self.fields.n_positions})")
        outputs = {leaf: self._read(leaf, x) for leaf in self.fields.leaves}
        states = {}
        for region in self.fields.inner:
            raw = torch.cat([outputs[child] for child in self.fields.children(region)], dim=1) @ self.weights[region]
            if region in self.biases:
                raw = raw + self.biases[region]
            unit = self.units[region]
            gated = self._normalised(region, raw, weights) if unit.norm is Norm.AFTER_LINEAR else raw
            # A sum with 0 keeps tensors apart that would otherwise be one, so that each has a gradient of its own.
            active = torch.relu(gated) if unit.relu else gated + 0
            output = self._normalised(region, active, weights) if unit.norm is Norm.AFTER_RELU else active
            states[region] = State(raw, gated, active, output)
            outputs[region] = output
        return states

    def forward(self, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, "n k"]:
        """The top region's nodes at each input."""
        return self.states(x, weights)[self.fields.top].output

    def _read(self, leaf: str, x: Int[Tensor, "n d"]) -> Float[Tensor, "n w"]:
        code = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        for position in self.fields.positions(leaf):
            code = code * self.values + x[:, position]
        return self.encodings[leaf][code]

    def _normalised(self, region: str, f: Tensor, weights: Tensor | None) -> Tensor:
        tilde = standardise(f, weights, self.units[region].eps, f"region '{region}'").values
        return self.scales[region] * tilde + self.shifts[region]


def student_for(
    teacher: Teacher,
    nodes: int | Mapping[str, int],
    *,
    encodings: Mapping[str, Float[Tensor, "_ _"]] | None = None,
    hidden: Unit | None = None,
    top: Unit | None = None,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> LocalNetwork:
    """A student with the teacher's receptive fields and classes."""
    return LocalNetwork(
        teacher.fields,
        nodes,
        teacher.n_outputs,
        values=teacher.inputs.values,
        encodings=encodings,
        hidden=hidden,
        top=top,
        dtype=dtype,
        generator=generator,
    )


def _widths(fields: ReceptiveFields, nodes: int | Mapping[str, int], outputs: int) -> dict[str, int]:
    hidden = [region for region in fields.inner if region != fields.top]
    widths = dict.fromkeys(hidden, nodes) if isinstance(nodes, int) else {r: nodes.get(r, 0) for r in hidden}
    widths[fields.top] = outputs
    empty = [region for region, width in widths.items() if width < 1]
    if empty:
        raise InputError(f"regions {', '.join(empty)} have no nodes, so that nothing passes; give each at least one")
    return widths
