"""``gl.explore``: one self-contained page about a network and data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from torch import nn

from gatelab.dynamics import GateTracker
from gatelab.dynamics.records import records_plot
from gatelab.errors import InputError
from gatelab.figures import Plot
from gatelab.lab.explore.facts import ExplorerFacts
from gatelab.lab.explore.gathering import ExplorerGathering, Wishes
from gatelab.lab.explore.page import explorer_page, template
from gatelab.lab.explore.subject import Subject, subject_of, subject_of_run
from gatelab.printing import Brief
from gatelab.work.files import writable, write_durably
from gatelab.work.progress import LogLines, Reporter, Silent


@dataclass(frozen=True, repr=False)
class Exploration(Brief):
    """A page that was written.

    Attributes:
        path: the file.
        size: its bytes.
        contents: what it shows.
    """

    path: Path
    size: int
    contents: ExplorerFacts = field(repr=False)

    def facts(self) -> dict[str, str]:
        """Return what a prompt and a notebook show."""
        shown = self.contents
        return {
            "page": str(self.path),
            "size": f"{self.size / 1e6:.2f} MB",
            "examples": str(len(shown.examples.numbers)),
            "shows": ", ".join(name for name, part in _parts(shown).items() if part) or "the examples alone",
            "left out": "; ".join(f"{gap.part} ({gap.reason})" for gap in shown.omissions) or "nothing",
        }


def _parts(shown: ExplorerFacts) -> dict[str, Sequence[Any]]:
    return {
        "gates": shown.gates,
        "kernels": shown.kernels,
        "strongest paths": shown.paths,
        "planes": shown.planes,
        "half-spaces": shown.normals,
        "timeline": shown.timeline,
    }


def explore(
    model: nn.Module | Callable[[], Any] | str | Path,
    data: Any = None,
    path: str | Path = "explorer.html",
    *,
    test: Any = None,
    weights: str | Path | None = None,
    part: str | None = None,
    examples: int = 60,
    shown: Iterable[SupportsIndex] = (),
    paths: int = 8,
    planes: int = 3,
    triples: Iterable[Iterable[SupportsIndex]] = (),
    most_mb: float = 20.0,
    tracker: GateTracker | None = None,
    run: int = 0,
    force: bool = False,
    progress: bool | Reporter = False,
    **settings: Any,
) -> Exploration:
    """Write one self-contained page about a network: examples, gates, shared paths, kernels, strongest paths, regions.

    Everything on the page is computed here, exactly, with the network in float64 if it runs there. What is not exact
    for this network is left out, and the page says why. The page needs no server and asks for nothing.

    Args:
        model: a network, which is never changed; a function or class that makes one; ``"file.py:factory"``; or the
            directory of a study, which names its network and data.
        data: the data, in any form that :func:`gatelab.study` takes: (x, y), a torch ``Dataset``, a DataFrame, the name
            of a data set, a file; None for the directory of a study.
        path: the file to write.
        test: the test part, if the data have none of their own.
        weights: of ``"file.py:factory"``.
        part: "train" or "test"; if left out, the test part, or all examples if none was set apart.
        examples: number of examples; up to a fifth are the network's mistakes.
        shown: examples that must be there, by their place in the part.
        paths: number of strongest paths of each example.
        planes: number of planes whose exact regions are shown; each goes through three examples.
        triples: planes through these examples, by their places in the part.
        most_mb: the most megabytes (10⁶ bytes) that the page may have; what does not fit is left out.
        tracker: records of the network's training, for the timeline.
        run: of a study's directory, which of its networks.
        force: whether to replace a file that is there.
        progress: whether to write lines to standard error; or a reporter of your own.
        settings: of the data: label, image_size, standardise, task, data_root, seed, train_size, test_size.

    Returns:
        The page's path, its size and its facts.

    Raises:
        InputError: network and data do not fit each other, the page cannot be that small, or the file exists.
        RunError: the file cannot be written, or the directory holds no finished network.

    Example:
        >>> import torch
        >>> from tempfile import TemporaryDirectory
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> x, y = torch.randn(20, 2), torch.arange(20) % 2
        >>> with TemporaryDirectory() as folder:
        ...     page = explore(net, (x, y), Path(folder) / "page.html", examples=6, planes=0)
        ...     page.size < 500_000, len(page.contents.gates), page.path.exists()
        (True, 1, True)
    """
    target = writable(Path(path), force=force)
    reporter = progress if isinstance(progress, Reporter) else LogLines() if progress else Silent()
    if not isinstance(most_mb, int | float) or isinstance(most_mb, bool) or not 0 < most_mb < inf:
        raise InputError(f"most_mb is {most_mb!r}; give the most megabytes of the page, such as 20")
    most, chosen = int(most_mb * 1e6), tuple(map(_triple, triples))
    wishes = Wishes(part, examples, tuple(map(_place, shown)), paths, planes, chosen, most=most)
    subject = _subject(model, data, test, weights, run, settings)
    if tracker is not None:
        plots = records_plot(tracker.records).panels
        subject = replace(subject, timeline=tuple(plot for plot in plots if isinstance(plot, Plot)))
    facts = ExplorerGathering(subject, wishes, len(template().encode()), reporter).facts()
    content = explorer_page(facts, most)
    write_durably(target, content)
    return Exploration(target, len(content), facts)


def _subject(model: Any, data: Any, test: Any, weights: Any, run: int, settings: dict[str, Any]) -> Subject:
    place = Path(model) if isinstance(model, str | Path) else None
    if place is not None and place.is_dir():
        if not (place / "run.json").exists():
            raise InputError(f"{place} is a directory without a run; give that of a study, or file.py:factory")
        if data is not None or test is not None or weights is not None or settings:
            raise InputError(f"{place} is a study, which names its network and data; leave data and weights out")
        return subject_of_run(place, run)
    if data is None:
        raise InputError("there are no data; give the name of a data set, a file, or (x, y)")
    return subject_of(str(model) if isinstance(model, Path) else model, data, test, weights=weights, **settings)


def _triple(given: Iterable[SupportsIndex]) -> tuple[int, int, int]:
    try:
        places = tuple(map(_place, given))
    except TypeError:
        raise InputError(f"triples has {given!r}; give three examples for each plane, such as [(3, 14, 15)]") from None
    if len(places) != 3:
        raise InputError(f"{', '.join(map(str, places))} are {len(places)} examples; three make a plane")
    return places


def _place(given: Any) -> int:
    """The number of an example, which may come from NumPy or torch."""
    try:
        return index(given)
    except TypeError:
        raise InputError(f"{given!r} is not the number of an example; give a whole number") from None
