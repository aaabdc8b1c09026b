"""docs/support.md says what the code does: ``make support`` writes it."""

import pytest
from tools import support

from tests.third_party.networks import BY_NAME, NETWORKS

pytest.importorskip("pytorchcv")

ROWS = support.known(support.PAGE.read_text(encoding="utf-8"))
BAD = ("refused: ", "too slow", "too large", "fails: ", "differs")
# A residual network, one with tied weights, one with squeeze-and-excitation, and one with bounded gates.
QUICK, SLOW = "resnet20_cifar10 sharesnet18 seresnet10".split(), "mobilenetv2_wd4 nin_cifar10 darknet_tiny".split()
RECOMPUTED = [
    pytest.param(name, capability, marks=pytest.mark.slow if name in SLOW or capability == "regions" else ())
    for name in QUICK + SLOW
    for capability in support.CAPABILITIES
]


def test_the_page_lists_the_networks_of_the_list():
    assert list(ROWS) == [network.name for network in sorted(NETWORKS, key=lambda n: not n.is_piecewise_linear)]


def test_every_cell_is_an_outcome():
    cells = {row[key] for row in ROWS.values() for key in support.COLUMNS}
    assert [cell for cell in cells if cell not in support.GOOD and not cell.startswith(BAD)] == []


def test_the_counts_are_those_of_the_rows():
    text = support.PAGE.read_text(encoding="utf-8")
    kept = [line for line in support.page(ROWS).splitlines() if not line.startswith(("Made by", "pytorchcv"))]
    assert [line for line in text.splitlines() if not line.startswith(("Made by", "pytorchcv"))] == kept


@pytest.mark.parametrize(("name", "capability"), RECOMPUTED)
@pytest.mark.usefixtures("single_precision")
def test_outcomes_on_the_page_are_those_of_the_code(name, capability):
    assert support.outcome(BY_NAME[name], capability) == ROWS[name][capability], f"make support NETWORKS={name}"


def test_a_refusal_is_named_by_its_operation():
    assert support.short("Net cannot be taken apart:\n  - mul in module 'se' at a.py:1 `x * w`") == "mul"
    assert support.short("module 'a.b' (Block), operation softmax: softmax is not a gate") == "softmax"
    assert support.short("no path-kernel rule for: module 'a' (GELU) at a.py:1 `f(x)`; add") == "GELU"
    assert support.short("no gates found in Net: it has no ReLU") == "no gates found"
    assert support.short("module 'a' (Conv2d): it uses the same weight as module 'b'") == "tied weights"
    assert support.short("examples are missing; pass x") == "examples are missing"
