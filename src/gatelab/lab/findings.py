"""What an experiment found, as plain facts: an answer, tables, figures, claims. Nothing is drawn or printed here."""

from collections.abc import Sequence
from dataclasses import dataclass

from gatelab.figures import Curve, Panels
from gatelab.figures.facts import Picture
from gatelab.lab.verdicts import Claim, Sample
from gatelab.printing import Brief, html_facts, html_table


@dataclass(frozen=True, repr=False)
class Table(Brief):
    """Rows of cells as text.

    Args:
        title: above the table.
        columns: the heads.
        rows: the first cell names the row.
        note: below the table.

    Example:
        >>> Table("Test accuracy", ("gates", "percent"), (("random", "95.9"), ("learnt", "98.1"))).rows[1]
        ('learnt', '98.1')
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def _repr_html_(self) -> str:
        return html_table(self.title, self.columns, self.rows)


@dataclass(frozen=True)
class FigureFacts:
    """The facts of a figure; :mod:`gatelab.lab.report` draws it.

    Args:
        title: above the figure.
        plot: the curves, matrices or polygons.
        caption: what the reader sees, computed from the data.

    Example:
        >>> from gatelab.figures import Plot
        >>> plot = Plot("epoch", "loss", (Curve("network", (0.0, 1.0), (2.3, 0.4), line=True),))
        >>> FigureFacts("Loss", plot, "The loss falls to 0.4.").plot.curves[0].y
        (2.3, 0.4)
    """

    title: str
    plot: Picture
    caption: str


@dataclass(frozen=True)
class Frame:
    """One moment of an animation."""

    label: str
    panels: Panels


@dataclass(frozen=True)
class Animation:
    """Pictures over time, with a title and a caption."""

    title: str
    caption: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, repr=False)
class Findings(Brief):
    """Everything that a report shows.

    Args:
        title: names the experiment.
        answer: the finding in a sentence or two.
        tables: the numbers.
        figures: the figures' facts.
        claims: the paper's statements, with verdicts.
        notes: differences from the paper, and whatever else a reader must know.
        animations: each becomes a page of its own beside the report.
        decided: whether the answer settles the question; a report shows an unsettled one in a neutral colour.

    Example:
        >>> from gatelab.lab.verdicts import share_above
        >>> claim = Claim("Learnt gates mostly win", share_above(10, 10, 0.5))
        >>> Findings("A comparison", "Learnt gates beat random ones.", claims=(claim,)).claims[0].outcome.value
        'holds'
    """

    title: str
    answer: str
    tables: tuple[Table, ...] = ()
    figures: tuple[FigureFacts, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    animations: tuple[Animation, ...] = ()
    decided: bool = True

    def facts(self) -> dict[str, str]:
        """Return what a prompt shows: the question and the answer; a notebook also shows the tables."""
        return {
            "title": self.title,
            "answer": self.answer,
            "tables": str(len(self.tables)),
            "figures": str(len(self.figures)),
        }

    def _repr_html_(self) -> str:
        tables = (html_table(table.title, table.columns, table.rows) for table in self.tables)
        return html_facts(self.title, {"answer": self.answer}) + "".join(tables)


def percent_curve(label: str, x: Sequence[float], samples: Sequence[Sample]) -> Curve:
    """Points at the means of samples in percent, with their standard deviations."""
    return Curve(label, tuple(x), tuple(100 * s.mean for s in samples), tuple(100 * s.spread for s in samples))


def percent_level(label: str, ends: tuple[float, float], sample: Sample) -> Curve:
    """A horizontal line at the mean of a sample in percent."""
    return Curve(label, ends, (100 * sample.mean,) * 2, line=True)


def mean_curve(label: str, x: Sequence[float], samples: Sequence[Sample]) -> Curve:
    """A line through the means of samples, with their standard errors."""
    return Curve(label, tuple(x), tuple(s.mean for s in samples), tuple(s.error for s in samples), line=True)
