"""One rule for every verdict: what is claimed, what was measured, and whether chance could explain it.

- ``sample``: a quantity over runs; ``verdict``: :class:`Verdict`, :class:`Claim`, :class:`Check`;
- ``comparisons``: means, by Welch's or the paired t test, equivalence by two one-sided tests;
- ``counts``: shares by the exact binomial test, times that may be censored by an exact rank test;
- ``combined``: statements with "throughout" or "somewhere", and Holm's correction over a report;
- ``fits``: exponents of each run, and shares of a gap by the jackknife; ``power``: how many runs would decide.

A statement *holds* if chance alone would produce such evidence for it in at most 2.5 % of experiments, and *fails* if
chance would produce such evidence against it in at most 2.5 % (beyond each of its bounds, if it has two). Otherwise it
is *not decided*. The error rate of a whole report is 5 %, by Holm's correction.
docs/verdicts.md shows how often each test decides, with and without an effect.
"""

from gatelab.lab.verdicts.combined import all_of, any_of, decided_together
from gatelab.lab.verdicts.comparisons import above, below, equivalent, greater, larger_ratio, near, not_below
from gatelab.lab.verdicts.counts import later, share_above
from gatelab.lab.verdicts.fits import exponents, exponents_of_means, share_of_gap
from gatelab.lab.verdicts.sample import Sample, readable
from gatelab.lab.verdicts.verdict import Check, Claim, Outcome, Side, Verdict, undecided, within

__all__ = [
    "Check",
    "Claim",
    "Outcome",
    "Sample",
    "Side",
    "Verdict",
    "above",
    "all_of",
    "any_of",
    "below",
    "decided_together",
    "equivalent",
    "exponents",
    "exponents_of_means",
    "greater",
    "larger_ratio",
    "later",
    "near",
    "not_below",
    "readable",
    "share_above",
    "share_of_gap",
    "undecided",
    "within",
]
