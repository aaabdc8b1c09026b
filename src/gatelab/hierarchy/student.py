"""The student: a locally connected ReLU network with the teacher's receptive fields (hierarchy, Section 2.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from numbers import Integral
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.batchnorm import standardise
from gatelab.hierarchy.codes import check_strings, encode
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.teacher import Teacher
from gatelab.hierarchy.top_loss import TopLoss
from gatelab.models.init import check_counts, glorot_


class Norm(StrEnum):
    """Where batch norm is applied in a region."""

    NONE = "none"
    AFTER_LINEAR = "after the linear map"
    AFTER_RELU = "after the ReLU"


@dataclass(frozen=True)
class NodeOptions:
    """What the nodes of a region do with their weighted sums.

    Attributes:
        relu: whether a gate follows.
        norm: where batch norm is applied.
        bias: whether nodes have biases.
        eps: batch norm's ε; 0 is the theory's value and refuses nodes that do not vary.

    Example:
        >>> NodeOptions(norm=Norm.AFTER_RELU, eps=1e-5).norm.value
        'after the ReLU'
    """

    relu: bool = True
    norm: Norm = Norm.NONE
    bias: bool = True
    eps: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.norm, Norm):
            raise InputError(f"norm is {self.norm!r}; give a member of Norm, such as Norm.AFTER_RELU")
        if not 0 <= self.eps < inf:
            raise InputError(f"eps is {self.eps}; it is added to a variance: give 0 or a small positive number")


class RegionState(NamedTuple):
    """One region's nodes at every input: weighted sums f^raw, the gate's input and output, f for the parents, and f'.

    Batch norm, if there is any, acts between ``raw`` and ``gated`` or between ``active`` and ``output``. f' is 1
    where the gate is open, else 0; it is 1 everywhere in a region without ReLUs, which has no gates.
    """

    raw: Float[Tensor, "n w"]
    gated: Float[Tensor, "n w"]
    active: Float[Tensor, "n w"]
    output: Float[Tensor, "n w"]
    gate: Float[Tensor, "n w"]


class LocalNetwork(nn.Module):
    """A network with n_α nodes in each region, which read the nodes of the children; no weights are shared.

    By default a leaf has one node for each value of its content (hierarchy, Section 3: F_β = I). Batch norm always
    uses the statistics of the current batch, weighted by the inputs' probabilities where they are given.

    Attributes:
        weights: region → (nodes of all children, n_α).
        biases, scales, shifts: region → (n_α,): b, and batch norm's c₁ and c₀.

    Args:
        fields: the hierarchy.
        nodes: n_α for every inner region but the top, or by name.
        outputs: number of nodes of the top region, one for each class.
        values: number of values that a position takes.
        encodings: leaf → (values, nodes) table of its nodes' outputs; the identity where missing.
        hidden: options of the hidden regions; ReLU and bias by default.
        top: options of the top region; linear with bias by default.
        loss: the loss at the top; the squared error by default.
        dtype: of the parameters.
        generator: for the Glorot-uniform weights; biases start at 0.

    Example:
        >>> from gatelab.hierarchy import string_fields
        >>> network = LocalNetwork(string_fields(4, [2]), 3, 2)
        >>> network(torch.tensor([[0, 1, 1, 0]])).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        fields: ReceptiveFields,
        nodes: int | Mapping[str, int],
        outputs: int,
        *,
        values: int = 2,
        encodings: Mapping[str, Float[Tensor, "_ _"]] | None = None,
        hidden: NodeOptions | None = None,
        top: NodeOptions | None = None,
        loss: TopLoss = TopLoss.SQUARED,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.loss = TopLoss(loss)
        check_counts(values=values)
        unknown = [leaf for leaf in encodings or {} if leaf not in fields.leaves]
        if unknown:
            raise InputError(f"encodings name {', '.join(unknown)}; the leaves are {', '.join(fields.leaves)}")
        self.fields, self.values = fields, values
        hidden, top = hidden or NodeOptions(), top or NodeOptions(relu=False)
        self.options = {region: top if region == fields.top else hidden for region in fields.inner}
        self._nodes = _widths(fields, nodes, outputs)
        self.encodings = nn.ParameterDict()
        for leaf in fields.leaves:
            size = values ** len(fields.positions(leaf))
            # A float64 table in a float32 network would fail at the first product.
            code = (encodings or {}).get(leaf, torch.eye(size)).to(dtype or torch.get_default_dtype())
            if len(code) != size:
                raise InputError(f"leaf '{leaf}' takes {size} values, its encoding has {len(code)} rows")
            self.encodings[leaf] = nn.Parameter(code, requires_grad=False)
            self._nodes[leaf] = code.shape[1]
        self.weights, self.biases, self.scales, self.shifts = (nn.ParameterDict() for _ in range(4))
        for region, options in self.options.items():
            width = self._nodes[region]
            fan_in = sum(self._nodes[child] for child in fields.children(region))
            self.weights[region] = nn.Parameter(glorot_(torch.empty(fan_in, width, dtype=dtype), generator))
            if options.bias:
                self.biases[region] = nn.Parameter(torch.zeros(width, dtype=dtype))
            if options.norm is not Norm.NONE:
                self.scales[region] = nn.Parameter(torch.ones(width, dtype=dtype))
                self.shifts[region] = nn.Parameter(torch.zeros(width, dtype=dtype))

    def n_nodes(self, region: str) -> int:
        """Return n_α."""
        return self._nodes[region]

    def incoming(self, region: str) -> dict[str, Float[Tensor, "_ w"]]:
        """Return child β → W_βα, the weights from its nodes, as views of the region's weight."""
        children = self.fields.children(region)
        parts = self.weights[region].split([self._nodes[child] for child in children])
        return dict(zip(children, parts, strict=True))

    def states(self, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None) -> dict[str, RegionState]:
        """Return the nodes of every inner region at each input.

        Args:
            x: inputs.
            weights: probabilities of the inputs, for batch norm's mean and variance; uniform if left out.

        Returns:
            Inner region → its nodes, children before parents.
        """
        check_strings(x, self.fields.n_positions, self.values)
        if weights is not None and (weights.shape != x.shape[:1] or not abs(float(weights.sum()) - 1) < 1e-3):
            raise InputError(
                f"weights of shape {tuple(weights.shape)} sum to {float(weights.sum()):g}; give one probability for "
                f"each of {len(x)} inputs"
            )
        outputs, states = {}, {}
        for leaf in self.fields.leaves:
            positions = list(self.fields.positions(leaf))
            outputs[leaf] = self.encodings[leaf][encode(x[:, positions], (self.values,) * len(positions))]
        for region, options in self.options.items():
            raw = torch.cat([outputs[child] for child in self.fields.children(region)], dim=1) @ self.weights[region]
            if options.bias:
                raw = raw + self.biases[region]
            gated = self._normalised(region, raw, weights) if options.norm is Norm.AFTER_LINEAR else raw
            # Adding 0 makes a new tensor, so that gated and active have gradients of their own.
            active = torch.relu(gated) if options.relu else gated + 0
            output = self._normalised(region, active, weights) if options.norm is Norm.AFTER_RELU else active
            gate = (gated > 0).to(gated.dtype) if options.relu else torch.ones_like(gated)
            states[region] = RegionState(raw, gated, active, output, gate.detach())
            outputs[region] = output
        return states

    def forward(self, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, "n k"]:
        """Return the top region's nodes at each input.

        Args:
            x: inputs.
            weights: see :meth:`states`.

        Returns:
            The output.
        """
        return self.states(x, weights)[self.fields.top].output

    def _normalised(self, region: str, f: Tensor, weights: Tensor | None) -> Tensor:
        standardised = standardise(f, weights, self.options[region].eps, f"region '{region}'").values
        return self.scales[region] * standardised + self.shifts[region]


def student_for(
    teacher: Teacher,
    nodes: int | Mapping[str, int],
    *,
    hidden: NodeOptions | None = None,
    loss: TopLoss = TopLoss.SQUARED,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> LocalNetwork:
    """Build a student with the teacher's receptive fields and classes.

    Args:
        teacher: gives the student's regions, values and number of outputs.
        nodes: n_α for every hidden region, or by name.
        hidden: options of the hidden regions.
        loss: the loss at the top; the squared error by default.
        dtype: of the parameters.
        generator: for the weights.

    Returns:
        The student; :class:`LocalNetwork` has further options.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields
        >>> student_for(Teacher(string_fields(4, [2]), rules.parity), 3).n_nodes("h1_0")
        3
    """
    return LocalNetwork(
        teacher.fields,
        nodes,
        teacher.n_outputs,
        values=teacher.inputs.values,
        hidden=hidden,
        loss=loss,
        dtype=dtype,
        generator=generator,
    )


def _widths(fields: ReceptiveFields, nodes: int | Mapping[str, int], outputs: int) -> dict[str, int]:
    given = nodes if isinstance(nodes, Mapping) else dict.fromkeys(fields.hidden, nodes)
    unknown = [region for region in given if region not in fields.regions]
    if unknown:
        raise InputError(f"nodes name {', '.join(unknown)}; the hidden regions are {', '.join(fields.hidden)}")
    widths = {region: given.get(region, 0) for region in fields.hidden}
    widths[fields.top] = outputs
    empty = [region for region, width in widths.items() if not isinstance(width, Integral) or width < 1]
    if empty:
        raise InputError(
            f"regions {', '.join(empty)} have {widths[empty[0]]} nodes, so nothing passes; "
            "give each a whole number, at least 1"
        )
    return widths
