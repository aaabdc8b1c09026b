"""Network and data in, facts out: every part that is exact for this network and fits into the page."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data.user_data import NO_TEST_PART
from gatelab.errors import GatelabError, InputError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.lab.explore.encoding import array_size, encoded_size
from gatelab.lab.explore.facts import ExplorerFacts, Omission, ShownGates
from gatelab.lab.explore.gallery import Gallery, answers
from gatelab.lab.explore.kernels import shown_kernels
from gatelab.lab.explore.normals import shown_normals
from gatelab.lab.explore.planes import shown_plane, telling_triples
from gatelab.lab.explore.strongest import StrongestPaths
from gatelab.lab.explore.subject import Subject
from gatelab.network import Network, read
from gatelab.network.capture import gates_of
from gatelab.network.certificate import certify
from gatelab.network.drawing import rows
from gatelab.work.progress import Reporter

LEAST = 2  # examples of a gallery
_HALF = 0.5  # the share of the page that examples and kernels may take
_NORMALS = 0.2
_HEAD = (
    "Outputs, decisions and paths are those before the network's final softmax or sigmoid; the tangent kernel is that "
    "of what the network returns."
)
_GATES, _KERNELS, _PATHS, _PLANES, _HALFSPACES = "gates", "kernels", "paths", "planes", "half-spaces"


@dataclass(frozen=True)
class Wishes:
    """How much a page should show, if it fits.

    Attributes:
        part: the part of the data; None: the test part, or all if none was set apart.
        examples: number of examples.
        shown: examples that the gallery must have, by their place in the part.
        paths: paths of each example.
        planes: number of planes besides those of ``triples``.
        triples: planes through these examples, by their places in the part.
        regions: the most regions of a plane.
        normals: the most half-spaces of a layer.
        most: bytes of the page.
    """

    part: str | None = None
    examples: int = 60
    shown: tuple[int, ...] = ()
    paths: int = 8
    planes: int = 3
    triples: tuple[tuple[int, int, int], ...] = ()
    regions: int = 12_000
    normals: int = 64
    most: int = 20_000_000

    def __post_init__(self) -> None:
        least = {"examples": LEAST, "paths": 0, "planes": 0, "regions": 1, "normals": 0}
        for name, bound in least.items():
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < bound:
                raise InputError(f"{name} is {given!r}; give a whole number, at least {bound}")
        for triple in self.triples:
            if len(set(triple)) != 3:
                raise InputError(f"the triple {', '.join(map(str, triple))} does not have three different examples")


@dataclass
class ExplorerGathering:
    """Facts in the making.

    Attributes:
        subject: network and data.
        wishes: how much to show.
        base: the size of the page without facts.
        reporter: is told what is being done.
        omissions: what could not be computed, and why.
    """

    subject: Subject
    wishes: Wishes
    base: int
    reporter: Reporter
    omissions: list[Omission] = field(default_factory=list)

    def facts(self) -> ExplorerFacts:
        """Compute everything."""
        model, dtype = in_double(self.subject)
        network = self._network(model, self.subject.data.inputs(self.subject.data.train_x[:LEAST], dtype))
        answer = model if network is None else partial(_before_heads, network)
        wanted = (*self.wishes.shown, *(place for triple in self.wishes.triples for place in triple))
        gallery = Gallery(self.subject, answer, dtype, self.wishes.part, wanted)
        self._choose(gallery, network, answers(answer, gallery.x[:1]).shape[1])
        found = self._start(gallery, network, answers(answer, gallery.x))
        self.reporter.start({_KERNELS: 2, _PATHS: 2, _PLANES: 6}, ())
        if network is not None:
            with self._attempting(_GATES):
                pattern = gates_of(network, gallery.x, 256)
                found = replace(found, gates=shown_gates(pattern), is_chain=pattern.is_chain)
            if not found.gates:
                reason = "they need gates, and this network has none that are known"
                self.omissions += [Omission(part, reason) for part in (_PATHS, _PLANES, _HALFSPACES)]
        self.reporter.update(_KERNELS, 0.0, f"{len(gallery.places)} examples")
        kernels, missing = shown_kernels(model, gallery.x)
        self.omissions += missing
        found = replace(found, kernels=tuple(kernels))
        self.reporter.finish(_KERNELS)
        if network is not None:
            found = self._with_paths(found, network, gallery.x)
            found = self._with_normals(found, model, gallery.x)
            found = self._with_planes(found, model, gallery)
        return replace(found, omissions=tuple(self.omissions))

    def _network(self, model: nn.Module, x: Tensor) -> Network | None:
        """The model, read; None if it cannot be: what needs no gates remains."""
        try:
            network = read(model, x)
            certify(network)
        except (UnsupportedModelError, InputError) as error:
            reason = f"gatelab cannot read this network: {error}"
            self.omissions += [Omission(part, reason) for part in (_GATES, _PATHS, _PLANES, _HALFSPACES)]
            return None
        return network

    def _choose(self, gallery: Gallery, network: Network | None, outputs: int) -> None:
        """Choose as many examples as fit into half of the page."""
        bits = 0 if network is None else sum(prod(_gate_shape(network, node)) for node in network.path_gates)
        numbers = prod(gallery.x.shape[1:])
        each = array_size(bits, 1) // 8 + array_size(numbers, 4) + array_size(outputs, 8)
        room = _HALF * (self.wishes.most - self.base)
        count = min(self.wishes.examples, len(gallery.places))
        while count >= LEAST and count * each + 3 * array_size(count * count, 4) > room:
            count -= 1
        if count < LEAST:
            needed = (self.base + (2 * each + 400) / _HALF) / 1e6
            raise InputError(
                f"two examples of this network take {each * 2 / 1e6:.2g} MB, and the page may have "
                f"{self.wishes.most / 1e6:.3g} MB; raise --most-mb to {needed:.2g} or more"
            )
        needed = {*self.wishes.shown, *(place for triple in self.wishes.triples for place in triple)}
        if count < len(needed):
            raise InputError(
                f"{len(needed)} examples are asked for by number, and {count} fit the page; ask for fewer, for more "
                "--examples, or for a larger page with --most-mb"
            )
        if count < self.wishes.examples and count < len(gallery.places):
            self.omissions.append(
                Omission("more examples", f"{count} fit into half of {self.wishes.most / 1e6:.3g} MB; raise --most-mb")
            )
        gallery.choose(count)

    def _start(self, gallery: Gallery, network: Network | None, outputs: Float[Tensor, "n k"]) -> ExplorerFacts:
        subject = self.subject
        remarks = tuple(r for r in subject.remarks if gallery.part != "all" or not r.startswith(NO_TEST_PART))
        if network is not None and network.answer is not network.output:
            remarks = (*remarks, _HEAD)
        return ExplorerFacts(
            network=subject.name,
            data=subject.data.title,
            classes=tuple(subject.data.classes) if subject.is_classifier else (),
            remarks=remarks,
            parameters=sum(parameter.numel() for parameter in subject.model.parameters()),
            rows=() if network is None else tuple(rows(network)),
            abilities={} if network is None else network.abilities(),
            shape=tuple(gallery.x.shape[1:]),
            examples=gallery.facts(outputs),
            timeline=subject.timeline,
            most=self.wishes.most,
        )

    def _with_paths(self, found: ExplorerFacts, network: Network, x: Tensor) -> ExplorerFacts:
        if not self.wishes.paths or not found.gates:
            return found
        with self._attempting(_PATHS):
            search = StrongestPaths(
                network, x, found.gates, self.wishes.paths, images=found.examples.pixels is not None
            )
            paths, examples = [], found.examples
            room = self._room(found) * (1 - _NORMALS)
            for example in range(len(examples.numbers)):
                self.reporter.update(_PATHS, example / len(examples.numbers), f"example {example}")
                wanted = {examples.decisions[example], examples.labels[example]} if found.classes else {0}
                wanted = wanted if examples.outputs.shape[1] > 1 else {0}
                made = [search.of(example, output, classes=bool(found.classes)) for output in sorted(wanted)]
                room -= encoded_size(made)
                if room < 0:
                    reason = f"they fit the page for the first {example} examples only; raise --most-mb"
                    self.omissions.append(Omission("paths of more examples", reason))
                    break
                paths += made
            return replace(found, paths=tuple(paths))
        return found

    def _with_normals(self, found: ExplorerFacts, model: nn.Module, x: Tensor) -> ExplorerFacts:
        if not self.wishes.normals or not found.gates:
            return found
        with self._attempting(_HALFSPACES):
            room = int(_NORMALS * self._room(found))
            normals = shown_normals(model, tuple(x.shape[1:]), found.gates, self.wishes.normals, room)
            return replace(found, normals=tuple(normals))
        return found

    def _with_planes(self, found: ExplorerFacts, model: nn.Module, gallery: Gallery) -> ExplorerFacts:
        place = {number: k for k, number in enumerate(gallery.places)}
        asked = [(place[i], place[j], place[k]) for i, j, k in self.wishes.triples]
        triples = [*asked, *(t for t in telling_triples(found.examples, self.wishes.planes) if t not in asked)]
        layers = [layer.name for layer in found.gates]
        for number, triple in enumerate(triples if found.gates else ()):
            done, title = number / len(triples), f"plane {number + 1} of {len(triples)}"
            self.reporter.update(_PLANES, done, title)
            tell = partial(self._tell_square, done, title)
            named = ", ".join(str(gallery.places[k]) for k in triple)
            with self._attempting(f"plane through examples {named}"):
                made = shown_plane(
                    model,
                    gallery.x[list(triple)],
                    triple,
                    self.wishes.regions,
                    layers,
                    tell,
                    classes=bool(found.examples.labels),
                )
                if encoded_size(made) > self._room(found):
                    reason = f"its {len(made.starts) - 1:,} regions do not fit the page; raise --most-mb"
                    self.omissions.append(Omission(f"plane through examples {named}", reason))
                    continue
                found = replace(found, planes=(*found.planes, made))
        return found

    def _tell_square(self, done: float, title: str, square: str) -> None:
        self.reporter.update(_PLANES, done, f"{title}, {square}")

    def _room(self, found: ExplorerFacts) -> int:
        """The bytes that are left; some are set aside for what is still to be said."""
        return self.wishes.most - self.base - encoded_size(found) - encoded_size(self.omissions) - 4096

    @contextmanager
    def _attempting(self, part: str) -> Iterator[None]:
        """Note why a part cannot be computed, and go on."""
        try:
            yield
        except GatelabError as error:
            self.omissions.append(Omission(part, str(error)))


def in_double(subject: Subject) -> tuple[nn.Module, torch.dtype]:
    """Return the network in float64, if it runs there, so that all parts of a page agree; else as it is."""
    own = next((p.dtype for p in subject.model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    double = copy.deepcopy(subject.model).double()
    try:
        with torch.no_grad():
            answer = double(subject.data.inputs(subject.data.train_x[:LEAST], torch.float64))
    except RuntimeError:  # some operation of it insists on its own dtype
        return subject.model, own
    return (double, torch.float64) if answer.dtype == torch.float64 else (subject.model, own)


def shown_gates(pattern: GatePattern) -> tuple[ShownGates, ...]:
    """Return the layers of a pattern."""
    found = []
    for name in pattern.layers:
        layer = pattern.layer(name)
        octets = layer.words.contiguous().view(torch.uint8)[:, : -(-layer.units // 8)].numpy()
        numbers = layer.numbers
        soft = None if numbers is None else (float(numbers.min()), float(numbers.max()))
        slope = layer.slope
        passes = f"{min(slope):g} to {max(slope):g}" if isinstance(slope, tuple) else f"{slope:g}" if slope else ""
        found.append(ShownGates(name, layer.kind.value, layer.shape, octets, soft, passes))
    return tuple(found)


def _gate_shape(network: Network, node: Any) -> Sequence[int]:
    """The units of a gate; a max-pooling has one for each tap of each window."""
    pool = network.gating(node).pool
    taps = prod(getattr(pool, "kernel", (9,))) if pool is not None else 1
    return (*node.meta["shape"][1:], taps)


@torch.no_grad()
def _before_heads(network: Network, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
    """What paths add up to."""
    return network.interpreter.run(network.model, [network.output], x)[0]
