"""The answer of a study in a sentence or two, with an interval, and words for rows that surprise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, DEPENDENT, OWN, stage_name
from gatelab.lab.verdicts import Claim, Outcome, Sample, Verdict, greater, share_of_gap
from gatelab.printing import counted

_NEARLY_ALL, _HALF = 0.9, 0.5
_ABOUT_HALF = (0.25, 0.75)  # an interval inside is called "about half"


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
    return (
        Claim("The network beats value networks with random gates", greater(own, control, paired=True)),
        Claim("Its trained gates, with fresh values, beat random gates", greater(learnt, control, paired=True)),
        Claim("The network beats its trained gates with fresh values", greater(own, learnt, paired=True)),
    )


def answer(
    own: Sample, control: Sample, learnt: Sample, claims: Sequence[Claim], epochs: int, *, trained: bool
) -> Answer:
    """Put the answer into words.

    It is decided if the network gains something over random gates, and the runs tell whether its trained gates keep
    more or less than half of that gain, about half, or none.

    Args:
        own: the scores of the network.
        control: those of random gates.
        learnt: those of its trained gates under fresh values.
        claims: :func:`main_claims`, corrected for all claims of the report.
        epochs: how long values were trained, and the network unless it was ``trained``.
        trained: whether the network came trained.
    """
    gain = claims[0]
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
        more = _more(gain.verdict, "show a gain of this size") if own.mean > control.mean else ""
        return Answer(
            "No answer: these runs do not show that the network gains anything over random gates, so there is nothing "
            f"to divide between gates and values. {numbers}{more}",
            decided=False,
        )
    share, interval = found
    span = counted(epochs, "epoch")
    known = "the network knows" if trained else f"the network knows after {span}"
    verdict, decided = _verdict(claims, interval, known)
    more = "" if decided or claims[1].outcome is Outcome.UNDECIDED else _more(_more_than_half(own, control, learnt))
    return Answer(
        f"{verdict}{more} The network gains {_difference(own, control)} over random gates, and {percent(share)} of "
        f"that gain ({interval_text(interval)}) stays when only its gates are kept and all values are learnt anew, in "
        f"{span}. {numbers}",
        decided,
        share,
        interval,
    )


def _verdict(claims: Sequence[Claim], interval: tuple[float, float], known: str) -> tuple[str, bool]:
    """The part of the gain that is in the gates, in words, and whether the runs tell it."""
    _, held, lost = (claim.outcome for claim in claims)
    if held is Outcome.FAILS:
        return f"None of what {known} is in its gates: alone, they serve worse than random ones.", True
    if held is Outcome.UNDECIDED:
        more = _more(claims[1].verdict)
        return f"Not decided: these runs do not tell whether any of what {known} is in its gates.{more}", False
    low, high = interval
    amounts = {
        "All": lost is Outcome.FAILS,
        "Nearly all": low >= _NEARLY_ALL,
        "Most": low >= _HALF,
        "Less than half": high <= _HALF,
        "About half": _ABOUT_HALF[0] <= low and high <= _ABOUT_HALF[1],
    }
    amount = next((amount for amount, fits in amounts.items() if fits), None)
    if amount is None:
        return f"Some of what {known} is in its gates; these runs do not tell whether more than half.", False
    return f"{amount} of what {known} is in its gates.", True


def _more_than_half(own: Sample, control: Sample, learnt: Sample) -> Verdict:
    """Whether trained gates keep more than half of the gain: g against (a + r)/2 in each run, by a t test."""
    middle = tuple((a + r) / 2 for a, r in zip(own.values, control.values, strict=True))
    return greater(learnt, Sample(middle, own.percent), paired=True)


def percent(share: float) -> str:
    """Write a share for people."""
    return f"{whole(share)} %"


def whole(share: float) -> int:
    """A share in whole percent; an integer, since minus zero is no number for people."""
    return round(100 * share)


def interval_text(interval: tuple[float, float]) -> str:
    """Write the interval of a share for people."""
    return f"95 % interval {percent(interval[0])} to {percent(interval[1])}"


def _more(verdict: Verdict, what: str = "decide it") -> str:
    needed = verdict.runs_needed
    return "" if needed is None or needed > 1000 else f" About {needed} runs would {what}."


def _mean(sample: Sample) -> str:
    return f"{sample.number(sample.mean)}{' %' if sample.percent else ''}"


def _difference(a: Sample, b: Sample) -> str:
    return f"{a.number(a.mean - b.mean)}{' points' if a.percent else ''}"


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
