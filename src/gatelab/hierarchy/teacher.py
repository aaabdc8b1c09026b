"""The teacher: discrete variables z_α, computed from small regions to large ones; the top variable is the label."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import check_strings, encode, numbered
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.inputs import Empirical, Inputs, Uniform
from gatelab.hierarchy.rules import Rule, RuleContext, RuleMaker


class Teacher:
    """Rules φ_α on a hierarchy, and the distribution of the inputs (hierarchy, Section 2.2).

    The variable of a leaf is the content of the leaf; several positions make one number. The label is z_ω, or a class
    for each value of z_ω. Inputs that are a labelled data set (:class:`gatelab.hierarchy.inputs.Empirical`) bring z_ω
    with them: then the top needs no rule, and labels are known for the data only.

    Attributes:
        rules: inner region → its rule.
        sizes: region → m_α, the number of values of z_α.
        fields, inputs, labels, targets: as given, or their defaults.

    Args:
        fields: the hierarchy.
        rules: one rule maker for all inner regions, or a rule or rule maker for each of them.
        inputs: the distribution of x; uniform bits by default.
        top: the rule or rule maker of the top region, if it differs.
        labels: class of each value of z_ω; by default the value itself.
        targets: the target of the student's top nodes, a row for each value of z_ω; one-hot labels by default.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> teacher.label(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])).tolist()
        [1, 0]
    """

    def __init__(
        self,
        fields: ReceptiveFields,
        rules: RuleMaker | Mapping[str, Rule | RuleMaker],
        inputs: Inputs | None = None,
        *,
        top: Rule | RuleMaker | None = None,
        labels: Int[Tensor, " m"] | None = None,
        targets: Float[Tensor, "m k"] | None = None,
    ):
        self.fields = fields
        self.inputs = Uniform(fields.n_positions) if inputs is None else inputs
        if self.inputs.n_positions != fields.n_positions:
            raise InputError(
                f"the inputs have {self.inputs.n_positions} positions, the receptive fields {fields.n_positions}"
            )
        self._labelled = isinstance(self.inputs, Empirical) and self.inputs.classes is not None and top is None
        ruled = fields.hidden if self._labelled else fields.inner
        chosen = rules if isinstance(rules, Mapping) else dict.fromkeys(ruled, rules)
        self._labelled = self._labelled and fields.top not in chosen
        if top is not None:
            chosen = {**chosen, fields.top: top}
        self.sizes = {leaf: self.inputs.values ** len(fields.positions(leaf)) for leaf in fields.leaves}
        self.rules = self._made(chosen)
        n_values = self.sizes[fields.top]
        for what, given in (("labels", labels), ("targets", targets)):
            if given is not None and len(given) != n_values:
                raise InputError(f"there are {len(given)} {what}; give one for each of {n_values} values at the top")
        if labels is not None and (labels.is_floating_point() or int(labels.min()) < 0):
            raise InputError(f"labels are {labels.dtype} from {labels.min().item():g}; give whole numbers from 0")
        if targets is not None and (targets.ndim != 2 or not bool(torch.isfinite(targets).all())):
            raise InputError(f"targets have shape {tuple(targets.shape)}; give a row of finite numbers for each value")
        self.labels = torch.arange(n_values) if labels is None else labels
        classes = torch.eye(int(self.labels.max()) + 1, dtype=torch.float64, device=self.labels.device)
        self.targets = classes[self.labels] if targets is None else targets

    @property
    def n_outputs(self) -> int:
        """Number of nodes that a student needs at the top."""
        return self.targets.shape[1]

    def __call__(self, x: Int[Tensor, "n d"]) -> dict[str, Int[Tensor, " n"]]:
        """Return all variables of each input: region → z_α(x)."""
        check_strings(x, self.fields.n_positions, self.inputs.values)
        z = {leaf: self.contents(leaf, x) for leaf in self.fields.leaves}
        for region, rule in self.rules.items():
            value = rule.apply(torch.stack([z[child] for child in self.fields.children(region)], dim=1))
            if value.shape != x.shape[:1] or int(value.min()) < 0 or int(value.max()) >= rule.values:
                raise InputError(
                    f"region '{region}': its rule gave values {int(value.min())} … {int(value.max())} of shape "
                    f"{tuple(value.shape)}; expected 0 … {rule.values - 1} for each of {len(x)} inputs"
                )
            z[region] = value
        if self._labelled:
            assert isinstance(self.inputs, Empirical)
            z[self.fields.top] = self.inputs.label(x)
        return z

    def label(self, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return the class of each input."""
        return self.labels.to(x.device)[self(x)[self.fields.top]]

    def target(self, x: Int[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the target output for each input."""
        return self.targets.to(x.device)[self(x)[self.fields.top]]

    def contents(self, region: str, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return the content x_α of a region as one number.

        Args:
            region: the name of the region.
            x: inputs.

        Returns:
            The values at the region's positions, read as digits; the first position is the most significant.
        """
        check_strings(x, self.fields.n_positions, self.inputs.values)
        positions = list(self.fields.positions(region))
        return encode(x[:, positions], (self.inputs.values,) * len(positions))

    def numbered_contents(self, region: str, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return a number for the content x_α of a region, equal for equal contents; the region may have any size."""
        return numbered(x[:, list(self.fields.positions(region))])

    def _made(self, chosen: Mapping[str, Rule | RuleMaker]) -> dict[str, Rule]:
        """Make the rules, children before parents, and note how many values each region takes."""
        ruled = self.fields.hidden if self._labelled else self.fields.inner
        superfluous = [region for region in chosen if region not in ruled]
        missing = [region for region in ruled if region not in chosen]
        if superfluous or missing:
            raise InputError(
                f"every region with children needs a rule, and no other region; missing: {', '.join(missing) or 'none'}"
                f", superfluous: {', '.join(superfluous) or 'none'}"
            )
        rules = {}
        seen = self._seen_leaves()
        for region in ruled:
            children = self.fields.children(region)
            sizes = tuple(self.sizes[child] for child in children)
            below = torch.stack([seen[child] for child in children], dim=1) if seen else None
            rule = chosen[region]
            if not isinstance(rule, Rule) and not callable(rule):
                raise InputError(f"region '{region}': its rule is {rule!r}; give a rule maker such as rules.parity")
            rule = rule if isinstance(rule, Rule) else rule(RuleContext(self.fields, region, sizes, below))
            if rule.children != sizes:
                raise InputError(
                    f"region '{region}': its rule is made for children that take {rule.children} values; "
                    f"the children {', '.join(children)} take {sizes}"
                )
            rules[region], self.sizes[region] = rule, rule.values
            if below is not None:
                seen[region] = rule.apply(below)
        if self._labelled:
            assert isinstance(self.inputs, Empirical)
            self.sizes[self.fields.top] = self.inputs.classes or 0
        return rules

    def _seen_leaves(self) -> dict[str, Int[Tensor, " n"]]:
        """Return the leaves' variables in the data; empty if the inputs are not a data set."""
        if not isinstance(self.inputs, Empirical):
            return {}
        x, _ = self.inputs.support()
        return {leaf: self.contents(leaf, x) for leaf in self.fields.leaves}
