"""The teacher: discrete summarisation variables z_α, computed from below; the label stands at the top."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import encode
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.inputs import Inputs, Uniform
from gatelab.hierarchy.rules import Place, Rule, RuleMaker


class Teacher:
    """Rules φ_α on a hierarchy, and the distribution of the inputs (hierarchy, Section 2.2).

    The variable of a leaf is what stands there (several positions: one number). The label is z_ω itself, or a class
    for each of its values; the student is to answer with one node for each class, or with any other target.

    Attributes:
        fields: the hierarchy.
        inputs: the distribution of x.
        sizes: region → m_α, the number of values of z_α.
        labels: the class of each value of z_ω.
        targets: what the student's top nodes should say for each value of z_ω; one-hot labels by default.

    Raises:
        InputError: rules that are missing, too many, or made for other children.
    """

    def __init__(
        self,
        fields: ReceptiveFields,
        rules: Mapping[str, Rule],
        inputs: Inputs | None = None,
        *,
        labels: Int[Tensor, " m"] | None = None,
        targets: Float[Tensor, "m k"] | None = None,
    ):
        self.fields = fields
        self.inputs = Uniform(fields.n_positions) if inputs is None else inputs
        if self.inputs.n_positions != fields.n_positions:
            raise InputError(
                f"the inputs have {self.inputs.n_positions} positions, the receptive fields {fields.n_positions}"
            )
        self.rules = dict(rules)
        self.sizes = _sizes(fields, self.rules, self.inputs.values)
        top = self.sizes[fields.top]
        self.labels = torch.arange(top) if labels is None else labels
        if len(self.labels) != top:
            raise InputError(f"there are {len(self.labels)} labels for the {top} values of '{fields.top}'")
        classes = torch.eye(int(self.labels.max()) + 1, dtype=torch.float64)
        self.targets = classes.to(self.labels.device)[self.labels] if targets is None else targets
        if len(self.targets) != top:
            raise InputError(f"there are {len(self.targets)} targets for the {top} values of '{fields.top}'")

    @property
    def n_outputs(self) -> int:
        """How many nodes a student needs at the top."""
        return self.targets.shape[1]

    def __call__(self, x: Int[Tensor, "n d"]) -> dict[str, Int[Tensor, " n"]]:
        """All summarisation variables of each input: region → z_α(x)."""
        self._check(x)
        z = {leaf: self.contents(leaf, x) for leaf in self.fields.leaves}
        for region in self.fields.inner:
            rule = self.rules[region]
            value = rule.apply(torch.stack([z[child] for child in self.fields.children(region)], dim=1))
            if value.shape != x.shape[:1] or int(value.min()) < 0 or int(value.max()) >= rule.values:
                raise InputError(
                    f"region '{region}': its rule gave values {int(value.min())} … {int(value.max())} of shape "
                    f"{tuple(value.shape)}; expected 0 … {rule.values - 1} for each of {len(x)} inputs"
                )
            z[region] = value
        return z

    def label(self, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The class of each input."""
        return self.labels.to(x.device)[self(x)[self.fields.top]]

    def target(self, x: Int[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """What the student should answer to each input."""
        return self.targets.to(x.device)[self(x)[self.fields.top]]

    def contents(self, region: str, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """What stands in a region, x_α, as one number."""
        positions = list(self.fields.positions(region))
        return encode(x[:, positions], (self.inputs.values,) * len(positions))

    def factors(self, region: str) -> int:
        """How many binary factors z_α consists of: log₂ m_α, the first the most significant bit."""
        size = self.sizes[region]
        bits = size.bit_length() - 1
        if size != 2**bits:
            raise InputError(
                f"region '{region}' takes {size} values, which is no power of two: it has no binary factors"
            )
        return bits

    def _check(self, x: Tensor) -> None:
        d, v = self.fields.n_positions, self.inputs.values
        if x.ndim != 2 or x.shape[1] != d or x.is_floating_point() or len(x) == 0:
            raise InputError(f"x has shape {tuple(x.shape)} and dtype {x.dtype}; expected (n, {d}) whole numbers")
        if int(x.min()) < 0 or int(x.max()) >= v:
            raise InputError(f"x holds values {int(x.min())} … {int(x.max())}; this teacher reads 0 … {v - 1}")


def build_teacher(
    fields: ReceptiveFields,
    maker: RuleMaker | Mapping[str, RuleMaker],
    inputs: Inputs | None = None,
    *,
    top: RuleMaker | None = None,
) -> Teacher:
    """A teacher whose rules are made to measure.

    Args:
        fields: the hierarchy.
        maker: makes the rule of every region, or one maker for each region's name.
        inputs: the distribution of x; uniform bits by default.
        top: the maker for the top region, if another.

    Example:
        >>> from gatelab.hierarchy import parity, string_fields
        >>> teacher = build_teacher(string_fields(4, [2]), parity)
        >>> teacher.label(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])).tolist()
        [1, 0]
    """
    inputs = Uniform(fields.n_positions) if inputs is None else inputs
    makers = dict(maker) if isinstance(maker, Mapping) else dict.fromkeys(fields.inner, maker)
    if top is not None:
        makers[fields.top] = top
    missing = [region for region in fields.inner if region not in makers]
    if missing:
        raise InputError(f"regions {', '.join(missing)} have no rule; give a maker for each region that has children")
    sizes = {leaf: inputs.values ** len(fields.positions(leaf)) for leaf in fields.leaves}
    rules = {}
    for region in fields.inner:
        place = Place(fields, region, tuple(sizes[child] for child in fields.children(region)))
        rules[region] = makers[region](place)
        sizes[region] = rules[region].values
    return Teacher(fields, rules, inputs)


def _sizes(fields: ReceptiveFields, rules: Mapping[str, Rule], values: int) -> dict[str, int]:
    unknown = [region for region in rules if region not in fields.inner]
    missing = [region for region in fields.inner if region not in rules]
    if unknown or missing:
        raise InputError(
            f"rules are wanted for regions with children, and for no others; missing: {', '.join(missing) or 'none'}, "
            f"too many: {', '.join(unknown) or 'none'}"
        )
    sizes = {leaf: values ** len(fields.positions(leaf)) for leaf in fields.leaves}
    for region in fields.inner:
        children = fields.children(region)
        expected, found = rules[region].children, tuple(sizes[child] for child in children)
        if expected != found:
            raise InputError(
                f"region '{region}': its rule is made for children that take {expected} values; "
                f"the children {', '.join(children)} take {found}"
            )
        sizes[region] = rules[region].values
    return sizes
