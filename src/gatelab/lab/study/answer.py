"""The answer of a study in a sentence or two, with an interval, and words for rows that surprise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, DEPENDENT, OWN, stage_name
from gatelab.lab.verdicts import Claim, Outcome, Sample, equivalent, greater, share_of_gap

_SAME = {True: 0.01, False: 0.02}  # margins of "as good as", of shares of right answers and of R²


@dataclass(frozen=True)
class Answer:
    """What a study found.

    Attributes:
        text: for people.
        decided: whether the runs answer the question.
        share: how much of the gain is in the gates; None if there is no gain to divide.
        interval: its 95 % interval.
    """

    text: str
    decided: bool
    share: float | None = None
    interval: tuple[float, float] | None = None


def main_claims(own: Sample, control: Sample, learnt: Sample) -> tuple[Claim, ...]:
    """The statements that the answer rests on; runs share seeds."""
    margin = _SAME[own.percent]
    return (
        Claim("The network beats value networks with random gates", greater(own, control, paired=True)),
        Claim("Its trained gates, with fresh values, beat random gates", greater(learnt, control, paired=True)),
        Claim("The network beats its trained gates with fresh values", greater(own, learnt, paired=True)),
        Claim(
            "Its trained gates with fresh values are as good as the network",
            equivalent(learnt, own, margin, paired=True),
        ),
    )


def answer(own: Sample, control: Sample, learnt: Sample, claims: Sequence[Claim]) -> Answer:
    """Put the answer into words; ``claims`` are :func:`main_claims`, corrected for all claims of the report.

    It is decided if the network gains something over random gates, and its trained gates do, too, or clearly do not.
    """
    gain, held, _, _ = claims
    numbers = (
        f"The network has {_mean(own)}, its trained gates with values learnt from scratch {_mean(learnt)}, random "
        f"gates {_mean(control)} (means of {own.runs} runs after the last epoch)."
    )
    if own.runs < 2:
        return Answer(f"One run cannot tell an effect from chance; repeat with more runs. {numbers}", decided=False)
    if gain.outcome is Outcome.FAILS:
        return Answer(
            f"No answer: random gates do better than the network itself, so there is no gain to divide. {numbers}",
            decided=False,
        )
    found = share_of_gap(learnt, control, own)
    if gain.outcome is Outcome.UNDECIDED or found is None:
        return Answer(
            "No answer: these runs do not show that learnt gates gain anything over random ones, so there is nothing "
            f"to divide between gates and values. {numbers}{_more(gain, 'show a gain of this size')}",
            decided=False,
        )
    share, (low, high) = found
    return Answer(
        f"{_verdict(claims, low, high)} The network gains {_difference(own, control)} over random gates, and "
        f"{_percent(share)} of that gain (95 % interval {_percent(low)} to {_percent(high)}) stays when only its gates "
        f"are kept and all values are learnt anew. {numbers}",
        held.outcome is not Outcome.UNDECIDED,
        share,
        (low, high),
    )


def _verdict(claims: Sequence[Claim], low: float, high: float) -> str:
    """The part of the gain that is in the gates, in words."""
    _, held, lost, same = (claim.outcome for claim in claims)
    if held is Outcome.FAILS:
        return "None of it is in the gates: alone, they serve worse than random ones."
    if held is Outcome.UNDECIDED:
        return f"Not decided: these runs do not tell whether any of it is in the gates.{_more(claims[1], 'decide it')}"
    if same is Outcome.HOLDS or lost is Outcome.FAILS:
        return "All of it is in the gates."
    if low >= 0.5:
        return "Most of it is in the gates."
    if high <= 0.5:
        return "Some of it is in the gates, less than half."
    return "About half of it is in the gates." if high <= 1 else "Some of it is in the gates, perhaps all."


def _more(claim: Claim, what: str) -> str:
    needed = claim.verdict.runs_needed
    return "" if needed is None or needed > 1000 else f" About {needed} runs would {what}."


def _mean(sample: Sample) -> str:
    return f"{sample.number(sample.mean)}{' %' if sample.percent else ''}"


def _difference(a: Sample, b: Sample) -> str:
    return f"{a.number(a.mean - b.mean)}{' points' if a.percent else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def surprises(config: StudyConfig, last: Mapping[str, Sample], parameters: int) -> list[str]:
    """Sentences about rows that a reader would not expect; each rests on a paired t test at 5 %, uncorrected."""
    own, control, learnt = last[OWN], last[CONTROL], last[stage_name(config, config.epochs)]
    found = []
    if own.runs < 2:
        return found
    if _beats(control, own):
        found.append(
            f"Random gates ({_mean(control)}) beat the network itself ({_mean(own)}). Fixed gates leave a problem that "
            "is easier to optimise; with so little training, or so few examples, that can outweigh what gates learn."
        )
    if _beats(learnt, own):
        found.append(
            f"Fresh values on the trained gates ({_mean(learnt)}) beat the network itself ({_mean(own)}): they had the "
            "final gates from their first step on, while the network's own values had to follow gates that moved."
        )
    if _beats(control, learnt):
        found.append(
            f"Random gates ({_mean(control)}) beat the trained ones ({_mean(learnt)}) under fresh values: what these "
            "gates have learnt serves the network's own values, not others."
        )
    decoupled = last.get(DECOUPLED_ROW)
    if decoupled is not None and _beats(decoupled, own):
        found.append(
            f"Decoupled gates ({_mean(decoupled)}) beat the network itself ({_mean(own)}). They are no part of it: "
            f"that network has two sets of weights, about {2 * parameters:,} instead of {parameters:,}, and soft "
            "gates, through which gradients reach all of them."
        )
    dependent = last.get(DEPENDENT)
    if dependent is not None and (_beats(dependent, control) or _beats(control, dependent)):
        better, worse = (dependent, control) if dependent.mean > control.mean else (control, dependent)
        which = "that are the values' own" if better is dependent else "independent of the values"
        found.append(
            f"It matters where random gates come from: those {which} reach {_mean(better)}, the others {_mean(worse)}."
        )
    early = [(e, last[stage_name(config, e)]) for e in config.stage_epochs() if 0 < e < config.epochs]
    best = max(early, key=lambda pair: pair[1].mean, default=None)
    if best is not None and _beats(best[1], learnt):
        found.append(
            f"Gates fixed after {best[0]} of {config.epochs} epochs ({_mean(best[1])}) serve fresh values better than "
            f"those of the end ({_mean(learnt)}): later training fitted the gates to their own values, or to noise."
        )
    return found


def _beats(a: Sample, b: Sample) -> bool:
    return greater(a, b, paired=True).outcome is Outcome.HOLDS
