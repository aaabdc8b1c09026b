"""A trained network as a teacher: its regions, its nodes made discrete, the data's labels at the top."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import log, log2

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gatelab.data.dataset import Dataset, evenly
from gatelab.errors import InputError
from gatelab.hierarchy.codes import numbered
from gatelab.hierarchy.events import Events, count_events
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.quantise import Clusters, Codebook, Quantiser
from gatelab.hierarchy.reading import RegionNetwork, by_position, regions_of
from gatelab.models.init import check_counts
from gatelab.observe import batches, examples, refuse_generator

_FITTED = 20_000  # vectors of nodes that a codebook is made from


@dataclass(frozen=True)
class LayerInformation:
    """What the variables of one layer keep; means over its regions.

    Attributes:
        layer: the gate's name; "input" for the pixels.
        regions, nodes, values: how many regions, nodes in each, and values of each z_α.
        bits: entropy H(z_α) in bits; log₂ m_α is the most it could be.
        variance: share of the nodes' variance that z_α explains.
        label_bits: mutual information I(z_α; y) in bits, corrected for the number of examples (Miller–Madow).
    """

    layer: str
    regions: int
    nodes: int
    values: int
    bits: float
    variance: float
    label_bits: float


@dataclass(frozen=True, eq=False)
class NetworkTeacher:
    """A teacher read from a network (hierarchy, Section 2.2, "Example of teacher networks").

    Attributes:
        regions: the network and its regions.
        codebooks: of the input and of each layer; all positions of a layer share one, as they share weights.
        x, y: the data; z_ω is the label.
        codes: z at every position, (n, positions) for the input and each layer.
        information: what z keeps, layer by layer.
    """

    regions: RegionNetwork
    codebooks: tuple[Codebook, ...]
    x: Float[Tensor, " n *shape"]
    y: Int[Tensor, " n"]
    codes: tuple[Int[Tensor, "n _"], ...]
    information: tuple[LayerInformation, ...]

    @property
    def fields(self) -> ReceptiveFields:
        """The regions."""
        return self.regions.fields

    @cached_property
    def n_outputs(self) -> int:
        """Number of the network's outputs, one for each class, whether or not it occurs in the data."""
        return self.regions.n_outputs

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Region → m_α."""
        books = zip(self.regions.names[:-1], self.codebooks, strict=True)
        return {name: book.values for names, book in books for name in names} | {self.fields.top: self.n_outputs}

    @cached_property
    def targets(self) -> Float[Tensor, "k k"]:
        """One-hot labels."""
        return torch.eye(self.n_outputs, dtype=torch.float64, device=self.y.device)

    @cached_property
    def z(self) -> dict[str, Int[Tensor, " n"]]:
        """Region → z_α at every example of the data."""
        found = {
            name: codes[:, place].long()
            for names, codes in zip(self.regions.names[:-1], self.codes, strict=True)
            for place, name in enumerate(names)
        }
        return found | {self.fields.top: self.y}

    @cached_property
    def events(self) -> Events:
        """The probabilities P(z_α) and P(z_β | z_α), counted; ``events.error`` returns standard errors."""
        weights = torch.full((len(self.y),), 1 / len(self.y), dtype=torch.float64, device=self.y.device)
        # No matrix has more entries than there are examples, so larger ones are kept sparse.
        return count_events(self.fields, self.sizes, self.z, weights, self.targets, len(self.y), dense=len(self.y))

    def subset(self, rows: Int[Tensor, " k"]) -> "NetworkTeacher":
        """Return the same teacher on some examples of its data."""
        codes = tuple(code[rows] for code in self.codes)
        return replace(self, x=self.x[rows], y=self.y[rows], codes=codes)

    def encode(self, x: Float[Tensor, " n *shape"], batch: int = 500) -> tuple[Int[Tensor, "n _"], ...]:
        """Return z at every position of new examples, for the input and each layer."""
        found: list[list[Tensor]] = [[] for _ in self.codebooks]
        for part in batches(len(x), batch):
            for place, nodes in enumerate(layer_nodes(self.regions, x[part])):
                found[place].append(_codes(self.codebooks[place], nodes))
        return tuple(map(torch.cat, found))

    def numbered_contents(self, region: str, x: Shaped[Tensor, " n *shape"]) -> Int[Tensor, " n"]:
        """Return a number for the content x_α of a region, equal for equal contents."""
        return numbered(self.regions.pixels(x)[:, list(self.fields.positions(region))].flatten(1))


def teacher_from(
    model: nn.Module,
    data: Dataset | tuple[Tensor, Tensor],
    *,
    quantiser: Quantiser | None = None,
    pixel_values: int = 4,
    limit: int = 10_000,
    generator: torch.Generator | None = None,
) -> NetworkTeacher:
    """Read a trained network as a hierarchy: regions, variables z_α, and the data's labels as z_ω.

    Regions are the receptive fields of the network's gates, with its own padding, stride and pooling. z_α makes the
    nodes of a region discrete. ``teacher.events`` counts P(z_β | z_α) with sampling errors, and
    ``teacher.information`` gives the number of bits that z keeps.

    Args:
        model: any network that gatelab reads, in evaluation mode.
        data: a data set, of which the training part is used, or inputs and labels.
        quantiser: how z_α is made: :class:`~gatelab.hierarchy.quantise.Clusters` (16 of them by default),
            ``ProductCodes`` or ``SignPattern``.
        pixel_values: clusters of the pixels, the variables of the leaves.
        limit: the largest number of examples to use, evenly spaced.
        generator: for the clusters; the same ones each time if left out.

    Returns:
        The teacher.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
        >>> teacher = teacher_from(net, (torch.rand(50, 1, 4, 4), torch.arange(50) % 2))
        >>> teacher.fields, teacher.events.matrix("top", "h1_0").shape
        (ReceptiveFields(33 regions, 16 leaves, depth 2, 16 positions), torch.Size([2, 16]))
    """
    check_counts(pixel_values=pixel_values, limit=limit)
    refuse_generator(generator)
    generator = generator or torch.Generator().manual_seed(0)  # leaves the caller's random state unchanged
    if isinstance(data, Dataset):
        like, rows = next(model.parameters(), torch.zeros(())), evenly(len(data.train_x), limit)
        x, y = data.inputs(data.train_x[rows], like.dtype).to(like.device), data.train_y[rows].to(like.device)
    else:
        x, y = (part[evenly(len(part), limit).to(part.device)] for part in data)
    x = examples(x, model)
    if y.shape != x.shape[:1] or y.is_floating_point() or int(y.min()) < 0:
        raise InputError(f"labels are {y.dtype} of shape {tuple(y.shape)}; give a whole number from 0 for each example")
    regions = regions_of(model, x)
    if int(y.max()) >= regions.n_outputs:
        raise InputError(
            f"labels go up to {int(y.max())}, but the network returns {regions.n_outputs} numbers; it needs one for "
            "each class"
        )
    books = _fitted(regions, x, quantiser or Clusters(), pixel_values, generator)
    teacher = NetworkTeacher(regions, books, x, y.long(), (), ())
    teacher = replace(teacher, codes=teacher.encode(x))
    return replace(teacher, information=tuple(_information(teacher)))


def layer_nodes(regions: RegionNetwork, x: Float[Tensor, " n *shape"]) -> list[Float[Tensor, "n _ _"]]:
    """Return the pixels and every layer's f, by position."""
    with torch.no_grad():
        _, outputs, _ = regions.run(x)
    return [regions.pixels(x), *map(by_position, outputs)]


def _codes(book: Codebook, nodes: Float[Tensor, "n p c"]) -> Int[Tensor, "n p"]:
    small = torch.int16 if book.values < 2**15 else torch.int32
    return book.encode(nodes.flatten(0, 1)).view(nodes.shape[:2]).to(small)


def _fitted(
    regions: RegionNetwork, x: Tensor, quantiser: Quantiser, pixel_values: int, generator: torch.Generator | None
) -> tuple[Codebook, ...]:
    """Make the codebooks from random vectors of the first examples."""
    chosen = x[torch.randperm(len(x), generator=generator)[:500].to(x.device)]
    books = []
    for place, nodes in enumerate(layer_nodes(regions, chosen)):
        vectors = nodes.flatten(0, 1)
        vectors = vectors[torch.randperm(len(vectors), generator=generator)[:_FITTED].to(x.device)]
        books.append((Clusters(pixel_values) if place == 0 else quantiser).fit(vectors, generator))
    return tuple(books)


def _information(teacher: NetworkTeacher) -> list[LayerInformation]:
    names = ("input", *(layer.name for layer in teacher.regions.layers))
    widths = (teacher.regions.channels, *(layer.channels for layer in teacher.regions.layers))
    kept = _variance_kept(teacher)
    found = []
    for place, (codes, book) in enumerate(zip(teacher.codes, teacher.codebooks, strict=True)):
        entropies, labels = [], []
        for column in codes.T.long():
            joint = torch.bincount(column * teacher.n_outputs + teacher.y, minlength=book.values * teacher.n_outputs)
            joint = joint.view(book.values, -1)
            entropies.append(_entropy(joint.sum(dim=1)))
            labels.append(_entropy(joint.sum(dim=1)) + _entropy(joint.sum(dim=0)) - _entropy(joint.flatten()))
        mean, information = (sum(values) / len(values) for values in (entropies, labels))
        sizes = (codes.shape[1], widths[place], book.values)
        found.append(LayerInformation(names[place], *sizes, mean, kept[place], max(0.0, information)))
    return found


def _entropy(counts: Int[Tensor, " m"]) -> float:
    """Return the entropy in bits, with Miller and Madow's correction: (occurring − 1) / 2n nats."""
    n, occurring = int(counts.sum()), counts[counts > 0].double()
    plain = log2(n) - (occurring * occurring.log2()).sum().item() / n
    return plain + (len(occurring) - 1) / (2 * n * log(2))


def _variance_kept(teacher: NetworkTeacher, sample: int = 500) -> list[float]:
    """Return the share of the nodes' variance, position by position, that z explains; on some examples."""
    shares, rows = [], evenly(len(teacher.x), sample).to(teacher.x.device)
    for codes, book, nodes in zip(
        teacher.codes, teacher.codebooks, layer_nodes(teacher.regions, teacher.x[rows]), strict=True
    ):
        cells = codes[rows].long() + book.values * torch.arange(codes.shape[1], device=codes.device)
        flat, index = nodes.flatten(0, 1).double(), cells.flatten()
        sums = flat.new_zeros(book.values * codes.shape[1], flat.shape[1]).index_add_(0, index, flat)
        counts = torch.bincount(index, minlength=len(sums)).clamp(min=1).unsqueeze(1)
        within = (flat - (sums / counts)[index]).square().sum()
        total = (nodes.double() - nodes.double().mean(dim=0)).square().sum()
        shares.append(1 - (within / total).item() if total > 0 else 1.0)
    return shares
