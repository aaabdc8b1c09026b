"""Exact regions on planes through three examples of a gallery, as large a part as the limit on regions allows."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import TooManyPathsError
from gatelab.gates.bits import popcount
from gatelab.lab.explore.facts import ShownExamples, ShownPlane
from gatelab.lab.explore.gallery import decisions_of
from gatelab.regions import Partition, Plane, linear_regions_2d

FIRST, SMALLEST = 2.0**-8, 2.0**-20  # sides of squares, relative to one around all three examples
_HALVINGS = 40
_MOST_OUTPUTS = 10  # of a regression
_ROOM = 1.5  # the side of that one, relative to the larger extent of the three


def shown_plane(
    model: nn.Module,
    x: Float[Tensor, "3 ..."],
    examples: tuple[int, int, int],
    limit: int,
    layers: Sequence[str],
    tell: Callable[[str], object] = str,
    *,
    classes: bool = True,
) -> ShownPlane:
    """Cut the plane through three examples.

    The square grows from 1/256 of its full side (less if that has too many regions), doubling, as long as there are at
    most ``limit`` regions; the last one is shown. The full square has the middle of the three as its own; a smaller one
    lies around a point where the decision changes on the way from one of them to another, if there is one. ``tell``
    hears of each square. Without ``classes`` the outputs are real numbers, and nothing is decided.

    Raises:
        InputError: the three lie on a line.
        TooManyPathsError: even the smallest square has more regions.
        UnsupportedModelError: the network is not piecewise affine.
    """
    plane = Plane.of_examples(x)
    points = plane.coordinates(x)
    middle = (points.amin(0) + points.amax(0)) / 2
    full = _ROOM * float((points.amax(0) - points.amin(0)).max())
    change = decision_change(model, plane, points, x.dtype) if classes else None
    near = middle if change is None else change[2]
    share, found = _first_square(model, plane, near, full, limit)
    # Twice the side has up to four times the regions, or about twice if few cuts cross.
    while share < 1 and 3 * len(found) <= limit:
        tell(f"{len(found):,} regions in 1/{1 / share:.0f} of the side")
        try:
            found = _cut(model, plane, middle if share == 0.5 else near, full * share * 2, limit)
        except TooManyPathsError:
            break
        share *= 2
    between = None if change is None or share == 1 else (examples[change[0]], examples[change[1]])
    return _shown(found, examples, points, share, between, layers, classes)


@torch.no_grad()
def decision_change(
    model: nn.Module, plane: Plane, points: Float[Tensor, "3 2"], dtype: torch.dtype
) -> tuple[int, int, Tensor] | None:
    """Return two of three examples that are decided differently, and a point between them where the decision changes.

    The point is found by halving; None if all three are decided alike.
    """
    decided = decisions_of(model(plane.at(points).to(dtype))).tolist()
    pairs = [(i, j) for i, j in combinations(range(3), 2) if decided[i] != decided[j]]
    if not pairs:
        return None
    i, j = pairs[0]
    near, far = points[i], points[j]
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        same = int(decisions_of(model(plane.at(middle[None]).to(dtype)))) == decided[i]
        near, far = (middle, far) if same else (near, middle)
    return i, j, (near + far) / 2


def _first_square(model: nn.Module, plane: Plane, middle: Tensor, full: float, limit: int) -> tuple[float, Partition]:
    """A square with few enough regions, and its side relative to the full one."""
    share = FIRST
    while True:
        try:
            return share, _cut(model, plane, middle, full * share, limit)
        except TooManyPathsError:
            share /= 16
            if share < SMALLEST:
                raise


def _cut(model: nn.Module, plane: Plane, middle: Tensor, side: float, limit: int) -> Partition:
    bounds = [(float(place) - side / 2, float(place) + side / 2) for place in middle]
    return linear_regions_2d(model, plane, bounds, limit=limit)


def _shown(
    found: Partition,
    examples: tuple[int, int, int],
    points: Tensor,
    share: float,
    between: tuple[int, int] | None,
    layers: Sequence[str],
    classes: bool,
) -> ShownPlane:
    boundary = found.decision_boundary()
    several = classes and found.maps.shape[1] > 1
    # A class that decides somewhere has a border with another, or decides everywhere.
    first = found.maps[:1, :, 0] + torch.einsum("rkc,rc->rk", found.maps[:1, :, 1:], found.centres[:1])
    deciding = {int(first.argmax()), *boundary.classes.flatten().tolist()} if several else {0}
    outputs = sorted(deciding) if classes else list(range(min(found.maps.shape[1], _MOST_OUTPUTS)))
    counts = np.zeros((len(found), len(layers)), np.int32)
    for column, name in enumerate(layers):
        if found.gates is not None and name in found.gates:
            counts[:, column] = popcount(found.gates.layer(name).words).sum(1).numpy()
    (left, right), (low, high) = found.bounds
    return ShownPlane(
        examples,
        points.numpy(),
        (left, right, low, high),
        share,
        between,
        found.corners.numpy().astype(np.float32),
        found.starts.numpy().astype(np.int32),
        tuple(outputs),
        found.maps[:, outputs].numpy().astype(np.float32),
        counts,
        boundary.pieces.numpy().astype(np.float32) if classes else np.empty((0, 2, 2), np.float32),
    )


def telling_triples(examples: ShownExamples, count: int) -> list[tuple[int, int, int]]:
    """Choose triples of the gallery: a mistake with both classes it lies between, three classes, one class.

    If the gallery has none of these, its first three examples are taken.

    Example:
        >>> n = 6
        >>> shown = ShownExamples("test", tuple(range(n)), (0, 0, 0, 1, 1, 2), (), (0, 1, 0, 1, 1, 2),
        ...                       np.zeros((n, 3)), None, None, (0.0, 1.0), n, 1)
        >>> telling_triples(shown, 3)
        [(1, 0, 3), (0, 3, 5), (0, 1, 2)]
        >>> wrong = ShownExamples("test", (4, 5, 6), (0, 1, 1), (), (1, 0, 0),
        ...                       np.zeros((3, 2)), None, None, (0.0, 1.0), 3, 3)
        >>> telling_triples(wrong, 3)  # all wrong, no three of one class
        [(0, 1, 2)]
    """
    n = len(examples.numbers)
    labels = examples.labels or (0,) * n
    right = [k for k in range(n) if not examples.labels or labels[k] == examples.decisions[k]]
    kinds: list[list[tuple[int, int, int]]] = [[], [], []]
    for k in range(n):
        if k not in right:
            own = [other for other in right if labels[other] == labels[k]]
            taken = [other for other in right if labels[other] == examples.decisions[k]]
            kinds[0] += [(k, own[0], taken[0])] if own and taken else []
    firsts = list({labels[k]: k for k in reversed(right)}.values())[::-1]
    kinds[1] = list(combinations(firsts, 3))
    for label in dict.fromkeys(labels):
        same = [k for k in range(n) if labels[k] == label]
        kinds[2] += [(same[0], same[1], same[2])] if len(same) > 2 else []
    if not any(kinds) and n > 2:
        kinds[0].append((0, 1, 2))
    found: list[tuple[int, int, int]] = []
    while len(found) < count and any(kinds):
        found += [kind.pop(0) for kind in kinds if kind]
    return list(dict.fromkeys(found))[:count]
