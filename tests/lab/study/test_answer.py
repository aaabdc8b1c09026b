"""The answer in words: each verdict has its sentence, and none is given where the runs do not tell."""

from dataclasses import replace

import pytest
import torch

from gatelab.lab.findings import Findings
from gatelab.lab.report.html import page
from gatelab.lab.study.answer import answer, main_claims, surprises
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.figures import dynamics_figures, row_figures
from gatelab.lab.study.preview import control_text
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, DEPENDENT, OWN, stage_name
from gatelab.lab.verdicts import Sample, decided_together, share_of_gap

NOISE = (-0.004, 0.003, 0.001, -0.002, 0.002, 0.0)
OTHER_NOISE = (0.002, -0.003, 0.004, -0.001, 0.0, -0.002)


def sample(mean, noise=NOISE):
    return Sample(tuple(mean + part for part in noise))


def said(own, control, learnt, runs=6, scale=1.0):
    parts = ((own, NOISE), (control, OTHER_NOISE), (learnt, OTHER_NOISE[::-1]))
    samples = [sample(mean, tuple(scale * part for part in noise[:runs])) for mean, noise in parts]
    return answer(*samples, decided_together(main_claims(*samples)), epochs=15, trained=False)


@pytest.mark.parametrize(
    ("own", "control", "learnt", "text", "decided"),
    [
        (0.97, 0.90, 0.985, "All of what the network knows after 15 epochs is in its gates.", True),
        (0.97, 0.90, 0.972, "Nearly all of what the network knows after 15 epochs is in its gates.", True),
        (0.97, 0.90, 0.955, "Most of what the network knows after 15 epochs is in its gates.", True),
        (0.97, 0.90, 0.935, "About half of what the network knows after 15 epochs is in its gates.", True),
        (0.97, 0.90, 0.915, "Less than half of what the network knows after 15 epochs is in its gates.", True),
        (0.92, 0.90, 0.913, "Some of what the network knows after 15 epochs is in its gates; these runs do not", False),
        (0.97, 0.90, 0.8995, "Not decided: these runs do not tell whether any of what the network knows", False),
        (0.97, 0.90, 0.85, "None of what the network knows after 15 epochs is in its gates: alone, they serve", True),
        (0.90, 0.9001, 0.90, "No answer: these runs do not show that the network gains anything", False),
        (0.899, 0.9005, 0.90, "No answer: these runs do not show that the network gains anything", False),
        (0.90, 0.95, 0.90, "No answer: random gates do better than the network itself", False),
    ],
)
def test_every_verdict_has_its_sentence(own, control, learnt, text, decided):
    found = said(own, control, learnt)
    assert found.text.startswith(text)
    assert found.decided is decided
    assert ("runs would" in found.text) == (not decided and own > control)  # none would show a gain that is a loss
    assert (found.share is None) == text.startswith("No answer")
    if found.share is not None:
        assert found.share == pytest.approx((learnt - control) / (own - control), abs=0.08)
        assert found.interval[0] < found.share < found.interval[1]
        assert f"{100 * found.share:.0f} % of that gain (95 % interval" in found.text
        assert "learnt anew, in 15 epochs" in found.text


def test_as_good_as_is_measured_by_the_gain():
    """A gain of 0.7 points of which half is kept: the scores differ by a third of a point, and that is half of it."""
    found = said(0.989, 0.982, 0.9855, scale=0.1)
    assert found.text.startswith("About half of what")
    assert found.share == pytest.approx(0.5, abs=0.1)


def test_one_run_gives_no_answer():
    assert said(0.97, 0.9, 0.95, runs=1).text.startswith("One run cannot tell an effect from chance")


@pytest.mark.parametrize("runs", [3, 5, 16])
def test_the_share_covers_the_truth_as_often_as_it_says(runs, generator):
    """The 95 % interval of the share, over many studies with a true share of 0.7; the noise is that of the digits."""
    covered = []
    for _ in range(400):
        noise = torch.randn(3, runs, generator=generator) * torch.tensor([[0.006], [0.007], [0.005]])
        means = torch.tensor([[0.942], [0.90], [0.96]])
        found = share_of_gap(*(Sample(tuple(row.tolist())) for row in means + noise))
        if found is not None:  # with three runs, a gap of this size does not always show
            covered.append(found[1][0] <= 0.7 <= found[1][1])
    spread = 3 * (0.95 * 0.05 / len(covered)) ** 0.5
    assert 0.95 - spread <= sum(covered) / len(covered) <= 0.95 + spread + 0.01  # the jackknife errs on the safe side


def test_no_green_bar_without_an_answer():
    findings = Findings("A study", "No answer.", decided=False)
    assert 'class="answer open"' in page(findings, {})
    assert 'class="answer"' in page(replace(findings, decided=True), {})


def config(**settings):
    return StudyConfig(runs=6, epochs=10, **settings)


def table(**changed):
    trained = stage_name(config(), 10)
    means = {OWN: 0.95, CONTROL: 0.90, DEPENDENT: 0.90, trained: 0.93, DECOUPLED_ROW: 0.94}
    means |= {stage_name(config(), epoch): 0.92 for epoch in (0, 1, 3)}
    names = {"own": OWN, "control": CONTROL, "dependent": DEPENDENT, "trained": trained, "decoupled": DECOUPLED_ROW,
             "early": stage_name(config(), 3)}  # fmt: skip
    means |= {names[key]: value for key, value in changed.items()}
    return {name: sample(mean, NOISE if place % 2 else OTHER_NOISE) for place, (name, mean) in enumerate(means.items())}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"decoupled": 0.98}, "Decoupled gates (98.00 %) beat the network itself (95.00 %). They are no part of it"),
        ({"trained": 0.98}, "Fresh values on the trained gates (98.0"),
        ({"control": 0.98}, "Random gates (98.0"),
        ({"trained": 0.85}, "beat the trained ones (85.0"),
        ({"dependent": 0.94}, "It matters where random gates come from: those that are the values' own"),
        ({"early": 0.945}, "Gates fixed after 3 of 10 epochs"),
    ],
)
def test_rows_that_surprise_are_explained(changed, text):
    assert not any(text in note for note in surprises(config(), table(), 100))
    assert any(text in note for note in surprises(config(), table(**changed), 100)), surprises(
        config(), table(**changed), 100
    )


@pytest.mark.parametrize(("values", "way"), [((9.0, 4.0, 5.0), "falls from 9 at epoch 0 to 5 at epoch 2"),
                                             ((4.0, 3.0, 9.0), "rises from 4 at epoch 0 to 9 at epoch 2")])  # fmt: skip
def test_captions_say_what_the_curve_shows(values, way):
    records = [{"epoch": epoch, "complexity": value, "tangent": {}} for epoch, value in enumerate(values)]
    (figure,) = dynamics_figures({"network": {"records": records}})
    assert way in figure.caption
    assert f"in between it is lowest at epoch 1, {min(values):g}" in figure.caption
    assert ("unlike in npk" in figure.caption) == way.startswith("rises")


def test_the_control_says_how_it_was_drawn():
    facts = {
        "control": {"how": "4 tensors by rule", "apart": 0.5, "from_own": 0.25},
        "draws_alike": ["a", "b", "c", "d"],
    }
    text = control_text(facts)
    assert "Two draws differ in 50% of all gates, and from the network's in 25%" in text
    assert "gives the same a, b, c, … under every seed" in text


def test_a_peak_between_the_ends_is_told():
    """Gates fixed after 3 epochs do best: neither caption may only speak of the ends."""
    samples = table(early=0.945)
    stages, shares = row_figures(config(), samples, "accuracy", gain=True)[1:3]
    assert "in between it is highest at epoch 3, 94.50 %" in stages.caption
    assert "in between it is highest at epoch 3, 90 %" in shares.caption
    assert "compare with the network after 10 epochs" in shares.caption
    (curve, *levels) = shares.plot.curves
    share, (low, high) = share_of_gap(samples[stage_name(config(), 3)], samples[CONTROL], samples[OWN])
    assert curve.y[2] == pytest.approx(100 * share)
    assert curve.error[2] == pytest.approx(50 * (high - low))
    assert [level.y[0] for level in levels] == [0, 100]
    flat = row_figures(config(), samples, "accuracy", gain=False)  # no gain, no share of it
    assert not any(figure.title.startswith("How much of the gain") for figure in flat)
