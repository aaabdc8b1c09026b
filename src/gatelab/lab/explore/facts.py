"""What an explorer page shows, as plain numbers; :mod:`gatelab.lab.explore.page` writes them into the page."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatelab.figures import Plot


@dataclass(frozen=True)
class Omission:
    """A part that the page does not have, and why."""

    part: str
    reason: str


@dataclass(frozen=True, eq=False)
class ShownExamples:
    """The examples of the gallery, in the order of their class.

    Attributes:
        part: the part of the data that they come from.
        numbers: the place of each in this part.
        labels: class numbers; empty if targets are real numbers.
        targets: the real targets as text; empty if there are classes.
        decisions: the class that the network decides for; empty if targets are real numbers.
        outputs: what paths add up to: the network's answer, before a final softmax or sigmoid.
        pixels: bytes (n, channels, height, width) if the examples are images, else None.
        values: the numbers (n, d) of examples that are no images, else None.
        range: the numbers that byte 0 and byte 255 stand for.
        looked_at: the number of examples that were run to choose these.
        mistakes: how many of those the network decides wrongly; None if targets are real numbers.
    """

    part: str
    numbers: tuple[int, ...]
    labels: tuple[int, ...]
    targets: tuple[str, ...]
    decisions: tuple[int, ...]
    outputs: NDArray[np.float64]
    pixels: NDArray[np.uint8] | None
    values: NDArray[np.float32] | None
    range: tuple[float, float]
    looked_at: int
    mistakes: int | None


@dataclass(frozen=True, eq=False)
class ShownGates:
    """One layer of gates for all examples of the gallery.

    Attributes:
        name: as in a GatePattern.
        kind: the kind of gate.
        shape: axes behind the examples.
        bits: whether each gate is open, packed: bit b of octet k of a row is gate 8 k + b.
        soft: least and largest number that the gates multiply by, if they are soft; bits then tell q > 0.
        slope: what closed gates pass, as text; empty for nothing.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    bits: NDArray[np.uint8]
    soft: tuple[float, float] | None
    slope: str = ""


@dataclass(frozen=True, eq=False)
class ShownKernel:
    """A kernel between the examples of the gallery."""

    symbol: str
    name: str
    meaning: str
    values: NDArray[np.float32]


@dataclass(frozen=True)
class ShownPlace:
    """A unit that a path passes.

    Attributes:
        layer: the name of the layer.
        index: the unit's index.
        shape: the shape of the layer.
        box: first row, first column, last row and last column of the pixels that the unit sees; None without images.
    """

    layer: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    box: tuple[int, int, int, int] | None


@dataclass(frozen=True)
class ShownPath:
    """A path, and what the output is without its gates.

    Attributes:
        contribution: x(i₀) · (gates) · (weights).
        from_bias: whether it starts at a bias instead of the input.
        places: the units passed.
        gates: the layer's number among the page's gates and the flat number of the unit in what the gate returns.
        kept: the explained output if these gates are closed and all others stay as they are.
        reacting: the same, but gates behind them decide anew.
        decision: the class that the network decides for in the second case; None if targets are real numbers.
    """

    contribution: float
    from_bias: bool
    places: tuple[ShownPlace, ...]
    gates: tuple[tuple[int, int], ...]
    kept: float
    reacting: float
    decision: int | None


@dataclass(frozen=True, eq=False)
class ShownPaths:
    r"""The strongest paths of one example to one output.

    Attributes:
        example: the example's place in the gallery.
        output: the number of the output.
        value: the output, which all contributions add up to.
        count: the number of paths that contribute to any output, as text: it may have hundreds of digits.
        paths: largest \|contribution\| first.
        by_input: what all paths that start at an entry of the example contribute together; channels of an example that
            the page shows as an image are added up.
        biases: what all paths that start at biases contribute together.
    """

    example: int
    output: int
    value: float
    count: str
    paths: tuple[ShownPath, ...]
    by_input: NDArray[np.float32]
    biases: float


@dataclass(frozen=True, eq=False)
class ShownPlane:
    """The exact regions on a part of the plane through three examples.

    Attributes:
        examples: their places in the gallery.
        points: their coordinates, (3, 2).
        bounds: left, right, low, high.
        share: the side of the rectangle, relative to one with room around all three.
        between: two examples between which the decision changes at the middle of the rectangle; None if its middle is
            that of the three.
        corners: corners of all polygons, counter-clockwise.
        starts: where each region's corners begin, and where the last region's end.
        outputs: those of ``maps``: the outputs that decide somewhere on the rectangle; of a regression the first ten.
        maps: output k on a region is maps[r, k] · (1, s, t).
        open_gates: the number of open gates, (regions, layers).
        boundary: ends of the segments where the decision changes, (segments, 2, 2).
    """

    examples: tuple[int, int, int]
    points: NDArray[np.float64]
    bounds: tuple[float, float, float, float]
    share: float
    between: tuple[int, int] | None
    corners: NDArray[np.float32]
    starts: NDArray[np.int32]
    outputs: tuple[int, ...]
    maps: NDArray[np.float32]
    open_gates: NDArray[np.int32]
    boundary: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ShownNormals:
    """Normals of the half-spaces of a layer of gates.

    Attributes:
        layer: the layer's number among the page's gates.
        units: the flat number of each unit in the layer.
        normals: (units, *shape of an example), or of a filter's window.
        offsets: one for each unit.
        of: how many units the layer has.
        is_filter: whether the normals are filters, which shift over the image.
    """

    layer: int
    units: tuple[int, ...]
    normals: NDArray[np.float32]
    offsets: NDArray[np.float64]
    of: int
    is_filter: bool


@dataclass(frozen=True, eq=False)
class ExplorerFacts:
    """Everything on an explorer page.

    Attributes:
        network: its name.
        data: the title of the data.
        classes: their names; empty if targets are real numbers.
        remarks: sentences about the data and the network.
        parameters: number of parameters.
        rows: the network's operations: name, operation, kind, shape.
        abilities: what gatelab can compute exactly for this network: "yes", or what stands in the way.
        shape: of one example.
        examples: the gallery.
        gates: layers of gates, in order of execution.
        is_chain: whether every path passes every layer of gates.
        kernels: between the examples.
        paths: of some examples.
        planes: through three examples each.
        normals: of a deep linearly gated network.
        timeline: what was recorded while the network trained.
        omissions: what is not there, and why.
        most: the most bytes that the page may have.
    """

    network: str
    data: str
    classes: tuple[str, ...]
    remarks: tuple[str, ...]
    parameters: int
    rows: tuple[tuple[str, ...], ...]
    abilities: dict[str, str]
    shape: tuple[int, ...]
    examples: ShownExamples
    gates: tuple[ShownGates, ...] = ()
    is_chain: bool = False
    kernels: tuple[ShownKernel, ...] = ()
    paths: tuple[ShownPaths, ...] = ()
    planes: tuple[ShownPlane, ...] = ()
    normals: tuple[ShownNormals, ...] = ()
    timeline: tuple[Plot, ...] = ()
    omissions: tuple[Omission, ...] = ()
    most: int = 0
