"""The line about hard gates in reports of networks with soft gates."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.data import load
from gatelab.lab.hardening import hardening_look, hardening_note

DIGITS = load("digits")


@pytest.fixture
def soft():
    return nn.Sequential(nn.Flatten(), gl.models.DeepLinearlyGatedNetwork([64, 6, 10], gate=gl.gates.SoftGate(10.0)))


def test_the_look_is_the_gap_on_test_examples(soft):
    soft.train()
    look = hardening_look(soft, DIGITS)
    x, y = DIGITS.inputs(DIGITS.test_x), DIGITS.test_y
    gap = gl.hardening_gap(soft, x, y)
    assert len(x) <= 1000
    assert look["hard_accuracy"] == gap.hard_accuracy
    assert look["soft_loss"] == pytest.approx(gap.soft_loss)
    assert soft.training


def test_a_network_that_diverged_has_no_note(soft):
    with torch.no_grad():
        next(soft.parameters()).fill_(float("nan"))
    assert hardening_note("DLGN", [hardening_look(soft, DIGITS)]) == []


def test_a_note_prints_means_over_runs(soft):
    looks = [hardening_look(soft, DIGITS) for _ in range(2)]
    (note,) = hardening_note("DLGN", looks)
    assert note.startswith("The gates of DLGN are soft.")
    assert f"{100 * looks[0]['hard_accuracy']:.2f}" in note
    assert "outputs agree to" in note


def test_bits_have_no_note():
    relu = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 10)).to(torch.float64)
    assert hardening_note("ReLU", [hardening_look(relu, DIGITS)]) == []
    assert hardening_note("an old run", [None, None]) == []
