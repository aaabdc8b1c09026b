"""What does not fit is refused before anything is trained, with the fact, the place and the remedy."""

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.lab.study.control import control_facts
from gatelab.lab.study.source import from_factory, from_trained

pytestmark = pytest.mark.usefixtures("single_precision")
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3


def net(outputs=3, inputs=3):
    return nn.Sequential(nn.Linear(inputs, 5), nn.ReLU(), nn.Linear(5, outputs))


def study(model, train, **settings):
    return gl.study(model, train, epochs=1, runs=2, progress=False, **settings)


@pytest.mark.parametrize(
    ("model", "train", "settings", "message"),
    [
        (net(inputs=4), (X, Y), {}, r"does not accept your data: examples of shape \(3,\) gave RuntimeError"),
        (net(), (X, Y + 1), {}, r"label \d+ is 3, .*\(2, 3\) for two examples.* it must give \(2, 4\)"),
        (net(), (X, Y - 1), {}, "label 0 is -1"),
        (net(), (X, torch.zeros(40, dtype=torch.int64)), {}, "there is one class only"),
        (net(), (X, Y + 0.5), {}, "label 0 is 0.5, no class, and the network has 3 outputs.*real targets"),
        (net(1), (X, Y + 0.5), {"task": "classification"}, "no class"),
        (net(2), (X, X), {}, "3 real targets for each example, and the network has 2 outputs"),
        (net(1), (X, X[:, 0]), {"loss": "cross-entropy"}, "loss 'cross-entropy' is for classes"),
        (net(1), (X, X[:, 0]), {"metric": "accuracy"}, "metric 'accuracy' does not fit regression; use r2"),
        (net(), (X, Y), {"metric": "r2"}, "metric 'r2' does not fit classification"),
        (net(), (X, Y), {"epoch": 3}, r"there is no setting 'epoch' \(did you mean 'epochs'\?\). Its settings are"),
        (net(), (X, Y), {"loss": "crossentropy"}, "loss: Input should be 'cross-entropy'"),
        (net(), (X, Y), {"amounts": 3}, "(?m)^study: amounts: shares lie between 0 and 1$"),
        (net(), (X, Y), {"gates_from": "elsewhere"}, "gates may come from 'seed', 'shuffled' or 'data'"),
        (net(), (X, Y), {"gates_from": "data"}, "need both gates_from='data' .* and other_data"),
        (net(), (X, Y), {"gates_from": "data", "other_data": (X[:, :2], Y)}, "examples of the same shape only"),
        (net(), (X, Y), {"weights": "w.safetensors"}, "load them into your network"),
        (lambda width: net(), (X, Y), {}, r"needs arguments \(width\)"),
        (lambda: 3, (X, Y), {}, "returned int; make it return an nn.Module"),
        (7, (X, Y), {}, "model is a int"),
        (net().double(), (X, Y), {}, r"'0.weight' is torch.float64, and torch's default is torch.float32"),
        (nn.Sequential(nn.Linear(3, 3), nn.Flatten(0)), (X, Y), {}, r"it must give \(2, k\)"),
    ],
)
def test_refusals(model, train, settings, message, unchecked):
    with pytest.raises(InputError, match=message):
        study(model, train, **settings)


def test_a_network_without_gates_and_values_is_refused():
    curved = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.ReLU(), nn.Linear(5, 3))
    with pytest.raises(UnsupportedModelError, match=r"module '1' \(Tanh\)"):
        study(curved, (X, Y))


def test_files_that_are_not_there_and_columns_that_are_not_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("from torch import nn\ndef net(): return nn.Linear(3, 3)\n")
    (tmp_path / "trees.csv").write_text("a,b,c,kind\n1,2,3,ash\n4,5,6,birch\n")
    with pytest.raises(InputError, match=r"^there is no file w.safetensors; give the file with the network's weights"):
        study("net.py:net", "digits", weights="w.safetensors")
    with pytest.raises(InputError, match=r"^trees.csv: name the column with the labels, with --label or label="):
        study("net.py:net", "trees.csv")


def test_whole_numbers_as_floats_are_classes_for_several_outputs():
    """As a CSV gives them."""
    found = study(net(), (X, Y.double().numpy()), kernels="off", decoupled=False, dependent=False)
    assert found.metric == "accuracy"


# The control must be random, whatever the factory does.
TRAINED = net()


def seeds_itself():
    torch.manual_seed(7)
    return net()


def loads_weights():
    made = net()
    made.load_state_dict(TRAINED.state_dict())
    return made


def loads_a_part():
    made = net()
    made[0].load_state_dict(TRAINED[0].state_dict())
    return made


@pytest.mark.parametrize(
    ("factory", "alike"),
    [
        (net, ()),
        (seeds_itself, ("0.weight", "0.bias", "2.weight", "2.bias")),
        (loads_weights, ("0.weight", "0.bias", "2.weight", "2.bias")),
        (loads_a_part, ("0.weight", "0.bias")),
    ],
)
def test_the_control_is_random_whatever_the_factory_does(factory, alike):
    source = from_factory("net", factory)
    assert source.draws_alike == alike
    first, second, own = (gl.capture_gates(m, X) for m in (source.control(0), source.control(1), source.template))
    facts = control_facts(source, X, 0)
    for one, other, share in ((first, second, facts["apart"]), (first, own, facts["from_own"])):
        differ = float((one["1"] != other["1"]).double().mean())
        assert differ == pytest.approx(share)
        assert differ > 0.1
    fresh = [source.fresh(seed)[0].weight for seed in (0, 1, 0)]
    assert not torch.equal(fresh[0], fresh[1])
    assert torch.equal(fresh[0], fresh[2])
    assert not torch.equal(fresh[0], source.start(0)[0].weight)


class Sparse(nn.Sequential):
    """A start of its own: orthogonal weights, and biases that keep most gates closed."""

    def __init__(self):
        super().__init__(*net())
        nn.init.orthogonal_(self[0].weight)
        nn.init.constant_(self[0].bias, -1.0)


def draws_with_numpy():
    made = net()
    with torch.no_grad():
        made[0].weight.copy_(torch.from_numpy(np.random.normal(size=(5, 3))))  # noqa: NPY002  as users do
    return made


def draws_without_a_seed():
    made = net()
    with torch.no_grad():
        made[0].weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(5, 3))))
    return made


def test_control_and_values_start_as_the_users_networks_do():
    """A factory that draws all weights anew draws the control, too; it knows how its networks start."""
    for source in (from_factory("Sparse", Sparse), from_trained("Sparse", net().eval(), Sparse)):
        for drawn in (source.control(0), source.fresh(0)):
            assert torch.equal(drawn[0].bias, torch.full((5,), -1.0))
            torch.testing.assert_close(drawn[0].weight.mT @ drawn[0].weight, torch.eye(3))
        assert not torch.equal(source.control(0)[0].weight, source.fresh(0)[0].weight)
        assert "4 tensors by the network's factory, under another seed" in control_facts(source, X, 0)["how"]


def test_one_seed_gives_one_network_whatever_the_factory_draws_with():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    seeded, unseeded = (from_factory("net", make) for make in (draws_with_numpy, draws_without_a_seed))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert seeded.draw is not None
    assert unseeded.draw is None  # gatelab draws itself: rows must share the values they start from
    for source in (seeded, unseeded):
        assert torch.equal(source.fresh(3)[0].weight, source.fresh(3)[0].weight)
        assert not torch.equal(source.fresh(3)[0].weight, source.fresh(4)[0].weight)


def test_constant_weights_are_no_draw():
    def zeros():
        made = net()
        nn.init.zeros_(made[0].weight)
        return made

    facts = control_facts(from_factory("zeros", zeros), X, 0)
    assert facts["apart"] > 0.1
    assert "own rule" in facts["how"]


def test_batch_norms_of_the_control_have_seen_the_data():
    """A network trained with steps of size zero: random weights, but statistics of the examples."""

    def normalised():
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))

    shifted = 3 * X + 10
    source = from_factory("normalised", normalised).with_examples(shifted)
    drawn, how = source.control_draw(0)
    signal = drawn[0](shifted)
    torch.testing.assert_close(drawn[1].running_mean, signal.mean(dim=0))
    torch.testing.assert_close(drawn[1].running_var, signal.var(dim=0))
    assert how.endswith("and 1 batch norms by the statistics of training examples")
    assert not drawn.training
    assert drawn[1].momentum == 0.1
    assert torch.equal(source.fresh(0)[1].running_mean, torch.zeros(5))  # values learn theirs


def test_a_network_that_cannot_be_copied_is_refused_with_a_remedy():
    from torch.nn.utils import weight_norm

    with pytest.warns(FutureWarning):
        old = nn.Sequential(weight_norm(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 3))
    old(X)
    with pytest.raises(UnsupportedModelError, match=r"Use torch.nn.utils.parametrizations.weight_norm"):
        study(old, (X, Y))


def test_a_control_that_cannot_be_drawn_apart_is_refused():
    """Weights in a buffer: nothing draws them anew, so all gates would be the network's own."""

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(5, 3))
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(torch.relu(nn.functional.linear(x, self.weight)))

    with pytest.raises(InputError, match=r"differ in only 0.00% of all gates, so the control would be none"):
        control_facts(from_trained("Fixed", Fixed().eval()), X, 0)


def test_numpy_labels_and_named_classes_reach_the_report():
    labels = np.array(["ash", "birch", "cedar"])[Y.numpy()]
    found = study(net(), (X, labels), kernels="off", decoupled=False, dependent=False)
    assert any("ash = 0, birch = 1, cedar = 2" in note for note in found.notes)
