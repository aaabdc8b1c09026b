"""Fixed gates that are kept as bits: the same training, and a feature network that runs once."""

import math

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.convert import Regime
from gatelab.data import Dataset, load
from gatelab.lab import TrainConfig, train
from gatelab.lab.channels_last import channels_last
from gatelab.lab.checkpoint import Checkpoint
from gatelab.lab.kept_gates import fixed_gates, keep_open
from gatelab.lab.team import SingleTeam, Team

DIGITS = load("digits").subset(100, 40)
CONFIG = TrainConfig(epochs=3, learning_rate=0.01, batch_size=20)


class Ordinary(SingleTeam):
    """A team that runs its model as it is on every batch."""

    training_answers = Team.training_answers
    test_answers = Team.test_answers


def convolutional(seed):
    options = {"channels": [3, 5], "dense": [7], "generator": torch.Generator().manual_seed(seed)}
    return gl.models.vconv(inputs=(1, 8, 8), **options)


def twin(regime, seed=0, model=convolutional):
    return gl.to_dgn(model(seed), regime, gates_from=None if regime is Regime.FRNPF_DI else model(seed + 9))


@pytest.mark.parametrize("shape", [(3, 13), (3, 16), (2, 5, 3, 3), (2, 8, 4, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_keep_what_is_open(shape, dtype):
    q, value = torch.randn(shape), torch.randn(shape, dtype=dtype).requires_grad_()
    with torch.no_grad():
        value.view(-1)[0] = math.inf
    laid = q.permute(0, 2, 3, 1) if q.ndim == 4 else q
    octets = gl.gates.bits.pack((laid > 0).flatten(1)).view(torch.uint8)
    kept = keep_open(value, octets)
    assert torch.equal(kept, torch.where(q > 0, value, 0.0))
    signal = torch.randn(shape, dtype=dtype)
    (gradient,) = torch.autograd.grad(kept, value, signal)
    assert torch.equal(gradient, torch.where(q > 0, signal, 0.0))


@pytest.mark.parametrize("regime", [None, *Regime])
def test_training_is_that_of_the_ordinary_loop(regime):
    """Same numbers to rounding: histories, weights and the best weights."""
    models = [convolutional(0) if regime is None else twin(regime) for _ in range(2)]
    fast, ordinary = SingleTeam(models[0]), Ordinary(models[1])
    states = [train(team, DIGITS, CONFIG, [4]) for team in (fast, ordinary)]
    for name, epochs in states[1].history.items():
        torch.testing.assert_close(torch.tensor(states[0].history[name]), torch.tensor(epochs), rtol=1e-9, atol=1e-9)
    for name, tensor in ordinary.tensors().items():
        torch.testing.assert_close(fast.tensors()[name], tensor, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(states[0].best[name], states[1].best[name], rtol=1e-7, atol=1e-9)


def test_the_feature_network_runs_once():
    runs = {"feature": 0, "value": 0}
    model = twin(Regime.FLNPF)

    def count(name):
        def hook(_layer, args, _answer):
            runs[name] += len(args[0])

        return hook

    for name in ("feature", "value"):
        model.get_submodule(f"{name}.0").register_forward_hook(count(name))
    train(SingleTeam(model), DIGITS, CONFIG, [0])
    once = len(DIGITS.train_x) + len(DIGITS.test_x)
    # How large a step is, whether it draws, whether it takes this layout, what shapes gates have, whether values run.
    probes = 1 + 2 + 4 * 2 + 1 + 1
    assert runs["feature"] == once + probes
    assert runs["value"] >= CONFIG.epochs * once


def test_training_goes_on_after_a_stop(tmp_path):
    whole = train(SingleTeam(twin(Regime.FRNPF_II)), DIGITS, CONFIG, [1])
    checkpoint = Checkpoint(tmp_path / "c.safetensors")
    train(
        SingleTeam(twin(Regime.FRNPF_II)), DIGITS, CONFIG.model_copy(update={"epochs": 1}), [1], checkpoint=checkpoint
    )
    assert train(SingleTeam(twin(Regime.FRNPF_II)), DIGITS, CONFIG, [1], checkpoint=checkpoint).history == whole.history


def pooled(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 10)).eval()


def leaky(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(72, 10)).eval()


@pytest.mark.parametrize(
    ("regime", "model"),
    [(None, convolutional), (Regime.DNPFL, convolutional), (Regime.FRNPF_DI, pooled), (Regime.FRNPF_DI, leaky)],
    ids=["a ReLU network", "learnt gates", "max-pooling", "leaky gates"],
)
def test_other_gates_are_not_kept(regime, model):
    made = model(0) if regime is None else twin(regime, model=model)
    assert fixed_gates(made, DIGITS) is None
    assert fixed_gates(twin(Regime.FRNPF_DI), DIGITS) is not None


def test_bits_that_do_not_fit_are_not_kept(monkeypatch):
    monkeypatch.setattr("gatelab.lab.kept_gates._MOST_BYTES", 140 * (8 * 64 + 7) / 8 - 1)
    assert fixed_gates(twin(Regime.FRNPF_DI), DIGITS) is None


def test_a_model_that_views_its_images_has_them_as_it_wants_them():
    class Viewing(nn.Linear):
        def forward(self, x):
            return super().forward(x.view(len(x), -1))

    pixels = torch.randint(256, (30, 3, 2, 2), dtype=torch.uint8)
    data = Dataset("dots", "Dots", pixels, torch.arange(30) % 2, pixels, torch.arange(30) % 2, ("a", "b"))
    model = Viewing(12, 2)
    with pytest.raises(RuntimeError, match="view"):
        model(channels_last(data.inputs(pixels)))
    assert train(SingleTeam(model), data, CONFIG, [0]).epoch == CONFIG.epochs


def test_random_layers_draw_what_they_drew():
    """Asking whether a model takes a layout moves no random state."""
    histories = []
    for kind in (SingleTeam, Ordinary):
        torch.manual_seed(2)
        model = nn.Sequential(convolutional(0)[:-1], nn.Dropout(0.5), nn.Linear(7, 10))
        histories.append(train(kind(model), DIGITS, CONFIG, [3]).history)
    torch.testing.assert_close(*histories, rtol=1e-8, atol=1e-8)
