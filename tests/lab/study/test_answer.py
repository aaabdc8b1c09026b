"""The answer in words: each verdict has its sentence, and none is given where the runs do not tell."""

from dataclasses import replace

import pytest

from gatelab.lab.findings import Findings
from gatelab.lab.report.html import page
from gatelab.lab.study.answer import answer, main_claims, surprises
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.figures import dynamics_figures
from gatelab.lab.study.preview import control_text
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, DEPENDENT, OWN, stage_name
from gatelab.lab.verdicts import Sample, decided_together

NOISE = (-0.004, 0.003, 0.001, -0.002, 0.002, 0.0)
OTHER_NOISE = (0.002, -0.003, 0.004, -0.001, 0.0, -0.002)


def sample(mean, noise=NOISE):
    return Sample(tuple(mean + part for part in noise))


def said(own, control, learnt, runs=6):
    samples = [
        Sample(s.values[:runs]) for s in (sample(own), sample(control, OTHER_NOISE), sample(learnt, OTHER_NOISE[::-1]))
    ]
    return answer(*samples, decided_together(main_claims(*samples)))


@pytest.mark.parametrize(
    ("own", "control", "learnt", "text", "decided"),
    [
        (0.97, 0.90, 0.97, "All of it is in the gates.", True),
        (0.97, 0.90, 0.955, "Most of it is in the gates.", True),
        (0.97, 0.90, 0.935, "About half of it is in the gates.", True),
        (0.97, 0.90, 0.915, "Some of it is in the gates, less than half.", True),
        (0.97, 0.90, 0.8995, "Not decided: these runs do not tell whether any of it is in the gates.", False),
        (0.97, 0.90, 0.85, "None of it is in the gates: alone, they serve worse than random ones.", True),
        (0.90, 0.9001, 0.90, "No answer: these runs do not show that learnt gates gain anything", False),
        (0.90, 0.95, 0.90, "No answer: random gates do better than the network itself", False),
    ],
)
def test_every_verdict_has_its_sentence(own, control, learnt, text, decided):
    found = said(own, control, learnt)
    assert found.text.startswith(text)
    assert found.decided is decided
    assert (found.share is None) == text.startswith("No answer")
    if found.share is not None:
        assert found.share == pytest.approx((learnt - control) / (own - control), abs=0.08)
        assert found.interval[0] < found.share < found.interval[1]
        assert f"{100 * found.share:.0f} % of that gain (95 % interval" in found.text


def test_one_run_gives_no_answer():
    assert said(0.97, 0.9, 0.95, runs=1).text.startswith("One run cannot tell an effect from chance")


def test_the_share_covers_the_truth_as_often_as_it_says(generator):
    """The 95 % interval of the share, over many studies of ten runs with a true share of 0.7."""
    import torch

    from gatelab.lab.verdicts import share_of_gap

    covered = 0
    for _ in range(300):
        noise = torch.randn(3, 10, generator=generator) * 0.006
        rows = [
            Sample(tuple(mean + float(part) for part in row))
            for mean, row in zip((0.942, 0.90, 0.96), noise, strict=True)
        ]
        _, (low, high) = share_of_gap(*rows)
        covered += low <= 0.7 <= high
    assert 0.90 <= covered / 300 <= 0.985  # three standard deviations of 300 trials at 95 %


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
    assert ("unlike in npk" in figure.caption) == way.startswith("rises")


def test_the_control_says_how_it_was_drawn():
    facts = {
        "control": {"how": "4 tensors by rule", "apart": 0.5, "from_own": 0.25},
        "draws_alike": ["a", "b", "c", "d"],
    }
    text = control_text(facts)
    assert "Two draws differ in 50% of all gates, and from the network's in 25%" in text
    assert "gives the same a, b, c, … under every seed" in text
