import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, TooManyPathsError, UnsupportedModelError
from gatelab.models import mlp
from gatelab.network.chain import dense_chain
from gatelab.paths import PathIndex
from gatelab.paths.features import path_activity, path_gradients
from tests import zoo
from tests.references import explicit

WIDTHS = st.lists(st.integers(1, 4), min_size=3, max_size=5)


@settings(max_examples=40)
@given(widths=st.lists(st.integers(1, 4), min_size=2, max_size=5), bias=st.booleans())
def test_index_and_units_are_inverse(widths, bias):
    index = PathIndex(tuple(widths[:-1]), (bias,) * (len(widths) - 1))
    located = [index.locate(number) for number in range(index.count)]
    assert len(set(located)) == index.count
    assert [index.number(units, start) for start, units in located] == list(range(index.count))


def test_numbering_is_that_of_the_papers_figure():
    index = PathIndex((2, 3, 3), (False,) * 3)
    assert list(index) == list(itertools.product(range(2), range(3), range(3)))


@pytest.mark.parametrize("call", [lambda i: i.units(18), lambda i: i.units(-1), lambda i: i.number((0, 0, 3)),
                                  lambda i: i.number((0, 0)), lambda i: i.number((0, 0), start=1)])  # fmt: skip
def test_paths_that_do_not_exist_are_refused(call):
    with pytest.raises(InputError):
        call(PathIndex((2, 3, 3), (False,) * 3))


@settings(deadline=None, max_examples=12)
@given(
    widths=st.lists(st.integers(1, 4), min_size=3, max_size=5),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_features_times_values_is_the_listed_path_sum(widths, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    model = mlp(widths, generator=generator)
    x = scale * torch.randn(2, widths[0], generator=generator)
    pattern = gl.capture_gates(model, x)
    weights = [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
    listed = torch.stack(
        [explicit.path_sum(weights, [pattern[name][s].double() for name in pattern], x[s]) for s in range(2)]
    )
    product = gl.neural_path_features(model, x) @ gl.neural_path_values(model)
    torch.testing.assert_close(product, listed, rtol=1e-10, atol=1e-12 * scale)
    torch.testing.assert_close(listed, model(x).detach(), rtol=1e-10, atol=1e-12 * scale)


def test_activity_is_where_all_gates_are_open():
    model, x = mlp([3, 4, 5, 1]), torch.randn(6, 3)
    pattern = gl.capture_gates(model, x)
    activity = path_activity(model, x)
    for number, (_, i, j) in enumerate(PathIndex((3, 4, 5), (False,) * 3)):
        assert torch.equal(activity[:, number], pattern["1"][:, i] & pattern["3"][:, j])


def test_gradients_of_values_by_finite_differences():
    model = nn.Sequential(
        *(nn.Linear(2, 2), nn.LeakyReLU(0.1), nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2))
    )
    gradients = path_gradients(model)
    parameters = [p for _, p in model.named_parameters()]
    column = 0
    for parameter in parameters:
        flat = parameter.data.view(-1)
        for position in range(flat.numel()):
            values = []
            for shift in (1e-5, -2e-5):
                flat[position] += shift
                values.append(gl.neural_path_values(model))
            flat[position] += 1e-5
            # v is multilinear in the weights, so a central difference is exact up to rounding / 1e-5.
            measured = (values[0] - values[1]) / 2e-5
            torch.testing.assert_close(gradients[..., column], measured, rtol=1e-8, atol=1e-9)
            column += 1
    assert column == gradients.shape[-1]


def test_too_many_paths_are_counted_before_anything_is_allocated():
    model = mlp([784, 128, 128, 128, 128, 10], dtype=torch.float32)
    with pytest.raises(TooManyPathsError, match=r"210,453,397,504 paths.*neural_path_kernel"):
        gl.neural_path_values(model)
    with pytest.raises(TooManyPathsError, match="limit of 100"):
        gl.neural_path_features(mlp([5, 5, 5, 1]), torch.randn(1, 5), limit=100)


@pytest.mark.parametrize(
    "model", [mlp([3, 6, 5, 2]), zoo.leaky(), zoo.Functional(), mlp([2, 3, 3, 3, 3, 1], bias=True)]
)
@pytest.mark.parametrize("output", [None, 0])
def test_top_paths_are_the_largest_of_all(model, output):
    model = model.double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    index = PathIndex.of(dense_chain(model))
    x = torch.randn(index.widths[0])
    contributions = gl.neural_path_features(model, x[None])[0][:, None] * gl.neural_path_values(model)
    columns = contributions if output is None else contributions[:, output : output + 1]
    ordered = columns.abs().flatten().sort(descending=True).values
    for k in (1, 7, ordered.numel() + 5):
        paths = gl.top_paths(model, x, k, output)
        expected = ordered[ordered > 0][:k]
        assert [abs(path.contribution) for path in paths] == pytest.approx(expected.tolist(), rel=1e-12)
        assert len({(path.start, path.units, path.output) for path in paths}) == len(paths)
        for path in paths:
            listed = contributions[index.number(path.units, path.start), path.output].item()
            assert path.contribution == pytest.approx(listed, rel=1e-12)


def test_all_top_paths_sum_to_the_output():
    model, x = mlp([3, 4, 4, 1], bias=True), torch.randn(1, 3)
    total = sum(path.contribution for path in gl.top_paths(model, x, 10_000))
    assert total == pytest.approx(model(x).item(), rel=1e-10)


def test_top_paths_of_a_wide_network_enumerate_nothing():
    model = mlp([784, 128, 128, 128, 128, 10], bias=True, dtype=torch.float32)
    paths = gl.top_paths(model, torch.randn(784, dtype=torch.float32), 100)
    sizes = [abs(path.contribution) for path in paths]
    assert len(paths) == 100
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.randn(3), 0), "k is 0"),
        ((torch.randn(4), 1), "give one example that fits.*4 and 3x4"),
        ((torch.randn(2, 3), 1), r"2 examples; give one example, e.g. x\[0\]"),
        ((torch.randn(3), 1, 2), "output 2 does not exist"),
        ((torch.full((3,), float("nan")), 1), "NaN"),
    ],
)
def test_bad_requests_for_top_paths(arguments, message):
    with pytest.raises(InputError, match=message):
        gl.top_paths(mlp([3, 4, 1]), *(a.double() if isinstance(a, torch.Tensor) else a for a in arguments))


def test_features_that_do_not_exist_are_refused():
    with pytest.raises(UnsupportedModelError, match="Sigmoid"):
        gl.neural_path_features(
            nn.Sequential(nn.Conv1d(1, 2, 2), nn.Sigmoid(), nn.Conv1d(2, 1, 2)), torch.randn(2, 1, 4)
        )
    with pytest.raises(InputError, match="4 values per example, but the first layer takes 3"):
        gl.neural_path_features(mlp([3, 4, 1]), torch.randn(2, 4))
