"""Helpers that several experiments share."""

from collections.abc import Iterable, Iterator

from gatelab.lab.runs import Context
from gatelab.lab.verdicts import Claim, Sample, Verdict


def numbers(values: Iterable[float]) -> Sample:
    """Return several runs of a plain number, not of a share in percent."""
    return Sample(tuple(values), percent=False)


def decided(text: str, holds: bool, evidence: str) -> Claim:
    """Return a claim that one number decides."""
    return Claim(text, Verdict.HOLDS if holds else Verdict.FAILS, evidence)


def steps_with_looks(steps: int, looks: int, context: Context) -> Iterator[tuple[int, bool]]:
    """Yield (step, whether to look) for steps 0 … ``steps``; the last step is a look without training after it."""
    every = max(1, steps // looks)
    for step in range(steps + 1):
        look = step % every == 0 or step == steps
        if look:
            context.tell(step / steps, f"step {step}")
        yield step, look
