"""Estimators under scikit-learn's own tools, and with parameters that make no sense."""

import pickle
import threading

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from torch import nn

from gatelab.estimators import PathFeatures, PathKernelClassifier, PathKernelRidge
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError, refusal
from tests.attacks.state.snapshots import compare, snapshot

pytestmark = pytest.mark.attack("estimators")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 4))
Y = (X[:, 0] > 0).astype(int)


def net(inputs: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, 1))


class Locked(nn.Module):
    """A network that cannot be copied."""

    def __init__(self):
        super().__init__()
        self.body, self.lock = net(), threading.Lock()

    def forward(self, x):
        return self.body(x)


PARAMETERS = {
    "no features": lambda: PathFeatures(net(), dim=0).fit(X),
    "features of a fraction": lambda: PathFeatures(net(), dim=2.5).fit(X),
    "features of a text": lambda: PathFeatures(net(), dim="many").fit(X),
    "a batch of nothing": lambda: PathFeatures(net(), dim=8, batch_size=0).fit(X).transform(X),
    "a batch of text": lambda: PathFeatures(net(), dim=8, batch_size="all").fit(X),
    "gates of another kind": lambda: PathFeatures(net(), dim=8, gates="soft").fit(X),
    "a number as network": lambda: PathFeatures(3).fit(X),
    "a network for other data": lambda: PathFeatures(net(3), dim=8).fit(X),
    "a network that cannot be copied": lambda: PathFeatures(Locked(), dim=8).fit(X),
    "a factory that makes nothing": lambda: PathFeatures(lambda _: None, dim=8).fit(X),
    "a factory that makes a class": lambda: PathFeatures(lambda _: nn.Linear, dim=8).fit(X),
    "a shape of text": lambda: PathFeatures(net(), dim=8, input_shape="2x2").fit(X),
    "a shape of a number": lambda: PathFeatures(net(), dim=8, input_shape=4).fit(X),
    "a shape of fractions": lambda: PathFeatures(net(), dim=8, input_shape=(2.0, 2.0)).fit(X),
    "a shape of negative numbers": lambda: PathFeatures(net(), dim=8, input_shape=(-2, -2)).fit(X),
    "a shape of another size": lambda: PathFeatures(net(), dim=8, input_shape=(3, 3)).fit(X),
    "a network with NaN": lambda: PathFeatures(_broken(), dim=8).fit(X),
    "a ridge of text": lambda: PathKernelRidge(net(), ridge="small").fit(X, Y),
    "a negative ridge": lambda: PathKernelRidge(net(), ridge=-1.0).fit(X, Y),
    "a ridge that is NaN": lambda: PathKernelRidge(net(), ridge=float("nan")).fit(X, Y),
    "memory of text": lambda: PathKernelRidge(net(), memory="lots").fit(X, Y),
    "memory of nothing": lambda: PathKernelRidge(net(), memory=-1).fit(X, Y),
    "one class": lambda: PathKernelClassifier(net()).fit(X, np.zeros(24)),
}  # fmt: skip


def _broken() -> nn.Module:
    model = net()
    model[0].weight.data[0, 0] = torch.nan
    return model


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    refusal(PARAMETERS[name])


BAD_X = {
    "NaN": np.where(X > 2, np.nan, X),
    "one axis": X[:, 0],
    "three axes": X[:, :, None],
    "texts": np.full(X.shape, "a"),
    "nothing": X[:0],
    "complex numbers": X * 1j,
}


@pytest.mark.parametrize("kind", [PathFeatures, PathKernelRidge, PathKernelClassifier])
@pytest.mark.parametrize("name", BAD_X)
def test_examples_are_refused_as_by_scikit_learn(name, kind):
    """scikit-learn's own checks speak: a ValueError, as its users expect."""
    with pytest.raises(ValueError, match=r"."):
        kind(net()).fit(BAD_X[name], Y[: len(BAD_X[name])])


@pytest.mark.parametrize("kind", [PathFeatures, PathKernelRidge, PathKernelClassifier])
def test_other_features_after_the_fit(kind):
    fitted = kind(net()).fit(X, Y)
    answer = fitted.transform if kind is PathFeatures else fitted.predict
    with pytest.raises(ValueError, match="4 features"):
        answer(X[:, :3])
    with pytest.raises(NotFittedError):
        (clone(fitted).transform if kind is PathFeatures else clone(fitted).predict)(X)


@pytest.mark.parametrize("kind", [PathFeatures, PathKernelRidge, PathKernelClassifier])
def test_fitting_leaves_the_network_and_random_numbers_alone(kind):
    model, x = net().train(), torch.from_numpy(X.copy())
    state, rows = snapshot(model, x), X.copy()
    fitted = kind(model, random_state=0).fit(X, Y)
    _ = fitted.transform(X) if kind is PathFeatures else fitted.predict(X)
    compare(state, snapshot(model, x))
    if not np.array_equal(rows, X):
        raise ChangedStateError("X was written to")


@pytest.mark.parametrize("kind", [PathFeatures, PathKernelRidge, PathKernelClassifier])
def test_pickled_copied_and_refitted_alike(kind):
    fitted = kind(net(), random_state=0).fit(X, Y)
    call = "transform" if kind is PathFeatures else "predict"
    expected = getattr(fitted, call)(X)
    for other in (pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(X, Y), fitted.fit(X, Y)):
        if not np.array_equal(getattr(other, call)(X), expected):
            raise SilentlyWrongError("another answer")


def test_training_the_network_later_changes_no_fitted_estimator():
    model = net()
    fitted = PathKernelRidge(model).fit(X, Y)
    expected = fitted.predict(X)
    with torch.no_grad():
        model[0].weight.neg_()
    if not np.array_equal(fitted.predict(X), expected):
        raise SilentlyWrongError("it follows the network")


def test_grid_search_finds_the_parameter_that_is_right():
    """A ridge of 1e6 flattens every answer."""
    search = GridSearchCV(PathKernelClassifier(net()), {"ridge": [1e6, 1e-3], "biases": [True]}, cv=3).fit(X, Y)
    if search.best_params_["ridge"] != 1e-3:
        raise SilentlyWrongError(f"{search.cv_results_['mean_test_score']}")


def test_a_store_that_is_something_else(tmp_path):
    (tmp_path / "file").write_text("content")
    refusal(lambda: PathKernelRidge(net(), store=tmp_path / "file").fit(X, Y))
    if (tmp_path / "file").read_text() != "content":
        raise ChangedStateError("a file was written over")
