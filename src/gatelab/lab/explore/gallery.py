"""The examples of the gallery: which ones, what the network answers, and how they look."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gatelab.data.dataset import evenly
from gatelab.errors import InputError
from gatelab.lab.explore.facts import ShownExamples
from gatelab.lab.explore.subject import Subject
from gatelab.observe import batches

LOOKED_AT = 2000  # examples that are run to choose from
_MISTAKES = 5  # one place in five may go to a mistake


Answer = Callable[[Float[Tensor, "n ..."]], Float[Tensor, "n k"]]


@torch.no_grad()
def answers(answer: Answer, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
    """Return what the network answers, a few hundred examples at a time.

    Raises:
        InputError: an answer is not finite.
    """
    found = torch.cat([answer(x[rows]) for rows in batches(len(x), 256)])
    if not bool(torch.isfinite(found).all()):
        raise InputError("the network's output is NaN or infinite for some examples; check its weights and the data")
    return found


def decisions_of(outputs: Float[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """Return the class of each example: the sign of one output, the largest of several."""
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def chosen(labels: Sequence[int], decisions: Sequence[int], count: int) -> list[int]:
    """Choose examples: the classes take turns, first come first; up to a fifth are mistakes, if there are any.

    Example:
        >>> chosen([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], 4)
        [0, 3, 1, 4]
        >>> chosen([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], 5)
        [2, 0, 3, 1, 4]
        >>> chosen([0, 0, 1, 1], [0, 0, 0, 0], 4)  # too few are right for that
        [2, 3, 0, 1]
    """
    wrong = _in_turns([place for place, label in enumerate(labels) if label != decisions[place]], labels)
    right = _in_turns([place for place, label in enumerate(labels) if label == decisions[place]], labels)
    mistakes = wrong[: max(count // _MISTAKES, count - len(right))]
    return mistakes + right[: count - len(mistakes)]


def _in_turns(places: Sequence[int], labels: Sequence[int]) -> list[int]:
    by_class: dict[int, list[int]] = {}
    for place in places:
        by_class.setdefault(labels[place], []).append(place)
    turns = sorted((turn, label, place) for label, own in by_class.items() for turn, place in enumerate(own))
    return [place for _, _, place in turns]


class Gallery:
    """A part of the data, and the examples of it that a page shows.

    Attributes:
        part: the name of the part.
        places: the places of the examples in this part, by class.
        x: the examples.
    """

    def __init__(
        self, subject: Subject, answer: Answer, dtype: torch.dtype, part: str | None, wanted: Sequence[int] = ()
    ):
        """Run the network on up to ``LOOKED_AT`` examples; those ``wanted`` are shown whatever else is.

        Args:
            subject: network and data.
            answer: the network, without a final softmax or sigmoid.
            dtype: of the examples.
            part: the part of the data.
            wanted: places of examples in that part.
        """
        self._subject, self._dtype = subject, dtype
        self.part, self._raw, self._targets = subject.part(part)
        outside = [place for place in wanted if not 0 <= place < len(self._raw)]
        if outside:
            raise InputError(
                f"example {outside[0]} does not exist; the part '{self.part}' of {subject.data.title} has "
                f"{len(self._raw):,}, numbered from 0"
            )
        self._wanted = list(dict.fromkeys(wanted))
        self._looked = evenly(len(self._raw), LOOKED_AT)
        self._decisions: Tensor = torch.zeros(0, dtype=torch.int64)
        if subject.is_classifier:
            self._decisions = decisions_of(answers(answer, self._inputs(self._looked)))
        self.choose(len(self._looked))

    def choose(self, count: int) -> None:
        """Choose the examples; fewer if there are fewer."""
        if self._subject.is_classifier:
            labels = self._targets[self._looked].tolist()
            order = [int(self._looked[k]) for k in chosen(labels, self._decisions.tolist(), count)]
        else:
            order = self._looked[evenly(len(self._looked), count)].tolist()
        kept = [*self._wanted, *(place for place in order if place not in self._wanted)][:count]
        self.places = sorted(kept, key=lambda place: (self._label(place), place))
        self.x = self._inputs(torch.tensor(self.places))

    def _label(self, place: int) -> int:
        return int(self._targets[place]) if self._subject.is_classifier else 0

    def _inputs(self, rows: Int[Tensor, " n"]) -> Tensor:
        return self._subject.data.inputs(self._raw[rows], self._dtype)

    def facts(self, outputs: Float[Tensor, "n k"]) -> ShownExamples:
        """Return the facts; ``outputs`` are those of the examples."""
        is_classifier = self._subject.is_classifier
        labels = tuple(map(self._label, self.places)) if is_classifier else ()
        targets = () if is_classifier else tuple(_text(self._targets[place]) for place in self.places)
        pixels, values, ends = _look(self.x)
        mistakes = int((self._decisions != self._targets[self._looked]).sum()) if is_classifier else None
        return ShownExamples(
            self.part,
            tuple(self.places),
            labels,
            targets,
            tuple(decisions_of(outputs).tolist()) if is_classifier else (),
            outputs.double().numpy(),
            pixels,
            values,
            ends,
            len(self._looked),
            mistakes,
        )


def _text(target: Tensor) -> str:
    return ", ".join(f"{value:.4g}" for value in target.flatten().tolist())


def _look(x: Shaped[Tensor, "n ..."]) -> tuple[np.ndarray | None, np.ndarray | None, tuple[float, float]]:
    """Bytes of images, or the numbers of anything else, and the ends of their range."""
    low, high = float(x.min()), float(x.max())
    image = x.unsqueeze(1) if x.ndim == 3 else x
    if image.ndim == 4 and image.shape[1] in (1, 3) and min(image.shape[2:]) > 1:
        scaled = (image.double() - low) / ((high - low) or 1) * 255
        return scaled.round().to(torch.uint8).numpy(), None, (low, high)
    return None, x.flatten(1).float().numpy(), (low, high)
