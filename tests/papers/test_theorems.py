import pytest

from gatelab.errors import InputError
from gatelab.figures import Curve, Plot
from gatelab.lab.theorem import Measurement, TheoremResult
from gatelab.lab.verdicts import Check, Outcome
from gatelab.papers import all_theorems, find_theorems

# These take seconds each; `make docs` measures all rows as well, and fails with a row that does not hold.
LONG = {"npk-3.2", "npk-3.3", "npk-C-sketch", "npk-Eq2", "npk-Eq2-printed"}
THEOREMS = [
    pytest.param(theorem, id=theorem.id, marks=pytest.mark.slow if theorem.id in LONG else ())
    for theorem in all_theorems()
]


@pytest.mark.parametrize("theorem", THEOREMS)
def test_theorem_holds(theorem):
    result = theorem.check(seed=1)
    assert result.measurement.checks
    assert result.outcome is Outcome.HOLDS, [c for c in result.measurement.checks if not c.holds]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("theorem", all_theorems(), ids=lambda theorem: theorem.id)
def test_theorem_holds_for_other_seeds(theorem, seed):
    result = theorem.check(seed)
    assert result.outcome is Outcome.HOLDS, [c for c in result.measurement.checks if not c.holds]


def test_find_by_id_and_by_paper():
    assert [t.id for t in find_theorems("NPK-5.1")] == ["npk-5.1"]
    assert {t.id.split("-")[0] for t in find_theorems("npk")} == {"npk"}
    papers = ("npk", "halfspace", "gdln", "hierarchy")
    assert sum(len(find_theorems(paper)) for paper in papers) == len(all_theorems())
    with pytest.raises(InputError, match=r"perhaps .*npk-5\.1"):
        find_theorems("npk-5.2")


def result(value=0.0) -> TheoremResult:
    plot = Plot("x", "y", (Curve("points", (1.0, 2.0), (1.0, 4.0), error=(0.1, 0.1)),), log=True, diagonal="equal")
    measurement = Measurement((Check("error", value, 1e-10, "an identity"),), plot)
    return TheoremResult("test-1", "Theorem 1", "One is one", measurement, 0, 0.1)


def test_nan_is_no_proof():
    assert result(0.0).outcome is Outcome.HOLDS
    assert result(1.0).outcome is Outcome.FAILS
    assert result(float("nan")).outcome is Outcome.FAILS


def test_figures_draw_what_the_facts_say(tmp_path):
    (axes,) = result().draw().axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"points", "equal"}
    for ending in ("png", "svg"):
        result().save_figure(tmp_path / f"figure.{ending}")
        assert (tmp_path / f"figure.{ending}").stat().st_size > 1000
    with pytest.raises(InputError, match="its suffix must be one of"):
        result().save_figure(tmp_path / "figure.docx")
    with pytest.raises(InputError, match=r"cannot write .*: create the folder .*nowhere first"):
        result().save_figure(tmp_path / "nowhere" / "figure.png")
