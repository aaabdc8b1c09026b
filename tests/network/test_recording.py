"""What runs around the operations of a record: modes, hooks, random numbers, and the check of the weights."""

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode

import gatelab as gl
from gatelab.errors import InputError
from gatelab.observe import OwnChance, stand_in


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)).eval()


class Counting(TorchFunctionMode):
    """A user's mode: it counts the functions that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class EntersAMode(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode, self.layers = mode, normed()

    def __deepcopy__(self, memo):  # the stand-in shares the mode
        copied = EntersAMode(self.mode)
        copied.load_state_dict(self.state_dict())
        return copied.eval()

    def forward(self, x):
        with self.mode:
            return self.layers(x)


def test_a_mode_that_forward_enters_sees_what_it_sees_without_a_record():
    model, x = EntersAMode(Counting()).eval(), torch.randn(2, 2)
    model(x)
    plainly, model.mode.seen = set(model.mode.seen), []
    network = gl.read(model, x)
    assert {"linear", "batch_norm", "relu"} <= plainly <= set(model.mode.seen)
    assert [network.operation(node) for node in network.nodes[1:-1]] == ["linear", "batch_norm", "relu", "linear"]
    assert _get_current_function_mode() is None


def test_a_mode_around_the_call_sees_modules_and_stays():
    with Counting() as mode:
        gl.read(normed(), torch.randn(2, 2))
        assert _get_current_function_mode() is mode
    assert {"linear", "batch_norm", "relu"} <= set(mode.seen)


def test_a_module_that_fails_leaves_no_mode_behind():
    with pytest.raises(InputError, match=r"does not take examples of shape \(5,\)"):
        gl.read(normed(), torch.randn(2, 5))
    assert _get_current_function_mode() is None


def test_hooks_of_all_modules_draw_no_numbers_of_the_caller():
    """Torch's own modules run outside the record's mode, which gives chance its own numbers; not with such hooks."""
    model, x, state = normed(), torch.zeros(2, 2), torch.get_rng_state()
    handle = register_module_forward_hook(lambda *_: torch.rand(1) and None)
    try:
        gl.read(model, x)
    finally:
        handle.remove()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_module_that_draws_is_refused():
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.FractionalMaxPool2d(2, output_size=2)).eval()
    x, state = torch.randn(2, 1, 6, 6), torch.get_rng_state()
    with pytest.raises(InputError, match=r"draws random numbers \(rand\)"):
        gl.read(pooled, x)
    assert torch.equal(torch.get_rng_state(), state)


def test_of_two_own_generators_the_inner_one_draws_and_the_outer_one_comes_back():
    state = torch.get_rng_state()
    with OwnChance() as outer:
        first = torch.rand(2)
        with OwnChance() as inner:
            assert _get_current_function_mode() is inner
            assert torch.equal(torch.rand(2), first)  # its own, from the start
        assert _get_current_function_mode() is outer
        assert not torch.equal(torch.rand(2), first)
    assert _get_current_function_mode() is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var", "3.weight"])
@pytest.mark.parametrize("broken", [[torch.nan], [torch.inf], [torch.inf, -torch.inf], [-torch.inf]])
def test_weights_that_are_not_finite_are_named(name, broken):
    model = normed()
    model.state_dict()[name].flatten()[: len(broken)] = torch.tensor(broken)
    with pytest.raises(InputError, match=f"'{name}' holds NaN or infinite values"):
        gl.read(model, torch.randn(2, 2))


def test_weights_of_several_types_are_checked_each():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.extra = normed(), nn.Buffer(torch.ones(1, dtype=torch.float32))

        def forward(self, x):
            return self.layers(x) * self.extra

    model = Mixed().eval()
    assert len(gl.read(model, torch.randn(2, 2)).gates) == 1
    model.extra[0] = torch.nan
    with pytest.raises(InputError, match="'extra' holds NaN"):
        gl.read(model, torch.randn(2, 2))


def test_a_sum_of_finite_weights_may_overflow():
    model = normed()
    with torch.no_grad():
        model[0].weight.fill_(1e308)
        model[1].running_mean.fill_(1e308)
    assert len(gl.read(model, torch.zeros(2, 2)).gates) == 1


def test_a_variance_of_zero_has_an_output_and_a_negative_one_has_not():
    model = normed()
    model[1].running_var[0] = 0
    assert len(gl.read(model, torch.randn(2, 2)).gates) == 1
    model[1].running_var[0] = -1
    with pytest.raises(InputError, match=r"'1.running_var' is negative"):
        gl.read(model, torch.randn(2, 2))


def test_backward_hooks_stay_with_the_model():
    """Their copies have none: neither plain copies nor those of modules that are copied in their own way."""

    class Locked(nn.Linear):
        def __getstate__(self):
            return self.__dict__

    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), Locked(3, 1))
    for module in model.modules():
        module.register_full_backward_hook(lambda *_: None)
        module.register_full_backward_pre_hook(lambda *_: None)
    copied = stand_in(model)
    gl.read(model, torch.randn(2, 2))
    assert [len(module._backward_hooks) + len(module._backward_pre_hooks) for module in model.modules()] == [2] * 4
    assert [len(module._backward_hooks) + len(module._backward_pre_hooks) for module in copied.modules()] == [0] * 4


def test_lists_that_two_attributes_share_are_shared_by_the_copy():
    model = nn.Linear(2, 1)
    model.one = model.other = [1, 2]
    copied = stand_in(model)
    assert copied.one is copied.other
    assert copied.one is not model.one
