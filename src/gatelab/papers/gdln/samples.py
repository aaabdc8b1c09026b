"""Samples of plain numbers and their bounds, as the experiments compare them."""

from collections.abc import Iterable

from gatelab.lab.verdicts import Claim, Sample, Verdict


def numbers(values: Iterable[float]) -> Sample:
    """Return one plain number per run as a sample."""
    return Sample(tuple(values), percent=False)


def bound(value: float, runs: int) -> Sample:
    """Return a fixed bound as a sample without spread."""
    return numbers([value] * runs)


def plain_claim(text: str, holds: bool, evidence: str) -> Claim:
    """Return a claim that a plain comparison decides."""
    return Claim(text, Verdict.HOLDS if holds else Verdict.FAILS, evidence)
