import pytest
import torch
from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy import ProjectionTracker, batchnorm_projection_report
from gatelab.hierarchy.batchnorm import batch_norm_backward, batch_norm_jacobian, projection, row_energy, standardise


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_backward_agrees_with_autograd(eps, weighted):
    f, g, scale = torch.randn(9, 4, requires_grad=True), torch.randn(9, 4), torch.rand(4) + 0.5
    weights = torch.rand(9) if weighted else torch.ones(9)
    weights /= weights.sum()
    c1, c0 = scale.clone().requires_grad_(), torch.zeros(4, requires_grad=True)
    output = c1 * standardise(f, weights, eps).values + c0
    expected = torch.autograd.grad((output * g).sum(), [f, c1, c0])
    found = batch_norm_backward(standardise(f.detach(), weights, eps), g, scale, weights if weighted else None)
    for measured, predicted in zip(found, expected, strict=True):
        torch.testing.assert_close(measured, predicted, atol=1e-12, rtol=1e-12)


def test_jacobian_agrees_with_torchs_layer():
    f = torch.randn(7)
    layer = nn.BatchNorm1d(1, eps=1e-300)
    nn.init.constant_(layer.weight, 1.3)
    jacobian = torch.autograd.functional.jacobian(lambda v: layer(v.unsqueeze(1))[:, 0], f)
    torch.testing.assert_close(batch_norm_jacobian(f, 1.3), jacobian, atol=1e-12, rtol=1e-12)


def test_the_projection_is_orthogonal_in_the_weighted_inner_product():
    f, weights = torch.randn(8), torch.rand(8)
    weights /= weights.sum()
    p = projection(f, weights)
    torch.testing.assert_close(p @ p, p)
    metric = torch.diag(weights)
    torch.testing.assert_close(metric @ p, (metric @ p).T)  # self-adjoint: ⟨a, P b⟩ = ⟨P a, b⟩
    removed = torch.stack([f, torch.ones(8)], dim=1)
    torch.testing.assert_close(p @ removed, torch.zeros(8, 2))


def test_energy_is_half_the_squared_norm_of_a_nodes_weights():
    weight = torch.tensor([[3.0, 0.0], [4.0, 2.0]])
    assert row_energy(weight).tolist() == [12.5, 2.0]


def net(inplace=False):
    return nn.Sequential(
        *(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=inplace), nn.Dropout(0.5)),
        *(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=inplace), nn.Linear(6, 1)),
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("inplace", [True, False])
def test_the_report_measures_and_leaves_no_trace(training, inplace):
    model, x, y = net(inplace).train(training), torch.randn(20, 5), torch.randn(20, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    report = batchnorm_projection_report(model, x, lambda out: (out - y).square().mean())
    assert [layer.layer for layer in report] == ["1", "5"]
    assert model.training is training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not model[1]._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    for layer in report:
        assert layer.residual < 1e-10
        assert bool(((layer.removed > 0) & (layer.removed < 1)).all())
        torch.testing.assert_close(layer.removed, layer.mean_share + layer.activation_share)


def test_report_of_one_layer_by_hand():
    """With one layer and a squared loss the incoming gradient is known, and so is the rest after projection."""
    model, x, y = nn.Sequential(nn.BatchNorm1d(2)), torch.randn(11, 2), torch.randn(11, 2)
    (layer,) = batchnorm_projection_report(model, x, lambda out: ((out - y).square()).sum() / 2)
    incoming = model(x).detach() - y
    for channel in range(2):
        left = projection(x[:, channel]) @ incoming[:, channel]
        removed = 1 - left.square().sum() / incoming[:, channel].square().sum()
        assert layer.removed[channel].item() == pytest.approx(removed.item())
        variance = x[:, channel].var(correction=0).item()
        assert layer.leak[channel].item() == pytest.approx(1e-5 / (variance + 1e-5))


def test_convolutions_and_shared_layers():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(torch.relu(self.norm(self.conv(x)))).mean(dim=(2, 3))

    report = batchnorm_projection_report(Shared(), torch.randn(4, 3, 5, 5), lambda out: out.square().sum())
    assert [layer.layer for layer in report] == ["norm", "norm#2"]
    assert max(layer.residual for layer in report) < 1e-10


def test_channels_that_do_not_vary_lose_their_mean_only():
    model, y = nn.Sequential(nn.BatchNorm1d(2)), torch.randn(9, 2)
    x = torch.stack([torch.full((9,), 0.3), torch.randn(9)], dim=1)
    (layer,) = batchnorm_projection_report(model, x, lambda out: (out - y).square().sum())
    assert layer.activation_share[0] == 0
    assert layer.removed[0] == layer.mean_share[0] < 1
    assert layer.leak[0].item() == pytest.approx(1)


def test_epsilon_enters_the_deviation():
    f = torch.randn(9, 2)
    torch.testing.assert_close(standardise(f, eps=0.5).deviation, (f.var(dim=0, correction=0) + 0.5).sqrt())


class PreActivation(nn.Module):
    """A pre-activation block: what batch norm reads also goes around it, and two layers read the last tensor."""

    def __init__(self):
        super().__init__()
        self.stem, self.inner = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.first, self.second, self.third = (nn.BatchNorm2d(3) for _ in range(3))

    def forward(self, x):
        h = self.stem(x)
        h = h + self.inner(torch.relu(self.first(h)))
        return (self.second(h) + 2 * torch.relu(self.third(h))).mean(dim=(2, 3))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x):
        return torch.relu(nn.functional.batch_norm(self.layer(x), self.mean, self.variance, training=self.training))


def frozen_stem():
    stem = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    return nn.Sequential(stem, nn.ReLU(), nn.Linear(4, 2))


FORMS = {
    "pre-activation": (PreActivation, (2, 4, 4), ["first", "second", "third"]),
    "first layer": (lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2), nn.ReLU()), (5,), ["0"]),
    "functional": (Functional, (5,), ["batch_norm"]),
    "frozen stem": (frozen_stem, (5,), ["0.1"]),
    "groups": (lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(inplace=True)), (2, 5, 5), ["1"]),
    "instances": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), nn.ReLU()),
        (2, 6),
        ["1"],
    ),
    "layers": (lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.ReLU()), (7, 5), ["1"]),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_normalisation_is_isolated_and_seen(form, training):
    """What comes back through the layer alone is the projection, whatever goes around it."""
    make, shape, names = FORMS[form]
    model = make().train(training)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = batchnorm_projection_report(model, torch.randn(6, *shape), lambda out: (out - 0.3).square().sum())
    assert [layer.layer for layer in report] == names
    assert max(layer.residual for layer in report) < 1e-10
    assert all(0 < layer.share < 1 and not layer.frozen for layer in report)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_group_by_hand():
    """In each example and group the gradient c ∘ g loses its parts along f and 1."""
    model, x, y = nn.Sequential(nn.GroupNorm(2, 4)), torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    nn.init.normal_(model[0].weight)
    (layer,) = batchnorm_projection_report(model, x, lambda out: (out - y).square().sum() / 2)
    gradient = (model(x).detach() - y) * model[0].weight.detach().view(1, 4, 1)
    f, g = x.view(3, 2, 10), gradient.view(3, 2, 10)
    for group in range(2):
        left = torch.stack([projection(f[n, group]) @ g[n, group] for n in range(3)])
        removed = 1 - left.square().sum() / g[:, group].square().sum()
        assert layer.removed[group].item() == pytest.approx(removed.item(), abs=1e-4)


def test_a_frozen_layer_of_a_network_that_trains_removes_nothing():
    model = net()
    model[1].eval()
    first, second = batchnorm_projection_report(model, torch.randn(9, 5), lambda out: out.square().sum())
    assert first.frozen
    assert float(first.removed.max()) == 0
    assert first.residual < 1e-10
    assert not second.frozen
    assert second.share > 0


def test_a_tracker_follows_training():
    model, x, y = net(), torch.randn(20, 5), torch.randn(20, 1)
    tracker = ProjectionTracker(model, x, lambda out: (out - y).square().mean())
    with pytest.raises(InputError, match="nothing is recorded"):
        tracker.plot()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        found = tracker.record(step)
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
    depth, training = tracker.plot().panels
    assert depth.curves[-1].y == tuple(layer.share for layer in found)
    assert training.curves[1].y[2] == found[1].share
    assert training.curves[0].y[0] != training.curves[0].y[2]


def test_the_energy_of_a_node_with_a_bias():
    weight, bias = torch.tensor([[3.0, 0.0], [4.0, 2.0]]), torch.tensor([2.0, 1.0])
    assert row_energy(weight, bias).tolist() == [14.5, 2.5]


def test_unsupported_models_and_losses_are_refused():
    x = torch.randn(6, 5)
    with pytest.raises(UnsupportedModelError, match="no normalisation layer"):
        batchnorm_projection_report(nn.Linear(5, 1), x, torch.sum)
    with pytest.raises(InputError, match=r"shape \(6, 1\); it must return a scalar"):
        batchnorm_projection_report(net(), x, lambda out: out)
    with pytest.raises(UnsupportedModelError, match="no gradient of the loss reaches it"):
        batchnorm_projection_report(net(), x, lambda out: out.detach().sum().requires_grad_())
    with pytest.raises(InputError, match="its variance is zero and cannot be normalised"):
        standardise(torch.ones(4, 2))
