"""The generated pages of theorems say in words what the code writes as signs."""

import sys
from pathlib import Path

from gatelab.lab.verdicts import Check, Side

sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))

import theorem_pages


def test_a_contrast_reads_as_a_lower_bound():
    line = theorem_pages._check_line(Check("spread", 0.25, 0.01, "the gates differ", Side.AT_LEAST))
    assert line.replace("\N{NO-BREAK SPACE}", " ") == "| spread | 0.25 | ≥ 0.01 | the gates differ |\n"


def test_an_error_reads_as_an_upper_bound_and_does_not_break_at_its_minus():
    line = theorem_pages._check_line(Check("error", 1.54e-9, 1e-6, "rounding"))
    assert line.replace("\N{NO-BREAK SPACE}", " ") == "| error | 1.54e−9 | ≤ 1e−6 | rounding |\n"


def test_symbols_are_those_of_the_statement():
    (said,) = theorem_pages._symbols("gdln", "A ReLU flow with K ≥ 2 slides")
    assert said.startswith("K: ")
    assert any(said.startswith("H: ") for said in theorem_pages._symbols("npk", "ρ_min(K) ≤ ρ_min(H) ρ_max(𝒱)"))
