"""Objects print in one line, and as escaped tables in a notebook."""

import torch
from torch import nn

import gatelab as gl
from gatelab.lab import Findings, Table
from gatelab.printing import html_facts, html_table
from gatelab.regions import activation_region, linear_regions_1d, linear_regions_2d

EVIL = "<script>alert('x')</script>"


def _objects():
    torch.manual_seed(0)
    model = gl.models.mlp([2, 8, 8, 1])
    x = torch.randn(5, 2)
    tracker = gl.GateTracker(model, x)
    for step in range(40):
        tracker.records.append(tracker.records[0] if step else tracker.record(step))
    yield gl.capture_gates(model, x)
    yield linear_regions_2d(model)
    yield activation_region(model, x[0])
    yield activation_region(model, x[0]).polyhedron
    yield linear_regions_1d(model, (-1.0, 1.0), origin=x[0], direction=x[1])
    yield next(iter(gl.half_spaces(gl.to_dlgn(model)).values()))
    yield gl.data.load("digits")
    yield tracker
    yield gl.kernels.PathKernel(model)
    yield gl.kernels.OverlapKernel(model)
    yield gl.kernels.TangentKernel(model)
    yield Findings(EVIL, "The answer.", (Table(EVIL, ("a",), ((EVIL,),)),))


def test_one_line_and_a_table():
    for held in _objects():
        line, table = repr(held), held._repr_html_()
        assert "\n" not in line
        assert len(line) < 250, line
        assert "tensor(" not in line
        assert "<script>" not in table, type(held)
        assert table.startswith("<div>")
        assert len(table) < 10_000, type(held)


def test_what_a_line_says():
    assert repr(gl.kernels.PathKernel(nn.Sequential(nn.Linear(2, 1)))).startswith(
        "PathKernel(model=Sequential, normalise=True"
    )
    digits = "1,437 training and 360 test examples of 1×8×8"
    assert repr(gl.data.load("digits")) == f"Dataset(title=digits, examples={digits}, classes=tuple of 10)"
    partition = linear_regions_2d(gl.models.mlp([2, 3, 1]))
    assert f"regions={len(partition):,}" in repr(partition)


def test_everything_is_escaped_and_long_tables_are_cut():
    assert EVIL not in html_facts(EVIL, {EVIL: EVIL})
    table = html_table(EVIL, (EVIL,), [(EVIL,)] + 99 * [(0.123456,)])
    assert EVIL not in table
    assert table.count("<tr>") == 1 + 31
    assert "0.1235" in table
