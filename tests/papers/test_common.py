"""What the papers' experiments and theorems share."""

import pytest
import torch

from gatelab.data import load
from gatelab.lab import Claim, FigureFacts, Table
from gatelab.lab.experiment import Config, SeededConfig
from gatelab.lab.training import Loss, Optimiser
from gatelab.lab.verdicts import Sample, within
from gatelab.papers.common import (
    accuracies_over_epochs,
    agrees,
    at_least,
    cells_per_kind,
    dots,
    experiment,
    figure,
    findings,
    first_of_each_class,
    flatness,
    last_gain,
    learning_curves,
    line,
    over,
    power_law,
    runs_of,
    training,
)


class _Settings(Config):
    epochs: int = 3
    learning_rate: float = 0.5
    width: int = 7  # TrainConfig has no such field


def test_an_experiment_trains_by_its_own_settings_and_the_given_ones():
    how = training(_Settings(), loss=Loss.SQUARED, learning_rate=0.25)
    assert (how.epochs, how.learning_rate, how.loss, how.optimiser) == (3, 0.25, Loss.SQUARED, Optimiser.ADAM)


def test_profiles_that_are_not_given_are_the_configuration_itself():
    made = experiment(
        "a", "A", _Settings, lambda _: [], lambda *_: {}, lambda *_: findings("", ""), smoke={"epochs": 1}
    )
    assert list(made.profiles) == ["smoke", "quick", "paper"]
    assert made.configure("smoke", {}) == _Settings(epochs=1, smoke=True)
    assert made.configure("quick", {}) == made.configure("paper", {}) == _Settings()


def test_each_part_of_findings_goes_where_its_kind_belongs():
    table, claim = Table("t", ("a",), (("1",),)), Claim("it holds", within(0.0, 1.0, ""))
    drawn = figure("f", "x", "y", [line("l", (1, 2), (3, 4))], "seen", log=True)
    found = findings("title", "answer", "first note", claim, drawn, table, "second note")
    assert (found.tables, found.figures, found.claims) == ((table,), (drawn,), (claim,))
    assert found.notes == ("first note", "second note")
    assert isinstance(drawn, FigureFacts)
    assert drawn.plot.log


def test_cells_of_kinds_and_their_results():
    cells = cells_per_kind(SeededConfig(runs=2, seed=1), "a", "ab", weight=2.0)
    assert [cell.name for cell in cells] == ["a, run 0", "a, run 1", "ab, run 0", "ab, run 1"]
    assert cells[3].parameters == {"kind": "ab", "seed": 1001}
    results = {cell.name: {"values": [place, 10 * place]} for place, cell in enumerate(cells)}
    assert runs_of("a", results) == [{"values": [0, 0]}, {"values": [1, 10]}]
    samples = over(runs_of("ab", results), 2, lambda run, place: run["values"][place])
    assert [sample.values for sample in samples] == [(2, 3), (20, 30)]
    assert not samples[0].percent


def test_the_first_examples_of_each_class():
    data = load("digits")
    probes, labels = first_of_each_class(data, data.test_x, data.test_y, 2)
    assert labels.tolist() == [label for label in range(10) for _ in range(2)]
    first = (data.test_y == 0).nonzero()[0]
    torch.testing.assert_close(probes[:1], data.inputs(data.test_x[first]))


def test_curves_take_numbers_and_tensors_of_any_shape():
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert dots("", square, square.T).y == (1.0, 3.0, 2.0, 4.0)
    assert line("", range(2), [5, 6]).x == (0.0, 1.0)


def test_a_power_law_begins_at_the_first_measured_value():
    measured, ideal = power_law("x", "y", (1, 2, 4), (8.0, 4.0, 2.0), -2, "1/x²").curves
    assert measured.label == "measured, exponent -1.00"
    assert ideal.y == pytest.approx((8.0, 2.0, 0.5))


def test_checks_hold_up_to_their_tolerance_and_not_beyond():
    one = torch.ones(1)
    assert agrees("", 1.01 * one, one, 0.02, "").holds
    assert not agrees("", 1.03 * one, one, 0.02, "").holds
    assert at_least("", 2.0, 2.0, "").holds
    assert not at_least("", 1.9, 2.0, "").holds


def test_a_curve_gains_what_its_last_fifth_is_above_the_fifth_before():
    flat, rising = [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4], [float(k) for k in range(10)]
    assert last_gain([flat, rising, [0.5]]).values == (0, 2, 0)


def test_a_table_names_the_curves_that_are_not_flat_yet():
    flat, rising, falling = Sample((0.004, -0.002)), Sample((0.02, 0.01)), Sample((-0.03, -0.01))
    assert flatness({"DLN": flat}).endswith("All curves are flat: they change by less than 1 point.")
    assert flatness({"DLN": flat, "ReLU": rising, "FLNPF": falling}).endswith("or more): ReLU, FLNPF.")


def test_accuracies_over_epochs_are_means_over_runs_as_table_and_curve():
    runs = {
        "ReLU": [[0.01 * e for e in range(1, 12)], [0.02 * e for e in range(1, 12)]],
        "DLN": [[0.5] * 11, [0.25] * 11],
    }
    table = accuracies_over_epochs(runs)
    assert table.columns == ("epoch", "1", "3", "5", "7", "9", "11")
    assert table.rows == (("ReLU", "1.5", "4.5", "7.5", "10.5", "13.5", "16.5"), ("DLN", *["37.5"] * 6))
    relu, linear = learning_curves(runs).plot.curves
    assert relu.y == pytest.approx([1.5 * e for e in range(1, 12)])
    low, high = linear.band
    spread = 12.5 * 2**0.5
    assert low == pytest.approx([37.5 - spread] * 11)
    assert high == pytest.approx([37.5 + spread] * 11)
