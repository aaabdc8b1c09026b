"""Measure Theorem 2's assumptions on a user's network, without keeping its nodes in memory."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.cells import Gap, Means, jackknife
from gatelab.hierarchy.diagnosis import Diagnosis, LayerDiagnosis
from gatelab.hierarchy.factor_scores import FactorScores, factor_scores, weight_energies
from gatelab.hierarchy.layer_sums import GROUPS, LayerSums, Strongest, event_correlations
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.quantise import GateBits
from gatelab.hierarchy.reading import RegionNetwork, Winners, as_layer, by_position, regions_of
from gatelab.hierarchy.top_loss import TopLoss
from gatelab.models.init import check_counts

_UPDATES = 2**21  # weights whose moves are kept for each group


def diagnose(
    student: nn.Module,
    teacher: NetworkTeacher,
    *,
    loss: TopLoss = TopLoss.CROSS_ENTROPY,
    regions: int = 25,
    batch: int = 250,
    patches: int = 6,
) -> Diagnosis:
    """Measure, layer by layer, where the assumptions of the reformulation (Theorem 2) break in a network.

    Images never repeat, so P(x_β | z_α, z_β) cannot be counted. What the theorem needs of it can: the mean of a child's
    nodes given z_α must be the mean of their means given z_β (focus), and likewise for gradients (broadness). The
    network is run with each layer's nodes replaced by their means given z, and the result is compared with its output.

    Args:
        student: the network whose nodes are measured: the teacher's own, or another one with the same regions.
        teacher: a teacher read from a network, by :func:`~gatelab.hierarchy.teacher_from`.
        loss: the loss whose gradients are measured.
        regions: the largest number of regions to measure in each layer, evenly spaced.
        batch: examples at a time.
        patches: places to remember for each node.

    Returns:
        The diagnosis; its ``words()`` state where the assumptions break.

    Example:
        >>> from gatelab.hierarchy import teacher_from
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
        >>> found = diagnose(net, teacher_from(net, (torch.rand(100, 1, 4, 4), torch.arange(100) % 2)))
        >>> [layer.layer for layer in found.layers], found.layers[0].focus.value < 2
        (['1', 'output'], True)
    """
    if not isinstance(teacher, NetworkTeacher):
        raise InputError(f"the teacher is a {type(teacher).__name__}; make one by teacher_from(network, data)")
    own = teacher.regions if student is teacher.regions.network.model else regions_of(student, teacher.x)
    if own.fields.regions != teacher.fields.regions or set(own.fields.edges) != set(teacher.fields.edges):
        raise InputError(f"the student's gates form {own.fields}, the teacher's {teacher.fields}; use the same layers")
    if own.n_outputs != teacher.n_outputs:
        raise InputError(
            f"the student returns {own.n_outputs} numbers, the teacher {teacher.n_outputs}; use equally many"
        )
    check_counts(regions=regions, batch=batch, patches=patches)
    if len(teacher.y) < 2 * GROUPS:
        raise InputError(f"the teacher has {len(teacher.y)} examples; intervals need {2 * GROUPS} or more")
    work = _Work(own, teacher, loss, regions, batch, patches)
    work.first_pass()
    work.second_pass()
    return work.diagnosis()


class _Work:
    """The passes over the data. Groups of examples go through the network one after the other."""

    def __init__(
        self, own: RegionNetwork, teacher: NetworkTeacher, loss: TopLoss, regions: int, batch: int, patches: int
    ):
        self.own, self.teacher, self.loss, self.batch, self.n_patches = own, teacher, loss, batch, patches
        self.model = own.network.model
        codes = [*teacher.codes[1:], teacher.y.unsqueeze(1)]
        sizes = [*(book.values for book in teacher.codebooks[1:]), teacher.n_outputs]
        self.layers = [LayerSums(code, values, regions) for code, values in zip(codes, sizes, strict=True)]
        self.pixels = LayerSums(teacher.codes[0], teacher.codebooks[0].values, 1)
        self.total, self.patches = 0.0, [Strongest(patches) for _ in own.layers]
        self.weights = [(n, p) for n, p in self.model.named_parameters() if p.ndim > 1 and p.is_floating_point()]
        if sum(parameter.numel() for _, parameter in self.weights) > _UPDATES:
            self.weights = []
        self.moves: dict[str, list[list[Tensor]]] = {"true": [], "given z": []}

    def parts(self) -> list[tuple[int, Int[Tensor, " b"]]]:
        """Return the batches: a group, and numbers of examples; each group holds every 20th example."""
        n, device = len(self.teacher.y), self.teacher.y.device
        groups = [torch.arange(group, n, GROUPS, device=device) for group in range(GROUPS)]
        return [(group, rows) for group, members in enumerate(groups) for rows in members.split(self.batch)]

    def first_pass(self) -> None:
        """Run forward and backward: sums of gates, nodes and gradients, and their means at every position."""
        for group, rows in self.parts():
            raws, outputs, gradients, filtered, moves = self._backward(rows)
            self._keep("true", group, moves)
            self.pixels.add(rows, f=self.own.pixels(self.teacher.x[rows]))
            for index, layer in enumerate(self.layers):
                last = index == len(self.own.layers)
                raw, f, g, g_raw = map(by_position, (raws[index], outputs[index], gradients[index], filtered[index]))
                gate = torch.ones_like(raw) if last else by_position(self.own.gate(index, raws[index]))
                layer.add(rows, f=f, g=g)
                at = layer.chosen
                z = layer.codes[rows][:, at]
                layer.sums.count(group, z)
                layer.sums.add(group, z, raw=raw[:, at], f=f[:, at], g=g[:, at], g_raw=g_raw[:, at], gate=gate[:, at])
                self._by_label(layer, rows, f[:, at])
                if not last:
                    self.patches[index].see(rows, f[:, at], [self.own.layers[index].regions[i] for i in at.tolist()])

    def second_pass(self) -> None:
        """Run with f_k and g_j replaced by their means given z: Σ w f_k(z_β), Σ w g_j(z_α), and E[f_k g_j(z_α)]."""
        for group, rows in self.parts():
            through, back, moves = self._smoothed(rows)
            self._keep("given z", group, moves)
            for index, layer in enumerate(self.layers):
                at = layer.chosen
                found = {"through": by_position(through[index])[:, at]}
                if index < len(self.own.layers):
                    found["back"] = by_position(back[index])[:, at]
                layer.sums.add(group, layer.codes[rows][:, at], **found)

    def _backward(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Return f^raw, f, g and g^raw of every layer and of the output, and Δw of every weight, summed."""
        x, target = self.teacher.x[rows], self.teacher.targets[self.teacher.y[rows]]
        parameters = [parameter for _, parameter in self.weights]
        with torch.enable_grad():
            # Gradients must reach every layer, even where weights are frozen.
            raws, outputs, top = self.own.run(x.detach().requires_grad_())
            total = self.loss.mean(top, target.to(top), torch.ones(len(rows)).to(top))
            wanted = [*raws, *outputs, top, *(p for p in parameters if p.requires_grad)]
            found = [-g for g in torch.autograd.grad(total, wanted)]
        self.total += total.item()
        count = len(raws)
        g, g_raw, at_top, moves = found[:count], found[count : 2 * count], found[2 * count], found[2 * count + 1 :]
        raws, outputs, top = [r.detach() for r in raws], [f.detach() for f in outputs], top.detach()
        return [*raws, top], [*outputs, top], [*g, at_top], [*g_raw, at_top], moves

    def _smoothed(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return Σ w f_k(z_β) at every layer and the output, Σ w g_j(z_α) below it, and Δw with g_j(z_α).

        Two runs of the network, cut at every gate: one on its own f, whose graph takes g_j(z_α) backward, and one on
        f_k(z_β). Between gates only max-pooling is not linear; the second run takes the winners of the first.
        """
        leaves: list[Tensor] = []

        def cut(values: Tensor) -> Tensor:
            leaves.append(values.detach().requires_grad_())
            return leaves[-1]

        x, winners = self.teacher.x[rows], Winners()
        with torch.enable_grad():
            raws, _, top = self.own.run(cut(x), lambda _, f: cut(f), winners)
            values = [*raws, top]
            sent = [as_layer(layer.mean("g", rows, v), v) for v, layer in zip(values, self.layers, strict=True)]
            wanted = [*leaves[1:], *(parameter for _, parameter in self.weights if parameter.requires_grad)]
            back = torch.autograd.grad(values, wanted, sent, allow_unused=True, materialize_grads=True)
        pixels = self.pixels.mean("f", rows, x).transpose(1, 2).reshape(x.shape)
        with torch.no_grad():
            through, _, end = self.own.run(
                pixels, lambda index, f: as_layer(self.layers[index].mean("f", rows, f), f), winners
            )
        return [*through, end], list(back[: len(leaves) - 1]), list(back[len(leaves) - 1 :])

    def _by_label(self, layer: LayerSums, rows: Tensor, f: Float[Tensor, "b r c"]) -> None:
        """Add the nodes of the chosen regions by label."""
        if layer.labels is None:
            layer.labels = torch.zeros(self.teacher.n_outputs, *f.shape[1:], dtype=torch.float64, device=f.device)
        layer.labels.index_add_(0, self.teacher.y[rows], f.double())

    def _keep(self, kind: str, group: int, moves: list[Tensor]) -> None:
        """Add Δw to the sum of its group."""
        kept = self.moves[kind]
        if len(kept) <= group:
            kept.append([move.detach().double() for move in moves])
        else:
            kept[group] = [total + move.double() for total, move in zip(kept[group], moves, strict=True)]

    def diagnosis(self) -> Diagnosis:
        """Assemble the diagnosis from the sums."""
        names = [*(layer.name for layer in self.own.layers), "output"]
        energies = weight_energies(self.own)
        factors = [isinstance(book, GateBits) for book in self.teacher.codebooks[1:]]  # other codes have no factors
        scores = [
            factor_scores(layer.sums) if known else None
            for layer, known in zip(self.layers, [*factors, False], strict=True)
        ]
        layers = []
        for index, name in enumerate(names):
            layer, below = self.layers[index], scores[index - 1] if index else None
            separable = None
            if (own := scores[index]) is not None and below is not None and index in energies:
                separable = own.inseparable(below, energies[index])
            layers.append(self._layer(name, layer, last=index == len(names) - 1, factors=own, inseparable=separable))
        found = [best.found(layer.name) for best, layer in zip(self.patches, self.own.layers, strict=True)]
        n = len(self.teacher.y)
        return Diagnosis(tuple(layers), self._updates(), tuple(found), n, self.total / n)

    def _layer(
        self, name: str, layer: LayerSums, *, last: bool, factors: FactorScores | None, inseparable: float | None
    ) -> LayerDiagnosis:
        sums = layer.sums
        priors = sums.priors()
        occurring = priors.clamp(min=1e-300)
        bits = -(priors * occurring.log2()).sum(dim=1).mean().item()

        def gap(difference: str, relative_to: str) -> Gap:
            return sums.gap(_DIFFERENCES[difference], relative_to)

        return LayerDiagnosis(
            name,
            sums.shape[1],
            sums.means()["f"].shape[2],
            layer.values,
            bits,
            gap("focus", "raw"),
            None if last else gap("broadness", "g_raw"),
            None if last else gap("activations", "f"),
            None if last else gap("gradients", "g"),
            gap("forward", "f"),
            None if last else gap("backward", "g"),
            event_correlations(sums.means()["f"], priors, sums.power("f")),
            self._label_selectivity(layer),
            *((None, None, None) if factors is None else (factors.definition, factors.variance, factors.entangled)),
            inseparable,
        )

    def _label_selectivity(self, layer: LayerSums) -> Float[Tensor, "c k"]:
        counts = torch.bincount(self.teacher.y, minlength=self.teacher.n_outputs).double()
        assert layer.labels is not None
        means = (layer.labels / counts.clamp(min=1).view(-1, 1, 1)).transpose(0, 1)
        priors = (counts / counts.sum()).expand(means.shape[0], -1)
        return event_correlations(means, priors, layer.sums.power("f"))

    def _updates(self) -> dict[str, Gap]:
        """Return, for each weight, the distance of Δw with g_j(z_α) in place of g_j from Δw."""
        found = {}
        moving = [name for name, parameter in self.weights if parameter.requires_grad]
        for place, name in enumerate(moving):
            true, given = (torch.stack([moves[place] for moves in self.moves[kind]]) for kind in ("true", "given z"))

            def squared(without: int | None, true: Tensor = true, given: Tensor = given) -> float:
                whole, part = true.sum(dim=0), given.sum(dim=0)
                if without is not None:
                    whole, part = whole - true[without], part - given[without]
                return ((whole - part).square().sum() / whole.square().sum().clamp(min=1e-300)).item()

            found[name] = jackknife(squared(None), [squared(group) for group in range(GROUPS)])
        return found


def _covariance(means: Means, product: str, other: str) -> Tensor:
    return means[product] - means["gate"] * means[other]


_DIFFERENCES = {
    "focus": lambda means: means["through"] - means["raw"],
    "broadness": lambda means: means["back"] - means["g_raw"],
    "activations": lambda means: _covariance(means, "f", "raw"),
    "gradients": lambda means: _covariance(means, "g", "g_raw"),
    "forward": lambda means: means["f"] - means["gate"] * means["through"],
    "backward": lambda means: means["g"] - means["gate"] * means["back"],
}
