"""Lemma 1, Theorems 8 and 9, and Section 8.7.3: disentangled representations."""

from itertools import count, permutations

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.figures import Plot
from gatelab.hierarchy import (
    LocalNetwork,
    NodeOptions,
    Norm,
    ReformulatedTrainer,
    given_events,
    nearest_disentangled,
    reformulate,
    string_fields,
)
from gatelab.hierarchy.batchnorm import standardise
from gatelab.hierarchy.disentangle import (
    disentangled,
    factor_marginals,
    factorised,
    kron,
    nearest_factorised,
    nearest_separable,
)
from gatelab.hierarchy.events import Events
from gatelab.lab.measure import EXACT, IDENTITY, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import agrees, at_least, first_suitable, line, measurement

_SETS = (((0, 2), (1,)), ((1,), (0, 2)))
"""S₁, S₂ for each of two children with three factors; the parent has two."""


def _varying(count: int, generator: torch.Generator) -> Float[Tensor, "k 2"]:
    """Draw f_j of each factor, c ± h with |c| ≤ 1 and ½ ≤ |h| ≤ 1: a factor that hardly varies is entangled by nothing.

    A column of one factor in the place of another then lies at least h√m from disentangled.
    """
    centre = 2 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 1
    half = 0.5 + 0.5 * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    sign = 2 * torch.randint(2, (count, 1), generator=generator).double() - 1
    return torch.cat([centre - sign * half, centre + sign * half], dim=1)


def known_distances(k: int, marginals: Float[Tensor, "k 2"] | None = None) -> Check:
    """Compare the distance from disentangled with its value where it is known, for each node and each other factor.

    Column j is r ⊗ … ⊗ u ⊗ … ⊗ v ⊗ … ⊗ r, v in the place of factor j and u in that of factor i, r = 1 or p. Its nearest
    has the projection of u onto r in the place of u: the distance is 1 if u ⊥ r, and 1/√2 halfway between them.
    """
    rest = torch.ones(k, 2, dtype=torch.float64) if marginals is None else marginals
    across = rest.flip(1) * torch.tensor([-1.0, 1.0], dtype=torch.float64)  # orthogonal to r, and as long
    own, errors = torch.tensor([-1.0, 1.0], dtype=torch.float64), []
    for j, i in permutations(range(k), 2):
        for u, distance in ((across[i], 1.0), (rest[i] + across[i], 0.5**0.5)):
            matrix = torch.zeros(2**k, k, dtype=torch.float64)
            matrix[:, j] = kron([{i: u, j: own}.get(factor, rest[factor]) for factor in range(k)])
            errors.append(abs(nearest_disentangled(matrix, marginals).relative - distance))
    what = "gradients" if marginals is not None else "activations"
    return Check(f"{k} factors, {what}: distances 1 and 1/√2 of known columns", max(errors), IDENTITY, EXACT)


@theorem(
    "hierarchy-L1", "Lemma 1", "Sums, per-column functions and products of disentangled activations are disentangled"
)
def closed_under_operations(seed: int) -> Measurement:
    """Take three factors: a weighted sum, a different function for each column, an element-wise product of three."""
    generator = torch.Generator().manual_seed(seed)
    parts = [disentangled(_varying(3, generator)) for _ in range(3)]
    functions = (torch.relu, torch.sin, lambda column: column.square() - 1)
    applied = [torch.stack([h(part[:, j]) for j, h in enumerate(functions)], dim=1) for part in parts]
    cases = {
        "(1) weighted sum": 0.3 * parts[0] - 2.0 * parts[1] + 1.1 * parts[2],
        "(2) function of each column": applied[0],
        "(3) product of functions": applied[0] * applied[1] * applied[2],
    }
    distances = {name: nearest_disentangled(matrix).relative for name, matrix in cases.items()}
    entangled = nearest_disentangled(parts[0] + parts[1].flip(1)).relative
    return measurement(
        against(cases["(1) weighted sum"], nearest_disentangled(cases["(1) weighted sum"]).matrix, "entries"),
        *(Check(f"{name}: distance, rel.", d, IDENTITY, EXACT) for name, d in distances.items()),
        known_distances(3),
        at_least("columns swapped: distance", entangled, 0.1, "the measure must see entangled columns"),
    )


def _factored(seed: int) -> tuple[torch.Generator, Events, dict[str, Tensor]]:
    """Return factorised events, a top of two factors over two leaves of three, and disentangled F of the leaves."""
    generator = torch.Generator().manual_seed(seed)
    fields = string_fields(6, [], leaf=3)
    matrices = {}
    for child, sets in zip(fields.children("top"), _SETS, strict=True):
        matrices["top", child] = factorised([_block(len(rows), generator) for rows in sets], sets)
    chances = 0.3 + 0.4 * torch.rand(2, generator=generator, dtype=torch.float64)
    prior = kron([torch.stack([1 - p, p]) for p in chances])
    targets = disentangled(3 * _varying(2, generator))  # they vary more than the outputs, whose variance is 1
    events = given_events(fields, prior, matrices, targets)
    return generator, events, {leaf: disentangled(_varying(3, generator)) for leaf in fields.leaves}


def _block(size: int, generator: torch.Generator) -> Float[Tensor, "2 _"]:
    """Draw P(β[S] | α[i]) for |S| = size; its two rows differ by 0.2 or more, so that β tells something about α."""

    def drawn() -> Tensor:
        block = torch.rand(2, 2**size, generator=generator, dtype=torch.float64) + 0.1
        return block / block.sum(dim=1, keepdim=True)

    def tells(block: Tensor) -> bool:
        return float((block[0] - block[1]).abs().sum()) / 2 >= 0.2

    return first_suitable((drawn() for _ in count()), tells, "a block P(β[S] | α[i]) whose rows differ by 0.2")


def _separable_student(
    generator: torch.Generator, events: Events, encodings: dict[str, Tensor], top: NodeOptions
) -> LocalNetwork:
    student = LocalNetwork(events.fields, 1, 2, encodings=encodings, top=top, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        for weight, sets in zip(student.incoming("top").values(), _SETS, strict=True):
            weight.copy_(nearest_separable(weight, sets).matrix)
        # Sums of unit variance: batch norm divides gradients by σ, and a small σ would blow up rounding errors.
        sums = [events.matrix("top", leaf) @ encodings[leaf] @ w for leaf, w in student.incoming("top").items()]
        student.weights["top"] /= standardise(sums[0] + sums[1], events.priors["top"]).deviation
    return student


def _entangled_share(student: LocalNetwork) -> float:
    """Return the distance of the weights from separable, for the worse of the two children."""
    pairs = zip(student.incoming("top").values(), _SETS, strict=True)
    return max(nearest_separable(weight.detach(), sets).relative for weight, sets in pairs)


@theorem(
    "hierarchy-8",
    "Theorem 8",
    "Factorised P, separable W and disentangled F_β make F_α disentangled, with or without ReLU and batch norm",
)
def disentangled_forward(seed: int) -> Measurement:
    """Take two children with different sets S and six kinds of nodes; for contrast, nodes swap their weights."""
    generator, events, encodings = _factored(seed)
    checks, output, prior = [], torch.zeros(0), events.priors["top"]
    for relu in (False, True):
        for norm in Norm:
            student = _separable_student(generator, events, encodings, NodeOptions(relu=relu, norm=norm, eps=1e-12))
            student.weights["top"].data *= 2  # so that batch norm has something to divide by
            incoming = student.incoming("top").items()
            sums = torch.stack([events.matrix("top", leaf) @ encodings[leaf] @ w.detach() for leaf, w in incoming])
            # Biases that open each node for some values and close it for others.
            student.biases["top"].data = -prior @ sums.sum(dim=0)
            output = reformulate(student, events).activations["top"]
            what = f"{'ReLU' if relu else 'linear'}, batch norm: {norm.value}"
            by_hand = _by_hand(sums.sum(dim=0) - prior @ sums.sum(dim=0), prior, relu=relu, norm=norm)
            checks += [
                Check(f"{what}; distance, rel.", nearest_disentangled(output).relative, IDENTITY, EXACT),
                agrees(f"{what}; F_α by hand", output, by_hand, 1e-9, "float64, and ε = 1e-12 in batch norm"),
            ]
    swapped = _separable_student(generator, events, encodings, NodeOptions(relu=False))
    swapped.weights["top"].data = swapped.weights["top"].data.flip(1)
    entangled = reformulate(swapped, events).activations["top"]
    # A constant is disentangled; without it the distance is a share of what varies.
    contrast = nearest_disentangled(entangled - entangled.mean(dim=0)).relative
    children = zip(events.fields.children("top"), _SETS, strict=True)
    products = [nearest_factorised(events.matrix("top", child), sets).relative for child, sets in children]
    # Both bits of β are one coin: the product of their marginals has 1/4 everywhere.
    coin = torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).expand(4, 4)
    return measurement(
        against(output, nearest_disentangled(output).matrix, "F_α"),
        *checks,
        known_distances(2),
        Check("P factorises, rel. distance", max(products), IDENTITY, EXACT),
        Check("two bits that are one coin: distance − 1/√2",
              abs(nearest_factorised(coin, ((0,), (1,))).relative - 0.5**0.5), IDENTITY, EXACT),
        at_least("weights of the other node: distance", contrast, 0.5, "each node then follows the other's factor"),
    )  # fmt: skip


def _by_hand(f: Float[Tensor, "m k"], prior: Float[Tensor, " m"], *, relu: bool, norm: Norm) -> Float[Tensor, "m k"]:
    """Return what a region's nodes make of their sums f: batch norm and ReLU in their order."""

    def normalised(values: Tensor) -> Tensor:
        centred = values - prior @ values
        return centred / (prior @ centred.square()).sqrt()

    f = normalised(f) if norm is Norm.AFTER_LINEAR else f
    f = f.clamp(min=0) if relu else f
    return normalised(f) if norm is Norm.AFTER_RELU else f


@theorem(
    "hierarchy-9",
    "Theorem 9",
    "With factorised P, disentangled F_β and G̃_α and centred G̃_α, weight updates are separable",
)
def separable_updates(seed: int) -> Measurement:
    """Check ΔW = (P F)ᵀ G̃ for a drawn G̃; then train 50 steps with outputs normalised, centred only, or unchanged."""
    generator, events, encodings = _factored(seed)
    marginals = factor_marginals(events.priors["top"])
    uncentred = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    share, entangled = {}, []
    for name, factors in (("centred", uncentred - uncentred.mean(dim=1, keepdim=True)), ("uncentred", uncentred)):
        gradient = disentangled(factors, marginals)
        entangled.append(nearest_disentangled(gradient, marginals).relative)
        share[name] = max(
            nearest_separable((events.matrix("top", leaf) @ code).T @ gradient, sets).relative
            for (leaf, code), sets in zip(encodings.items(), _SETS, strict=True)
        )
    apart: dict[str, list[float]] = {}
    travelled: dict[str, float] = {}
    for name in ("batch norm", "centred", "neither"):
        norm = Norm.AFTER_LINEAR if name == "batch norm" else Norm.NONE
        student = _separable_student(generator, events, encodings, NodeOptions(relu=False, norm=norm, bias=False))
        start = student.weights["top"].detach().clone()
        apart[name] = []
        for _ in range(50):
            if name == "centred":
                _centred_step(student, events)
            else:
                ReformulatedTrainer(student, events, 0.1).step()
            apart[name].append(_entangled_share(student))
        travelled[name] = relative_error(student.weights["top"].detach(), start)
    curves = tuple(line(name, range(1, 51), values) for name, values in apart.items())
    ones = nearest_separable(torch.ones(3, 2, dtype=torch.float64), _SETS[0]).relative  # 3 of 6 entries remain
    return measurement(
        Plot("step", "distance of W from separable, rel.", curves),
        Check("G̃_α, distance from disentangled, rel.", max(entangled), IDENTITY, EXACT),
        known_distances(2, marginals),
        Check("weights that are all 1: distance from separable − 1/√2", abs(ones - 0.5**0.5), IDENTITY, EXACT),
        Check("ΔW of a centred G̃, distance from separable, rel.", share["centred"], IDENTITY, EXACT),
        at_least("ΔW of an uncentred G̃", share["uncentred"], 1e-3, "centring makes the difference"),
        Check("W after 50 centred steps, rel.", apart["centred"][-1], IDENTITY, EXACT),
        at_least("how far those steps moved W, rel.", travelled["centred"], 1e-4, "W at rest stays separable"),
        Check("W after 50 steps under batch norm, rel.", apart["batch norm"][-1], IDENTITY, EXACT),
        Check("how far batch norm let W move, rel.", travelled["batch norm"], IDENTITY, "f_j and 1 span it all"),
        at_least("W after 50 steps without either", apart["neither"][-1], 1e-3, "centring makes the difference"),
        note=(
            "Batch norm keeps W separable by not moving it at all: a disentangled node is a function of one binary "
            "factor, so {f_j, 1} spans every gradient it can get, and Theorem 5's projection removes all of it."
        ),
    )


@torch.no_grad()
def _centred_step(student: LocalNetwork, events: Events) -> None:
    """Make one step with the outputs' means removed, as in batch norm, but not their lengths."""
    weights, prior = student.incoming("top"), events.priors["top"]
    below = {leaf: events.matrix("top", leaf) @ student.encodings[leaf] for leaf in weights}
    output = sum((below[leaf] @ weight for leaf, weight in weights.items()), torch.zeros_like(events.targets))
    error = prior.unsqueeze(1) * (events.targets - (output - prior @ output))
    centred = error - prior.unsqueeze(1) * error.sum(dim=0)
    for leaf, weight in weights.items():
        weight.add_(below[leaf].T @ centred, alpha=0.1)


@theorem(
    "hierarchy-8.7.3",
    "Section 8.7.3",
    "A back-propagated gradient need not be disentangled, even if everything above is",
)
def backward_entangles(seed: int) -> Measurement:
    """Compare the paper's case, S = {{1, 2}, {3}}, with its closed form (Eq. 105), and with a case without loss."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    pair, single = (block / block.sum(dim=1, keepdim=True) for block in (draw(2, 4) + 0.1, draw(2, 2) + 0.1))
    matrix = factorised([pair, single], [(0, 1), (2,)])
    chances = [torch.stack([1 - p, p]) for p in 0.3 + 0.4 * draw(2)]
    centred = torch.stack([-draw(2) - 0.1, draw(2) + 0.1], dim=1)
    centred[:, 1] = -centred[:, 0]
    above = disentangled(centred, torch.stack(chances))
    weight = torch.zeros(3, 2, dtype=torch.float64)
    weight[:2, 0], weight[2, 1] = draw(2) + 0.2, draw(1)[0] + 0.2
    below = matrix.T @ above @ weight.T
    p_pair, p_single = pair.T @ chances[0], single.T @ chances[1]
    first = torch.kron((pair.T @ centred[0]).unsqueeze(1) * weight[:2, 0], p_single.unsqueeze(1))
    last = torch.kron(p_pair, single.T @ centred[1] * weight[2, 1])
    predicted = torch.cat([first, last.unsqueeze(1)], dim=1)
    marginals = factor_marginals(kron(chances) @ matrix)
    distance = nearest_disentangled(below, marginals).relative
    one_to_one = factorised([single, single.flip(0)], [(0,), (1,)])
    kept = one_to_one.T @ above @ torch.diag(weight[:2, 0])
    safe = nearest_disentangled(kept, factor_marginals(kron(chances) @ one_to_one)).relative
    return measurement(
        against(below, predicted, "G̃_β"),
        identity("Pᵀ G̃ Wᵀ against Eq. 105", below, predicted),
        at_least("distance from disentangled, rel.", distance, 1e-3, "a negative result: far from rounding"),
        known_distances(3, marginals),
        Check("one factor below each factor: distance, rel.", safe, IDENTITY, EXACT),
        note=f"the back-propagated gradient lies {distance:.0%} away from the nearest disentangled one.",
    )
