"""Gradients of images in the layout of their images: the same numbers, and no ReLU that reads two layouts."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.data import load
from gatelab.data.user_data import UserData
from gatelab.errors import UnsupportedModelError
from gatelab.lab import TrainConfig, train
from gatelab.lab.channels_last import GradientsToo, ImageLayout, channels_last, is_compiled, layout_for
from gatelab.lab.team import SingleTeam

ENDS = {
    "flatten": lambda h: h.flatten(1),
    "torch.flatten": lambda h: torch.flatten(h, 1),
    "nn.Flatten": nn.Flatten(),
    "reshape": lambda h: h.reshape(len(h), -1),
    "torch.reshape": lambda h: torch.reshape(h, (len(h), -1)),
    "global pooling": nn.AdaptiveAvgPool2d(1),
    "global pooling by a function": lambda h: F.adaptive_avg_pool2d(h, output_size=(1, 1)),
    "mean": lambda h: h.mean((2, 3)),
    "torch.mean": lambda h: torch.mean(h, (2, 3)),
}
OTHERS = {
    "pooling to 2 × 2": nn.AdaptiveAvgPool2d(2),
    "mean over channels": lambda h: h.mean(1),
    "flattened pixels": lambda h: h.flatten(2),
}


def images(shape=(3, 4, 6, 5)):
    return channels_last(torch.randn(shape)).requires_grad_()


def gradient(end, x, signal):
    """The gradient of x behind an operation that keeps the layout, and the gradient that this operation received."""
    h = x * 2
    answer = end(h)
    arrived = []
    h.register_hook(arrived.append)  # after the mode's own hook
    (found,) = torch.autograd.grad(answer, x, signal.expand(answer.shape))
    return answer, found, arrived[0]


@pytest.mark.parametrize("name", [*ENDS, *OTHERS])
def test_answers_and_gradients_are_the_same(name):
    end, x = (ENDS | OTHERS)[name], images()
    signal = torch.randn(end(x).shape)
    plain, expected, _ = gradient(end, x, signal)
    with GradientsToo():
        answer, found, _ = gradient(end, x, signal)
    assert torch.equal(answer, plain)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ENDS)
def test_gradients_arrive_in_the_layout_of_their_images(name):
    x, signal = images(), torch.tensor(1.0)
    with GradientsToo():
        _, _, arrived = gradient(ENDS[name], x, signal)
    assert arrived.is_contiguous(memory_format=torch.channels_last)
    _, _, arrived = gradient(ENDS[name], x, signal)
    assert not arrived.is_contiguous(memory_format=torch.channels_last)  # else the mode is no longer needed


@pytest.mark.parametrize("name", ENDS)
def test_second_derivatives(name):
    def answer(x):
        with GradientsToo():
            return ENDS[name](channels_last(x) ** 3)

    assert torch.autograd.gradgradcheck(answer, (images((2, 3, 2, 2)),))


@pytest.mark.parametrize("name", ["flatten", "flattened pixels"])
def test_flattened_images_may_be_overwritten(name):
    """Where flattening is a view, a function of our own in the graph would forbid it."""
    shape = (3, 4, 1, 1) if name == "flatten" else (3, 4, 2, 2)
    x = images(shape)

    def answer():
        h = x * 2
        flat = (ENDS | OTHERS)[name](h)
        assert flat._base is not None or flat.data_ptr() == h.data_ptr()
        return flat.relu_()

    (expected,) = torch.autograd.grad(answer().square().sum(), x)
    with GradientsToo():
        outcome = answer()
    (found,) = torch.autograd.grad(outcome.square().sum(), x)
    assert torch.equal(found, expected)


def hooks_on(h):
    """The number of hooks on h once it was flattened."""
    with GradientsToo():
        h.flatten(1)
    return len(h._backward_hooks or ())


def test_only_images_in_this_layout_whose_gradient_is_asked_for_are_watched():
    assert hooks_on(images() * 2) == 1
    assert hooks_on(images().detach() * 2) == 0
    assert hooks_on(torch.randn(3, 4, 6, 5).requires_grad_() * 2) == 0  # the other layout
    assert hooks_on(torch.randn(3, 4).requires_grad_() * 2) == 0
    assert hooks_on(images()) == 0  # a leaf would gather hooks with every step


def test_a_model_that_views_its_images_does_not_take_the_layout():
    class Viewing(nn.Module):
        def forward(self, x):
            return x.view(len(x), -1)

    assert layout_for(Viewing(), torch.randn(2, 3, 4, 4)) is ImageLayout.GIVEN
    assert layout_for(nn.Flatten(), torch.randn(2, 3, 4, 4)) is ImageLayout.GRADIENTS


class Doubling(torch.autograd.Function):
    """Its backward pass needs a gradient with adjacent pixels."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, *gradients):
        (gradient,) = gradients
        return (2 * gradient.view(len(gradient), -1)).view(gradient.shape)


class Network(nn.Module):
    """A convolution, something that depends on the layout, and a dense layer."""

    def __init__(self, end, features):
        super().__init__()
        self.conv, self.dense, self._end = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(features, 4), end

    def forward(self, x):
        return self.dense(self._end(self.conv(x), self.training))


def _overwritten(h, _training):
    h.flatten(1).clamp_(min=0)  # a view of h if pixels are adjacent, else a copy
    return h.mean((2, 3))


def _viewed_in_training(h, training):
    return h.view(len(h), -1) if training else h.reshape(len(h), -1)


STUBBORN = {
    "a backward pass that views": (lambda: Network(lambda h, _: Doubling.apply(h).mean((2, 3)), 4), ImageLayout.IMAGES),
    "a flattening that is overwritten": (lambda: Network(_overwritten, 4), ImageLayout.GIVEN),
    "a view in training alone": (lambda: Network(_viewed_in_training, 4 * 36), ImageLayout.GIVEN),
}


@pytest.mark.parametrize("name", STUBBORN)
def test_models_that_depend_on_the_layout_train_as_in_a_plain_loop(name):
    torch.manual_seed(0)
    make, layout = STUBBORN[name]
    x, y = torch.randn(12, 3, 6, 6), torch.arange(12) % 4
    model = make()
    assert layout_for(model, x[:2]) is layout
    plain = copy.deepcopy(model)
    config = TrainConfig(epochs=3, batch_size=12, optimiser="sgd", learning_rate=0.1)
    train(SingleTeam(model), UserData("random", x, y, x, y, tuple("abcd")), config, [0])
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        optimiser.step()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


class GrayViewing(nn.Module):
    """One channel lies the same in both layouts, so only kept gates bring the other one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.gate, self.other_gate, self.dense = nn.ReLU(), nn.ReLU(), nn.Linear(6 * 64, 3)

    def forward(self, x):
        h = self.other_gate(self.second(self.gate(self.first(x))))
        return self.dense(h.view(len(h), -1))


def test_kept_gates_do_without_a_layout_that_a_view_refuses():
    torch.manual_seed(0)
    x, y = torch.randn(20, 1, 8, 8), torch.arange(20) % 3
    model = gl.to_dgn(GrayViewing(), gl.Regime.FRNPF_II)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    config = TrainConfig(epochs=1, batch_size=5, optimiser="sgd", learning_rate=0.1)
    train(SingleTeam(model), UserData("random", x, y, x, y, tuple("abc")), config, [0])
    assert any(not torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_weights_computed_by_a_hook_are_refused():
    model = nn.Sequential(nn.Flatten(), torch.nn.utils.weight_norm(nn.Linear(4, 3)))
    model(torch.randn(2, 4))
    with pytest.raises(UnsupportedModelError, match=r"parametrizations\.weight_norm"):
        SingleTeam(model)


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


def in_place(model, backend):
    model.compile(backend=backend)
    return model


COMPILED = {
    "whole": lambda model, backend: torch.compile(model, backend=backend),
    "in place": in_place,
    "a part": lambda model, backend: nn.Sequential(torch.compile(model[:3], backend=backend), *model[3:]),
}


@pytest.mark.filterwarnings("ignore")  # torch.compile warns about itself
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_trains_and_nothing_else_is_compiled(name):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    examples, config = load("digits").subset(40, 20), TrainConfig(epochs=2, batch_size=20)
    plain = small_network()
    train(SingleTeam(plain), examples, config, [0])
    model = COMPILED[name](small_network(), backend)
    assert is_compiled(model)
    assert not is_compiled(plain)
    torch._dynamo.reset()
    train(SingleTeam(model), examples, config, [0])
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(graphs) <= 3  # with derivatives, without them, and for other numbers of examples
