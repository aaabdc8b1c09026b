"""Any network as a student: its gates, region by region, at every input of a teacher."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.reading import RegionNetwork, by_position, regions_of
from gatelab.hierarchy.student import RegionState
from gatelab.hierarchy.teacher import Teacher
from gatelab.hierarchy.top_loss import TopLoss


def observe_network(
    model: nn.Module, teacher: Teacher | NetworkTeacher, x: Shaped[Tensor, " n *shape"] | None
) -> Observation:
    """Run a network forward and backward on a teacher's inputs; see :func:`~gatelab.hierarchy.observe_student`.

    With a teacher read from a network the loss is the cross-entropy, otherwise the squared error.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"the student is a {type(model).__name__}; give a LocalNetwork or another nn.Module")
    if isinstance(teacher, NetworkTeacher):
        if x is not None:
            raise InputError("a teacher read from a network has its own examples; use teacher.subset(rows)")
        x, probability, images, z = teacher.x, None, teacher.x, teacher.z
        regions = teacher.regions if model is teacher.regions.network.model else regions_of(model, images)
    else:
        if x is None:
            x, probability = teacher.inputs.support()
        else:
            probability = None
        regions, images = _on_strings(model, teacher, x)
        z = teacher(x)
    _same_regions(regions, teacher)
    if probability is None:
        probability = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    probability = probability.to(images)
    target = teacher.targets.to(images)[z[teacher.fields.top].to(images.device)]
    kind = TopLoss.CROSS_ENTROPY if isinstance(teacher, NetworkTeacher) else TopLoss.SQUARED
    raws, outputs, top, gradients, loss = _passes(regions, images, target, probability, kind)
    states, at_sums, filtered = {}, {}, {}
    for index, layer in enumerate(regions.layers):
        gate = regions.gate(index, raws[index])
        columns = [by_position(values) for values in (raws[index], outputs[index], gate, *gradients[index])]
        for place, name in enumerate(layer.regions):
            raw, f, opened, g, g_raw = (column[:, place] for column in columns)
            states[name] = RegionState(raw, raw, f, f, opened)
            at_sums[name], filtered[name] = g, g_raw
    name, g = teacher.fields.top, -gradients[-1][0]
    states[name] = RegionState(top, top, top, top, torch.ones_like(top))
    at_sums[name] = filtered[name] = -g
    pixels = regions.pixels(images)
    return Observation(
        teacher.fields,
        x,
        probability,
        dict(z),
        {region: teacher.numbered_contents(region, x) for region in teacher.fields.bottom_up},
        teacher.sizes,
        {leaf: pixels[:, place] for place, leaf in enumerate(regions.names[0])},
        {region: states[region] for region in teacher.fields.inner},
        at_sums,
        filtered,
        loss,
    )


def _passes(
    regions: RegionNetwork,
    x: Float[Tensor, " n *shape"],
    target: Float[Tensor, "n k"],
    probability: Float[Tensor, " n"],
    kind: TopLoss,
) -> tuple[list[Tensor], list[Tensor], Tensor, list[tuple[Tensor, Tensor]], float]:
    """Return f^raw, f, the output, (g, g^raw) of each layer and of the output, and the loss."""
    with torch.enable_grad():
        raws, outputs, top = regions.run(x.detach().requires_grad_())
        if top.shape != target.shape:
            raise InputError(
                f"the network returns {tuple(top.shape[1:])}, the teacher's targets {target.shape[1]} numbers"
            )
        loss = kind.mean(top, target, probability)
        wanted = [tensor for pair in zip(raws, outputs, strict=True) for tensor in pair]
        found = torch.autograd.grad(loss, [*wanted, top])
    scaled = [-g / probability.view(-1, *(1,) * (g.ndim - 1)) for g in found]
    pairs = [*zip(scaled[:-1:2], scaled[1::2], strict=True), (scaled[-1], scaled[-1])]
    return [r.detach() for r in raws], [f.detach() for f in outputs], top.detach(), pairs, loss.item()


def _on_strings(model: nn.Module, teacher: Teacher, x: Tensor) -> tuple[RegionNetwork, Tensor]:
    """Feed strings to a network as images with one channel, or as vectors; their positions are its pixels."""
    like = next(model.parameters(), torch.zeros(()))
    failure: InputError | None = None
    d = teacher.fields.n_positions
    side = round(d**0.5)
    shapes = [(1, side, side)] if side * side == d else []
    for shape in (*shapes, (1, d), (d,)):
        images = x.to(like.device, like.dtype).reshape(len(x), *shape)
        try:
            return regions_of(model, images), images
        except InputError as error:
            failure = failure or error
    raise InputError(
        f"{type(model).__name__} takes neither images of one channel nor vectors with the teacher's {d} positions: "
        f"{failure}"
    ) from failure


def _same_regions(regions: RegionNetwork, teacher: Teacher | NetworkTeacher) -> None:
    fields = teacher.fields
    if regions.fields.regions != fields.regions or set(regions.fields.edges) != set(fields.edges):
        raise InputError(
            f"the network's gates form {regions.fields}, the teacher has {fields}; build the teacher on "
            "gatelab.hierarchy.reading.regions_of(network, x).fields, or by teacher_from(network, data)"
        )
