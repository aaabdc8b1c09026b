"""The estimators keep scikit-learn's conventions, and compute what the functions say."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.estimators import PathFeatures, PathKernelClassifier, PathKernelRidge, ridge


@pytest.mark.slow
@parametrize_with_checks([PathFeatures(dim=64), PathKernelRidge(), PathKernelClassifier()])
@pytest.mark.filterwarnings("ignore")  # some checks warn about themselves
def test_conventions(estimator, check):
    """Every check that scikit-learn has, with no exception."""
    check(estimator)


def _problem(n=30):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 4))
    return X, X[:, 0] * X[:, 1], generator.normal(size=(7, 4))


def test_regression_is_kernel_ridge_with_the_path_kernel():
    X, y, new = _problem()
    model = gl.models.mlp([4, 16, 1], bias=True).double()
    fitted = PathKernelRidge(model, ridge=0.01).fit(X, y)
    x, other = torch.from_numpy(X), torch.from_numpy(new)
    fit = gl.kernels.kernel_ridge(gl.neural_path_kernel(model, x), torch.from_numpy(y - y.mean()), 0.01)
    expected = fit.predict(gl.neural_path_kernel(model, other, x))[:, 0].numpy() + y.mean()
    np.testing.assert_allclose(fitted.predict(new), expected, rtol=1e-10)
    with torch.no_grad():
        model[0].weight.neg_()  # the network goes on training
    np.testing.assert_allclose(fitted.predict(new), expected, rtol=1e-10)


def test_a_kernel_that_does_not_fit_is_solved_on_disk(tmp_path, monkeypatch):
    X, y, new = _problem(60)
    inside = PathKernelRidge(random_state=0, ridge=0.01).fit(X, y)
    outside = PathKernelRidge(random_state=0, ridge=0.01, store=tmp_path / "K.zarr").fit(X, y)
    assert inside.in_memory_
    assert not outside.in_memory_
    assert (tmp_path / "K.zarr").is_dir()
    np.testing.assert_allclose(outside.predict(new), inside.predict(new), rtol=1e-3, atol=1e-4)  # a residual of 1e-6
    monkeypatch.setattr(ridge, "memory_budget", lambda _: 60**2)  # what a solution in memory may take
    assert not PathKernelRidge(random_state=0, ridge=0.01).fit(X, y).in_memory_


def test_images_go_through_a_network_as_images():
    X, y = load_digits(return_X_y=True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    fitted = PathKernelClassifier(net, input_shape=(1, 8, 8)).fit(X[:150] / 16, y[:150])
    assert fitted.score(X[150:300] / 16, y[150:300]) > 0.8
    assert fitted.decision_function(X[:3] / 16).shape == (3, 10)
    with pytest.raises(InputError, match=r"input_shape \(1, 7, 7\) holds 49 numbers, X has 64 features"):
        PathKernelClassifier(net, input_shape=(1, 7, 7)).fit(X[:9], y[:9])


def test_features_in_a_pipeline_and_a_grid():
    X, _, _ = _problem(60)
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    made = []

    def network(features):
        made.append(features)
        return gl.models.mlp([features, 32, 1], bias=True, generator=torch.Generator().manual_seed(0))

    pipeline = make_pipeline(PathFeatures(network, dim=128, random_state=0), RidgeClassifier())
    search = GridSearchCV(pipeline, {"pathfeatures__dim": [8, 128], "ridgeclassifier__alpha": [0.1, 10.0]}, cv=2)
    search.fit(X, y)
    assert set(search.best_estimator_.predict(X)) == {"same", "other"}
    assert set(made) == {4}
    features = clone(search.best_estimator_[0]).fit(X)
    once, again = features.transform(X), features.transform(X[::-1])[::-1]
    np.testing.assert_allclose(once, again, rtol=1e-5)
    assert len(features.get_feature_names_out()) == once.shape[1] == features.dim


def test_features_estimate_the_kernel():
    X, _, _ = _problem(20)
    model = gl.models.mlp([4, 64, 1], bias=True).double()
    features = PathFeatures(model, dim=64 * 200, random_state=0).fit_transform(X)
    kernel = gl.neural_path_kernel(model, torch.from_numpy(X)).numpy()
    # 200 networks: a standard error of a tenth of the diagonal's size, at most
    assert np.abs(features @ features.T - kernel).max() < 0.4 * np.diag(kernel).max()
    assert np.corrcoef((features @ features.T).ravel(), kernel.ravel())[0, 1] > 0.99


def test_bad_input():
    X, y, _ = _problem()
    with pytest.raises(InputError, match="y holds one class"):
        PathKernelClassifier().fit(X, np.ones(len(X)))
    with pytest.raises(InputError, match="model is str; give a network"):
        PathKernelRidge("mlp").fit(X, y)
    with pytest.raises(InputError, match=r"returned int; make it return an nn\.Module"):
        PathKernelRidge(lambda features: features).fit(X, y)
    with pytest.raises(InputError, match="dim is 0"):
        PathFeatures(dim=0).fit(X)
