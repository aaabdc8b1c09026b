"""Path regions, Figure 8, Figure 16, and the tables' curves."""

import pytest
import torch
from pydantic import ValidationError

from gatelab.gates import HardGate
from gatelab.lab.verdicts import Sample
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.papers.halfspace.fashion_findings import FIGURE16, TRACE, agreement
from gatelab.papers.halfspace.figure1 import jumping_network
from gatelab.papers.halfspace.figure8 import PATHS, clipped, illustrate, value_text
from gatelab.papers.halfspace.path_regions import PathRegionsConfig, draw_paths, look
from gatelab.papers.halfspace.tables import ResidualConfig, Table1Config
from gatelab.papers.halfspace.tables_findings import table_findings
from gatelab.regions import linear_regions_2d


def strips():
    """A ReLU network whose second layer is open where |x₁| > ½; unit 2 of the first layer is open everywhere."""
    net = mlp([2, 3, 1, 1], bias=True, dtype=torch.float64)
    net[0].weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]).double()
    net[0].bias.data = torch.tensor([0.0, 0.0, 1.0]).double()
    net[2].weight.data, net[2].bias.data = torch.tensor([[1.0, 1.0, 0.0]]).double(), torch.tensor([-0.5]).double()
    return net


def test_regions_of_paths_of_networks_that_are_known():
    config, generator = PathRegionsConfig(paths=60), torch.Generator().manual_seed(0)
    seen = look(strips(), config, generator, picture=True)
    # Two strips for paths through unit 2, one for paths through unit 0 or 1; half of the drawn paths are of each kind.
    assert 1.2 < seen["components"] < 1.8
    assert seen["connected"] == pytest.approx(2 - seen["components"])
    assert seen["scattered"][0] == 2
    assert seen["convex"] == pytest.approx(1.0)
    jumping = look(jumping_network(-0.1), config, generator, picture=False)
    assert (jumping["connected"], jumping["components"], jumping["convex"]) == (1.0, 1.0, pytest.approx(1.0))
    dlgn = DeepLinearlyGatedNetwork([2, 6, 6, 6, 1], gate=HardGate(), generator=generator)
    found = look(dlgn, config, generator, picture=False)
    assert found["components"] == 1.0
    assert found["convex"] == pytest.approx(1.0, abs=1e-9)
    assert found["polygons"] > 1


def test_paths_are_drawn_among_open_units():
    partition = linear_regions_2d(strips())
    paths = draw_paths(partition, 50, torch.Generator().manual_seed(1))
    assert paths.shape == (50, 2)
    assert all(bool(partition.along(tuple(path)).any()) for path in paths.tolist())
    closed = strips()
    closed[2].bias.data.fill_(-99.0)
    assert len(draw_paths(linear_regions_2d(closed), 5, torch.Generator())) == 0


@pytest.mark.parametrize("piecewise_constant", [True, False])
def test_the_paths_of_figure_8_add_up_to_the_network(piecewise_constant):
    net = DeepLinearlyGatedNetwork(
        [2, 2, 2, 1],
        gate=HardGate(),
        piecewise_constant=piecewise_constant,
        generator=torch.Generator().manual_seed(4),
    ).double()
    seen = illustrate(net)
    x = torch.rand(50, 2, dtype=torch.float64) * 2 - 1
    inside = torch.zeros(50, len(PATHS), dtype=torch.bool)
    for place, (one, other) in enumerate(PATHS):
        spaces = torch.tensor([seen["half_spaces"][0][one], seen["half_spaces"][1][other]], dtype=torch.float64)
        inside[:, place] = (x @ spaces[:, :2].T + spaces[:, 2] > 0).all(dim=1)
    values = torch.tensor([path["value"] for path in seen["paths"]], dtype=torch.float64)
    each = values[:, 0] + x @ values[:, 1:].T
    torch.testing.assert_close((each * inside).sum(1), net(x)[:, 0].detach(), rtol=0, atol=2e-3)
    assert bool(values[:, 1:].any()) is not piecewise_constant


def test_half_planes_are_clipped_and_values_told():
    assert clipped([1.0, 0.0, 0.0]) == [[0.0, -1.5], [1.5, -1.5], [1.5, 1.5], [0.0, 1.5]]
    assert clipped([0.0, 0.0, -1.0]) == []
    assert len(clipped([0.0, 0.0, 1.0])) == 4
    assert value_text([0.5, 0.0, 0.0]) == "0.50"
    assert value_text([0.0, -1.0, 0.25]) == "−1.00 x₁ + 0.25 x₂"


def test_figure_16_is_read_with_the_trace_that_it_has():
    for matrix in FIGURE16.values():
        rows = [[torch.nan if value is None else value for value in row] for row in matrix]
        numbers = torch.tensor(rows, dtype=torch.float64)
        torch.testing.assert_close(numbers, numbers.T, equal_nan=True)
        diagonal = numbers.diagonal()
        expected = TRACE * diagonal.isfinite().sum() / 10  # one entry cannot be read
        assert diagonal.nansum() == pytest.approx(float(expected), abs=0.1)
        assert agreement(rows, matrix) == pytest.approx(1.0)


def test_a_wide_margin_is_more_than_a_small_one():
    def claims(lead):
        base = (0.40, 0.41, 0.39, 0.40, 0.42)
        ahead = tuple(value + lead + 0.001 * k for k, value in enumerate(base))
        test = {kind: Sample(ahead if kind in ("relu", "dlgn", "pwc") else base) for kind in Table1Config.kinds}
        return {claim.text: claim.outcome.value for claim in Table1Config().claims(test)}

    wide, narrow = claims(0.10), claims(0.02)
    margins = [text for text in wide if "wide margin" in text]
    assert len(margins) == 6
    assert {wide[text] for text in margins} == {"holds"}
    assert {narrow[text] for text in margins} == {"fails"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("relu", "pwc"), ["DLGN-PWC and ReLU are about equally good"]),
        (("dlgn", "frozen", "frozen-soft"), ["DLGN beats frozen gates"]),
        (("dlgn", "dln"), ["DLGN beats the deep linear network"]),
        (("tangent",), []),
    ],
)
def test_some_rows_make_the_claims_that_they_can_decide(rows, expected):
    config = Table1Config(rows=rows, runs=2)
    test = {kind: Sample((0.4, 0.5)) for kind in config.wanted()}
    texts = [claim.text for claim in config.claims(test)]
    assert len(texts) == len(expected)
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True))
    table2 = ResidualConfig(rows=("dlgn",))
    assert table2.claims({"dlgn": Sample((0.4, 0.5))}) == ()


@pytest.mark.parametrize("rows", [(), ("relu", "relu"), ("cnn",)])
def test_rows_are_those_of_the_table(rows):
    with pytest.raises(ValidationError, match="name each row once, from relu, dlgn, pwc"):
        Table1Config(rows=rows)


def test_a_table_of_some_rows():
    config = Table1Config(rows=("dlgn",), runs=1, epochs=2)
    result = {"data": "images", "train": 0.5, "test": 0.4, "test_accuracy": [[0.3, 0.4]], "hardening": None}
    found = table_findings(config, {"dlgn/run 0": result})
    assert [row[0] for row in found.tables[0].rows] == ["DLGN"]
