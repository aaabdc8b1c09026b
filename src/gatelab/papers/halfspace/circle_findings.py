"""halfspace, Figures 2–6, 9 and 10: the answer and the tables of the circle experiment.

DLGN: deep linearly gated network.
"""

from collections.abc import Callable

from gatelab.lab.findings import Table
from gatelab.lab.verdicts import Sample
from gatelab.papers.halfspace.circle_runs import FROZEN, KINDS, LEARNERS, LEARNT, CircleRuns, times_text


def answer(seen: CircleRuns) -> str:
    """The finding in a few sentences."""
    start, _, end = seen.shown
    before, after = (seen.path_ratio("dlgn", epoch).text() for epoch in (start, end))
    times = "; ".join(f"{name} {_times(seen, kind)}" for kind, name in KINDS.items())
    return (
        f"The DLGN opens {after} times as many paths on the smooth half of the circle as on the rough half after "
        f"training ({before} before); the ReLU network {seen.path_ratio('relu', end).text()} "
        f"({seen.path_ratio('relu', start).text()}). Epochs to a mean square of {LEARNT:g}: {times}."
    )


def _times(seen: CircleRuns, kind: str) -> str:
    return times_text(seen.epochs_to_learn(kind), seen.end(kind))


def tables(seen: CircleRuns) -> tuple[Table, ...]:
    """Learning, paths, kernels, artefacts, gates and half-spaces."""
    return (_learning(seen), _paths(seen), _kernels(seen), _artefacts(seen), _tilts(seen), _normals(seen), _hard(seen))


def _learning(seen: CircleRuns) -> Table:
    _, early, end = seen.shown
    rows = []
    for kind, name in KINDS.items():
        errors = [part.text() for epoch in (early, end) for part in seen.halves(kind, "error", epoch)]
        rows.append((name, *errors, _times(seen, kind)))
    halves = [f"epoch {epoch}, {half} half" for epoch in (early, end) for half in ("smooth", "rough")]
    return Table(
        "Mean squared error, mean ± standard deviation over runs",
        ("network", *halves, f"epochs to {LEARNT:g}"),
        tuple(rows),
        "The paper: about 200 epochs for ReLU and DLGN, more than 2000 with frozen gates. Runs that do not get there "
        "are counted but left out of the mean.",
    )


def _paths(seen: CircleRuns) -> Table:
    rows = tuple((KINDS[kind], *(seen.path_ratio(kind, epoch).text() for epoch in seen.shown)) for kind in KINDS)
    columns = ("network", "at the start", *(f"at epoch {epoch}" for epoch in seen.shown[1:]))
    return Table("Active paths on the smooth half, over those on the rough half", columns, rows)


def _kernels(seen: CircleRuns) -> Table:
    _, early, end = seen.shown
    rows = []
    for what, name in (("overlap", "overlap kernel"), ("tangent", "tangent kernel")):
        for kind in LEARNERS:
            moved = [seen.moved(kind, what, epoch).text() for epoch in (early, end)]
            rows.append((f"{KINDS[kind]}, {name}", *moved, seen.between_starts(kind, what).text()))
    return Table(
        "How far kernels move from their start: ‖K − K₀‖ / ‖K₀‖",
        ("kernel", f"epoch {early}", f"epoch {end}", "another start"),
        tuple(rows),
        "Trace-normalised kernels. The last column is the distance between the starts of two runs. A stationary kernel "
        "would have 0 before it.",
    )


def _artefacts(seen: CircleRuns) -> Table:
    rows = []
    for kind, name in KINDS.items():
        whole, high = seen.halves(kind, "error", seen.end(kind))[0], seen.artefacts(kind)
        rows.append((name, str(seen.end(kind)), whole.text(), high.text(), seen.inner_artefacts(kind).text()))
    return Table(
        "Artefacts of high frequency: energy of the error on the smooth half at the end",
        (
            *("network", "epoch", "all frequencies, training points"),
            *(f"frequency ≥ {seen.rough}, four times the points", "without a tenth at each end, training points"),
        ),
        tuple(rows),
        f"By a cosine transform over the smooth half. {seen.rough} is the frequency of the target on the rough half, "
        "which begins at both ends: an error that stays only there is in the fourth column and not in the fifth.",
    )


def _by_layer(seen: CircleRuns, read: Callable[[int], list[Sample]]) -> tuple[tuple[str, ...], ...]:
    """A row for each layer with the samples that ``read`` finds there."""
    return tuple((f"{layer + 1}", *(sample.text() for sample in read(layer))) for layer in range(seen.layers))


def _tilts(seen: CircleRuns) -> Table:
    start, _, end = seen.shown

    def tilts(layer: int) -> list[Sample]:
        return [seen.tilt(kind, epoch, layer) for kind in LEARNERS for epoch in (start, end)]

    return Table(
        "How much more of the smooth half a gate is open on, by layer",
        ("layer", "ReLU, start", "ReLU, end", "DLGN, start", "DLGN, end"),
        _by_layer(seen, tilts),
        "The share of the smooth half on which a gate is open minus the same for the rough half, mean over the layer's "
        "gates: 1 is exactly the smooth half, 0 no preference, −1 the rough half.",
    )


def _normals(seen: CircleRuns) -> Table:
    start, _, end = seen.shown

    def gathered(layer: int) -> list[Sample]:
        return [part for epoch in (start, end) for part in seen.concentration(epoch, layer)]

    return Table(
        "How much the DLGN's half-spaces point one way, by layer",
        ("layer", "concentration, start", "to the smooth half, start", "concentration, end", "to it, end"),
        _by_layer(seen, gathered),
        "Concentration is the length of the mean of a layer's unit normals: 0 if they cancel, 1 if all are one "
        "direction. The next column is how far that mean points to the middle of the smooth half, −1 to 1.",
    )


def _hard(seen: CircleRuns) -> Table:
    """What hard gates would cost networks with soft gates; half-spaces and paths always use hard gates."""
    rows = []
    for kind in ("dlgn", *FROZEN):
        epoch = seen.end(kind)
        errors = [seen.sample(kind, epoch, lambda look, part=part: look["hardening"][part]).text() for part in (0, 1)]
        rows.append((KINDS[kind], str(epoch), *errors))
    return Table(
        "DLGNs with the gates that learnt, and with hard ones: mean squared error at the end",
        ("network", "epoch", "as trained", "hard gates"),
        tuple(rows),
        "Half-spaces, paths and overlaps belong to the network with hard gates. Where its error is much larger, "
        "they do not describe the learnt function.",
    )
