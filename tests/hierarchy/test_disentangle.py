import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import Teacher, exact_events, nearest_disentangled, string_fields
from gatelab.hierarchy.disentangle import (
    disentangled,
    factor_blocks,
    factor_marginals,
    factorised,
    nearest_factorised,
    nearest_separable,
)
from gatelab.hierarchy.inputs import Independent
from gatelab.hierarchy.rules import per_factor


def bits(k):
    """Return the factors of each value, most significant first."""
    return torch.tensor([[(value >> (k - 1 - j)) & 1 for j in range(k)] for value in range(2**k)])


def test_a_disentangled_column_depends_on_its_factor_alone():
    factors = torch.randn(3, 2)
    matrix = disentangled(factors)
    for value, digits in enumerate(bits(3)):
        for j in range(3):
            assert matrix[value, j] == factors[j, digits[j]]
    assert nearest_disentangled(matrix).relative < 1e-15


def test_a_disentangled_gradient_carries_the_other_factors_probabilities():
    factors, p = torch.randn(3, 2), torch.tensor([[0.3, 0.7], [0.5, 0.5], [0.9, 0.1]])
    matrix = disentangled(factors, p)
    for value, digits in enumerate(bits(3)):
        for j in range(3):
            others = torch.stack([p[i, digits[i]] for i in range(3) if i != j]).prod()
            assert matrix[value, j].item() == pytest.approx((factors[j, digits[j]] * others).item())
    assert nearest_disentangled(matrix, p).relative < 1e-15


@pytest.mark.parametrize("weighted", [False, True])
def test_nearest_disentangled_agrees_with_least_squares(weighted):
    """Solve least squares over the 2 k free numbers, without projections."""
    given, k = torch.randn(8, 3), 3
    p = torch.rand(k, 2) if weighted else torch.ones(k, 2)
    best = torch.zeros_like(given)
    for j in range(k):
        basis = torch.stack([disentangled(torch.eye(2)[v].expand(k, 2).contiguous(), p)[:, j] for v in range(2)], dim=1)
        best[:, j] = basis @ torch.linalg.lstsq(basis, given[:, j]).solution
    found = nearest_disentangled(given, p if weighted else None)
    torch.testing.assert_close(found.matrix, best)
    assert found.distance == pytest.approx((given - best).norm().item())


def test_separable_weights_keep_their_blocks():
    weight = torch.ones(4, 2)
    found = nearest_separable(weight, [(0, 3), (1,)])
    assert found.matrix.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]
    assert found.distance == pytest.approx(5**0.5)


def test_factorised_probabilities_by_definition():
    first, second = torch.rand(2, 4), torch.rand(2, 2)
    first, second = first / first.sum(dim=1, keepdim=True), second / second.sum(dim=1, keepdim=True)
    matrix = factorised([first, second], [(0, 2), (1,)])
    for a, (a0, a1) in enumerate(bits(2)):
        for b, (b0, b1, b2) in enumerate(bits(3)):
            assert matrix[a, b].item() == pytest.approx((first[a0, 2 * b0 + b2] * second[a1, b1]).item())
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(4))
    blocks = factor_blocks(matrix, [(0, 2), (1,)])
    torch.testing.assert_close(blocks[0], first)
    torch.testing.assert_close(blocks[1], second)
    assert nearest_factorised(matrix, [(0, 2), (1,)]).relative < 1e-15
    assert nearest_factorised(matrix, [(0, 1), (2,)]).relative > 1e-3


def test_separate_factors_of_independent_bits_factorise():
    chances = 0.2 + 0.6 * torch.rand(8, 1)
    teacher = Teacher(
        string_fields(8, [2], leaf=2),
        per_factor(lambda b: b.sum(dim=1) % 2),
        Independent(torch.cat([1 - chances, chances], dim=1)),
    )
    events = exact_events(teacher)
    for parent, child in teacher.fields.edges:
        assert nearest_factorised(events.matrix(parent, child), [(0,), (1,)]).relative < 1e-12
    marginals = factor_marginals(events.priors["h1_0"])
    torch.testing.assert_close(torch.kron(marginals[0], marginals[1]), events.priors["h1_0"])


def test_marginals_of_one_factor():
    assert factor_marginals(torch.tensor([0.2, 0.8])).tolist() == [[0.2, 0.8]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nearest_disentangled(torch.ones(6, 2)), "need a power of two"),
        (lambda: nearest_disentangled(torch.ones(8, 2)), "8 values have 3 binary factors, but there are 2 nodes"),
        (lambda: nearest_separable(torch.ones(4, 2), [(0, 1), (1,)]), "must be disjoint"),
        (lambda: nearest_separable(torch.ones(4, 2), [(0, 1)]), "one for each of 2 columns"),
        (lambda: nearest_separable(torch.ones(2, 2), [(0,), (2,)]), "rows from 0 … 1"),
        (lambda: factorised([torch.ones(2, 2)], [(0, 1)]), r"is \(2, 2\); it must be \(2, 4\)"),
        (lambda: factor_blocks(torch.ones(4, 4), [(0,)]), "1 factors need 2 rows"),
    ],
)
def test_matrices_without_factors_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
