import pytest
import torch

from gatelab.errors import InputError, SupportTooLargeError
from gatelab.hierarchy import Teacher, counted_events, exact_events, full_information, given_events, string_fields
from gatelab.hierarchy import events as module
from gatelab.hierarchy.events import sampled_inputs, times
from gatelab.hierarchy.inputs import MarkovChain, Uniform
from gatelab.hierarchy.rules import joint, parity, random_table
from tests.references.hierarchy import joint_probabilities

CHAIN = MarkovChain(5, torch.tensor([0.3, 0.7]), torch.tensor([[0.9, 0.1], [0.4, 0.6]]))


@pytest.fixture
def teacher(generator):
    return Teacher(string_fields(5, [3], [1]), random_table(3, generator), CHAIN)


@pytest.mark.parametrize("limit", [module.DENSE_LIMIT, 0])
def test_probabilities_by_counting_every_input(teacher, monkeypatch, limit):
    monkeypatch.setattr(module, "DENSE_LIMIT", limit)
    events = exact_events(teacher)
    for (parent, child), expected in joint_probabilities(teacher).items():
        matrix, backward = events.matrix(parent, child), events.backward(parent, child)
        assert matrix.is_sparse == (limit == 0)
        torch.testing.assert_close(events.priors[parent], expected.sum(dim=1))
        torch.testing.assert_close(events.priors[child], expected.sum(dim=0))
        torch.testing.assert_close(matrix.to_dense(), expected / expected.sum(dim=1, keepdim=True))
        torch.testing.assert_close(backward.to_dense(), expected / expected.sum(dim=0))
        f, g = torch.randn(matrix.shape[1], 2), torch.randn(matrix.shape[0], 2)
        torch.testing.assert_close(times(matrix, f), matrix.to_dense() @ f)
        torch.testing.assert_close(times(matrix, g, transposed=True), matrix.to_dense().T @ g)


def test_events_that_never_occur_have_empty_rows():
    """With overlapping children only eight of the 4 · 4 combinations are strings."""
    events = exact_events(Teacher(string_fields(3, [2], [1]), joint))
    rows = events.matrix("top", "h1_0").sum(dim=1)
    assert torch.equal(rows > 0, events.priors["top"] > 0)
    assert int((rows > 0).sum()) == 8
    assert torch.isfinite(events.backward("top", "h1_0")).all()


def test_standard_errors_of_counted_probabilities(teacher, generator):
    exact = exact_events(teacher)
    scores = []
    for _ in range(50):
        counted = counted_events(teacher, teacher.inputs.sample(400, generator))
        assert counted.samples == 400
        difference = counted.matrix("top", "h1_1") - exact.matrix("top", "h1_1")
        p, n = exact.matrix("top", "h1_1"), (counted.samples * counted.priors["top"]).unsqueeze(1)
        inner = (p > 0) & (p < 1) & (n > 0)
        scores.append((difference.square() / (p * (1 - p) / n))[inner].mean())
        assert bool((counted.error("top", "h1_1") >= 0).all())
    # Squared deviations in units of the standard error average one.
    assert torch.stack(scores).mean().item() == pytest.approx(1, abs=0.25)
    assert exact.error("top", "h1_1").abs().max() == 0


def test_conversion_to_another_precision(teacher):
    events = exact_events(full_information(teacher)).to(dtype=torch.float32)
    assert all(matrix.dtype == torch.float32 for matrix in (*events.matrices.values(), *events.priors.values()))


def test_priors_follow_from_given_probabilities():
    fields = string_fields(2, [])
    p = torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    events = given_events(fields, torch.tensor([0.4, 0.6]), {("top", "x0"): p, ("top", "x1"): p})
    torch.testing.assert_close(events.priors["x0"], torch.tensor([0.26, 0.74]))
    torch.testing.assert_close(events.targets, torch.eye(2))


@pytest.mark.parametrize(
    ("prior", "matrices", "message"),
    [
        ([0.4, 0.6], {"x0": [[0.5, 0.6], [0.1, 0.9]]}, r"P of \('top', 'x0'\): row 0 sums to 1.1"),
        ([0.4, 0.6], {"x0": [[0.5, 0.5], [-0.1, 1.1]]}, r"row 1 sums to 1 with least entry -0.1"),
        ([0.4, 0.5], {"x0": [[0.5, 0.5], [0.1, 0.9]]}, "the prior of 'top'"),
        ([0.4, 0.3, 0.3], {"x0": [[0.5, 0.5], [0.1, 0.9]]}, "has 2 rows, but 'top' takes 3 values"),
        ([0.4, 0.6], {"x1": [[0.5, 0.5], [0.1, 0.9]]}, "the hierarchy has the edges"),
    ],
)
def test_rows_that_are_no_distributions_are_refused(prior, matrices, message):
    fields = string_fields(2, [])
    good = torch.full((len(prior), 2), 0.5)
    given = {("top", child): torch.tensor(matrix) for child, matrix in matrices.items()}
    if "x0" in matrices:
        given["top", "x1"] = good
    with pytest.raises(InputError, match=message):
        given_events(fields, torch.tensor(prior), given)


def test_parents_that_disagree_are_refused():
    fields = string_fields(3, [2], [1])
    equal, skewed = torch.full((2, 2), 0.5), torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    given = dict.fromkeys(fields.edges, equal) | {("h1_1", "x1"): skewed}
    with pytest.raises(InputError, match="the parents of 'x1' disagree"):
        given_events(fields, torch.tensor([0.5, 0.5]), given)


def test_too_many_inputs_are_refused_with_the_alternative():
    teacher = Teacher(string_fields(32, [2, 2, 2, 2]), parity)
    with pytest.raises(SupportTooLargeError, match=r"4,294,967,296 .*counted_events"):
        exact_events(teacher)
    assert counted_events(teacher, Uniform(32).sample(100)).samples == 100
    with pytest.raises(InputError, match="'top' is not a child of 'x0'"):
        counted_events(teacher, Uniform(32).sample(100)).matrix("x0", "top")


def test_given_matrices_may_have_another_precision():
    fields = string_fields(2, [])
    half = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float32)
    edges = {("top", "x0"): half, ("top", "x1"): half.double()}
    events = given_events(fields, torch.tensor([0.5, 0.5], dtype=torch.float64), edges)
    assert {matrix.dtype for matrix in events.matrices.values()} == {torch.float64}


def test_inputs_drawn_from_given_probabilities_have_them(generator):
    """Frequencies of every pair of neighbours lie within five standard errors; leaves of two positions."""
    fields = string_fields(8, [2], leaf=2)
    rows = {edge: torch.rand(3 if edge[0] == "top" else 2, 2 if edge[1][0] == "h" else 4, generator=generator)
            for edge in fields.edges}  # fmt: skip
    edges = {edge: matrix / matrix.sum(dim=1, keepdim=True) for edge, matrix in rows.items()}
    events = given_events(fields, torch.tensor([0.2, 0.3, 0.5]), edges)
    x, z = sampled_inputs(events, 20_000, generator=generator)
    for (parent, child), matrix in edges.items():
        for a in range(len(matrix)):
            own = z[parent] == a
            share = torch.bincount(z[child][own], minlength=matrix.shape[1]) / own.sum()
            error = (matrix[a] * (1 - matrix[a]) / own.sum()).sqrt()
            assert bool(((share - matrix[a]).abs() < 5 * error + 1e-12).all())
    assert torch.equal(z["x1"], 2 * x[:, 2] + x[:, 3])


def test_overlapping_regions_cannot_be_drawn():
    events = exact_events(Teacher(string_fields(3, [2], [1]), parity))
    with pytest.raises(InputError, match="has 2 parents"):
        sampled_inputs(events, 3)
    with pytest.raises(InputError, match="set values="):
        sampled_inputs(exact_events(Teacher(string_fields(2, []), parity)), 3, values=3)
