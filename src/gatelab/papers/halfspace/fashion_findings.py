"""halfspace, Figures 7 and 11–16: the tables and claims of the modified Fashion-MNIST."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gatelab.lab.findings import Table
from gatelab.lab.looks import Look
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, all_of, equivalent, greater, larger_ratio
from gatelab.papers.common import numbers

PARTS = ("simple", "complex")
# The quantities observed on both parts: their name, and their factor in figures.
QUANTITIES = {
    "paths": ("active paths", 1.0),
    "diagonal": ("mean of K(x, x)", 1.0),
    "accuracy": ("test accuracy, %", 100.0),
}
MIDDLE = 0.72  # accuracy on the simple part at which the paper shows its kernels a second time
MOMENTS = ("start", "middle", "end")
TRACE = 100.0  # of the class means in Figure 16: its printed diagonals add up to 99.98 and 99.99

# Figure 16(a) and (b), as far as the numbers can be read; each matrix is symmetric. None: not readable.
_X = None
FIGURE16 = {
    "start": (
        (_X, 10.00, 10.01, 10.02, 10.02, _X, 9.98, 9.96, 9.98, 9.97),
        (10.00, 10.02, 9.98, 10.01, 9.99, 9.95, 9.96, 9.95, 9.96, 9.95),
        (10.01, 9.98, 10.04, 10.00, 10.04, 9.95, 9.98, 9.96, 9.99, 9.98),
        (10.02, 10.01, 10.00, 10.04, 10.01, 9.95, 9.98, 9.96, 9.98, 9.97),
        (10.02, 9.99, 10.04, 10.01, 10.05, 9.95, 9.99, 9.96, 9.99, 9.98),
        (_X, 9.95, 9.95, 9.95, 9.95, 9.93, 9.95, 9.94, 9.95, 9.94),
        (9.98, 9.96, 9.98, 9.98, 9.99, 9.95, 9.98, 9.96, 9.97, 9.96),
        (9.96, 9.95, 9.96, 9.96, 9.96, 9.94, 9.96, 9.95, 9.95, 9.95),
        (9.98, 9.96, 9.99, 9.98, 9.99, 9.95, 9.97, 9.95, 9.97, 9.96),
        (9.97, 9.95, 9.98, 9.97, 9.98, 9.94, 9.96, 9.95, 9.96, 9.96),
    ),
    "middle": (
        (15.65, 2.14, 3.02, _X, 2.74, 1.06, -0.36, _X, 1.04, _X),
        (2.14, 23.58, -1.50, 5.21, -0.83, 0.14, -0.62, -0.45, -0.46, -0.60),
        (3.02, -1.50, 11.79, -0.45, 10.34, -0.26, 1.06, -0.27, 1.77, 1.83),
        (_X, 5.21, -0.45, 11.03, 0.31, 0.62, -0.36, -0.41, -0.03, -0.27),
        (2.74, -0.83, 10.34, 0.31, 10.86, -0.11, 1.53, -0.00, 2.15, 2.30),
        (1.06, 0.14, -0.26, 0.62, -0.11, 4.84, 5.24, 5.62, 4.24, 3.00),
        (-0.36, -0.62, 1.06, -0.36, 1.53, 5.24, 6.72, 6.64, 5.49, 4.50),
        (_X, -0.45, -0.27, -0.41, -0.00, 5.62, 6.64, 7.00, 5.32, 4.09),
        (1.04, -0.46, 1.77, -0.03, 2.15, 4.24, 5.49, 5.32, 4.70, 3.96),
        (_X, -0.60, 1.83, -0.27, 2.30, 3.00, 4.50, 4.09, 3.96, 3.82),
    ),
}
Matrix = Sequence[Sequence[float | None]]


class FashionRuns:
    """The observations of one kind of network."""

    def __init__(self, name: str, result: Result):
        self.name = name
        self._seen = result["seen"]
        self.epochs = [entry["epoch"] for entry in self._seen]
        self.final = Sample.last(result["test_accuracy"])
        self.runs = range(len(self._seen[0]["members"]))
        learnt = [self._first_learnt(run) for run in self.runs]
        self.slow_learners = learnt.count(None)
        # When a run has almost learnt the simple part; half-way if it never does.
        self.middles = [len(self._seen) // 2 if place is None else place for place in learnt]

    def _first_learnt(self, run: int) -> int | None:
        accuracies = [entry["members"][run]["accuracy"][0] for entry in self._seen]
        return next((place for place, accuracy in enumerate(accuracies) if accuracy >= MIDDLE), None)

    def looks(self, when: str | int) -> list[Look]:
        """Return each run's observation: by number, or at its start, middle or end."""
        places = {"start": [0] * len(self.runs), "middle": self.middles, "end": [-1] * len(self.runs)}
        chosen = places[when] if isinstance(when, str) else [when] * len(self.runs)
        return [self._seen[place]["members"][run] for run, place in zip(self.runs, chosen, strict=True)]

    @property
    def gaps(self) -> list[Look | None]:
        """What hard gates would cost each run at the end."""
        return [look.get("hardening") for look in self.looks("end")]

    def part(self, what: str, part: int, when: str | int) -> Sample:
        """Return a quantity on a part of the classes, over runs."""
        return Sample(tuple(look[what][part] for look in self.looks(when)), percent=what == "accuracy")

    def classes(self, what: str, when: str) -> Tensor:
        """Return the class means of a kernel over all runs, scaled to the paper's trace."""
        means = [torch.tensor(look[what], dtype=torch.float64) for look in self.looks(when)]
        return torch.stack([TRACE * mean / mean.trace() for mean in means]).mean(dim=0)

    def more_on_simple(self, what: str, when: str | int) -> Verdict:
        """Decide whether a quantity is larger on the simple part."""
        return larger_ratio(self.part(what, 0, when), self.part(what, 1, when))

    def moved(self, what: str) -> Sample:
        """Return the final distance of a kernel's class means from their start, relative to the start."""
        pairs = zip(self.looks("start"), self.looks("end"), strict=True)
        kernels = [[torch.tensor(look[what], dtype=torch.float64) for look in pair] for pair in pairs]
        return numbers(float((end - start).norm() / start.norm()) for start, end in kernels)


def tables(seen: Mapping[str, FashionRuns]) -> tuple[Table, ...]:
    """Return the tables: paths, kernels and accuracies; how far kernels move; Figure 16 beside ours."""
    return (_parts(seen), _moved(seen), *(_figure16(seen["relu"], when) for when in FIGURE16))


def _parts(seen: Mapping[str, FashionRuns]) -> Table:
    rows = [
        (f"{one.name}, {when}", *(one.part(what, part, when).text() for what in QUANTITIES for part in (0, 1)))
        for one in seen.values()
        for when in MOMENTS
    ]
    columns = [f"{what}, {part}" for what in ("active paths", "K(x, x)", "test accuracy, %") for part in PARTS]
    note = f"The middle is each run's first observation with {MIDDLE:.0%} of the simple test images right."
    for one in (one for one in seen.values() if one.slow_learners):
        note += f" {one.slow_learners} runs of {one.name} never got there: their middle is the observation half-way."
    title = "Simple and complex classes, mean ± standard deviation over runs"
    return Table(title, ("network", *columns), tuple(rows), note)


def _moved(seen: Mapping[str, FashionRuns]) -> Table:
    rows = tuple((one.name, *(one.moved(what).text() for what in ("overlap", "tangent"))) for one in seen.values())
    note = "Trace-normalised class means; a stationary kernel would have 0."
    title = "How far kernels end from their start: ‖K − K₀‖ / ‖K₀‖"
    return Table(title, ("network", "overlap kernel", "tangent kernel"), rows, note)


def _figure16(relu: FashionRuns, when: str) -> Table:
    """Our class means of the ReLU network's tangent kernel with the paper's below them."""
    ours, theirs = relu.classes("tangent", when).tolist(), FIGURE16[when]
    rows = []
    for label, (row, printed) in enumerate(zip(ours, theirs, strict=True), start=1):
        rows.append((f"{label}, ours", *(f"{value:.2f}" for value in row)))
        rows.append((f"{label}, paper", *("" if value is None else f"{value:.2f}" for value in printed)))
    letter = "a" if when == "start" else "b"
    return Table(
        f"Figure 16({letter}): the ReLU network's tangent kernel, class by class, at the {when}",
        ("class", *map(str, range(1, 11))),
        tuple(rows),
        f"Means over pairs of classes and over runs, scaled to a trace of {TRACE:g}, as in the paper. Off the diagonal "
        f"their correlation is {agreement(ours, theirs):.3f}. {_ranges(ours, theirs)}",
    )


def agreement(ours: Matrix, theirs: Matrix) -> float:
    """The correlation of two symmetric matrices over the entries below the diagonal that both have."""
    pairs = [
        (a, b)
        for row, (mine, printed) in enumerate(zip(ours, theirs, strict=True))
        for a, b in zip(mine[:row], printed[:row], strict=True)
        if a is not None and b is not None
    ]
    return float(torch.corrcoef(torch.tensor(pairs, dtype=torch.float64).T)[0, 1])


def _ranges(ours: Matrix, theirs: Matrix) -> str:
    ends = [sorted(value for row in matrix for value in row if value is not None) for matrix in (ours, theirs)]
    return "Ours lie between {:.2f} and {:.2f}, the paper's between {:.2f} and {:.2f}.".format(
        *(end for values in ends for end in (values[0], values[-1]))
    )


def claims(seen: Mapping[str, FashionRuns]) -> tuple[Claim, ...]:
    """Decide the paper's claims."""
    made = []
    for one in seen.values():
        for what, text in (("paths", "more paths are active"), ("diagonal", "the tangent kernel's diagonal is larger")):
            for when in ("middle", "end"):
                place = "in the middle" if when == "middle" else "at the end"
                made.append(Claim(f"{one.name}: {text} on the simple part {place}", one.more_on_simple(what, when)))
        looks = [one.more_on_simple("paths", place) for place in range(max(one.middles), len(one.epochs))]
        made.append(Claim(f"{one.name}: the simple part has more paths from the middle to the end", all_of(looks)))
        simple, other = (one.part("accuracy", part, "middle") for part in (0, 1))
        text = f"{one.name}: the simple part is learnt first (accuracies in the middle)"
        made.append(Claim(text, greater(simple, other, paired=True)))
    dlgn, relu = seen["dlgn"], seen["relu"]
    text = f"{dlgn.name} and ReLU are about equally good (within 2 points)"
    return (*made, Claim(text, equivalent(dlgn.final, relu.final, 0.02, paired=True)))
