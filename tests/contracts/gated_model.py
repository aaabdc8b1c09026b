"""The contract of a fully connected gated model: every such model inherits these tests."""

import copy

import pytest
import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.network.chain import dense_chain


class GatedModelContract:
    """Inherit, define ``make()`` (hard gates) and, where gates can be soft, ``soft(beta)`` with the same weights."""

    inputs = 3

    def make(self) -> nn.Module:
        raise AssertionError("a contract test must supply make()")

    def soft(self, beta: float) -> nn.Module | None:
        return None

    def x(self) -> Tensor:
        return torch.randn(6, self.inputs, generator=torch.Generator().manual_seed(1))

    def test_output_is_features_times_values(self):
        model, x = self.make(), self.x()
        torch.testing.assert_close(
            gl.neural_path_features(model, x) @ gl.neural_path_values(model), model(x).detach(), rtol=1e-10, atol=1e-12
        )

    def test_state_dict_round_trip(self):
        model, x = self.make(), self.x()
        expected = model(x)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1.0)
        assert not torch.equal(other(x), expected)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(x), expected)

    def test_soft_gates_become_hard(self):
        x = self.x()
        if self.soft(1.0) is None:
            pytest.skip("this model has hard gates only")
        hard = self.make()(x)
        errors = [(self.soft(beta)(x) - hard).abs().max().item() for beta in (10.0, 1e3, 1e5)]
        assert errors[0] > errors[1] >= errors[2]
        assert errors[2] < 1e-6

    def test_path_kernel_is_gram_of_features(self):
        model, x = self.make(), self.x()
        index = gl.paths.PathIndex.of(dense_chain(model))
        from_input = gl.neural_path_features(model, x)[:, : index.count_from(0)]
        kernel = gl.neural_path_kernel(model, x, normalise=False)
        torch.testing.assert_close(kernel, from_input @ from_input.T, rtol=1e-10, atol=1e-12)

    def test_observation_leaves_no_trace(self):
        model, x = self.make(), self.x()
        before = snapshot(model)
        gl.capture_gates(model, x)
        gl.neural_tangent_kernel(model, x)
        gl.neural_path_kernel(model, x)
        gl.top_paths(model, x[0], 3)
        assert snapshot(model) == before


def snapshot(model: nn.Module) -> dict[str, object]:
    """Return everything about a model that observation must not change, comparable by ==."""
    return {
        "state": {k: v.detach().clone().numpy().tobytes() for k, v in model.state_dict().items()},
        "training": {k: m.training for k, m in model.named_modules()},
        "hooks": {k: (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks),
                      len(m._forward_hooks_always_called)) for k, m in model.named_modules()},
        "grads": {k: (p.grad is None, p.requires_grad, id(p)) for k, p in model.named_parameters()},
        "random": torch.get_rng_state().numpy().tobytes(),
    }  # fmt: skip
