import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, gated
from gatelab.gates.layer import GateKind
from gatelab.network import capture_gates
from tests import zoo
from tests.contracts.gated_model import snapshot


class Wrapped(nn.Module):
    """A linear map, any function, a linear map."""

    def __init__(self, function, width=6):
        super().__init__()
        self.before, self.after = nn.Linear(5, width), nn.Linear(width, 2)
        self.function = function

    def forward(self, x):
        return self.after(self.function(self.before(x)))


ALIASES = {
    "nn.ReLU": nn.ReLU(),
    "nn.ReLU in place": nn.ReLU(inplace=True),
    "F.relu": F.relu,
    "F.relu in place": lambda q: F.relu(q, inplace=True),
    "F.relu_": F.relu_,
    "torch.relu": torch.relu,
    "torch.relu_": torch.relu_,
    "Tensor.relu": lambda q: q.relu(),
    "Tensor.relu_": lambda q: q.relu_(),
    "clamp(min=0)": lambda q: q.clamp(min=0),
    "clamp_": lambda q: q.clamp_(0),
    "clamp_min": lambda q: torch.clamp_min(q, 0),
    "clip": lambda q: q.clip(min=0.0),
    "threshold": lambda q: F.threshold(q, 0, 0),
    "nn.Threshold": nn.Threshold(0, 0),
    "leaky_relu": lambda q: F.leaky_relu(q, 0.2),
    "nn.LeakyReLU": nn.LeakyReLU(0.2),
    "aten": torch.ops.aten.relu,
    "on a view, in place": lambda q: q.view(-1, 6).relu_(),
    "two halves, in place": lambda q: (q[:, :3].relu_(), q[:, 3:].relu_(), q)[2],
}


@pytest.mark.parametrize("alias", ALIASES)
def test_every_way_to_write_a_relu_is_seen(alias):
    model, x = Wrapped(ALIASES[alias]), torch.randn(8, 5)
    expected = model.before(x) > 0
    pattern = capture_gates(model, x)
    assert torch.equal(torch.cat([pattern[name] for name in pattern], dim=1), expected)


def test_gate_is_closed_at_zero():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    nn.init.zeros_(model[0].bias)
    assert not capture_gates(model, torch.zeros(1, 2))["1"].any()


def test_names_are_module_paths_and_call_counts():
    assert capture_gates(zoo.Functional(), torch.randn(2, 5)).layers == ("act", "relu", "clamp")
    assert capture_gates(zoo.Residual(), torch.randn(2, 5)).layers == ("relu", "relu#2")
    assert capture_gates(zoo.Tied(), torch.randn(2, 5)).layers == ("relu", "relu#2", "relu#3")
    nested = nn.Sequential(zoo.Functional(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    assert capture_gates(nested, torch.randn(2, 5)).layers == ("0.act", "0.relu", "0.clamp", "2")


def test_states_along_a_residual_network():
    model, x = zoo.Residual(), torch.randn(9, 5)
    first = model.stem(x)
    second = model.inner(first.relu()) + first.relu()
    pattern = capture_gates(model, x)
    assert torch.equal(pattern["relu"], first > 0)
    assert torch.equal(pattern["relu#2"], second > 0)


def test_convolution_gates_keep_their_axes():
    model, x = zoo.cnn(), torch.randn(5, 4, 8, 8)
    pattern = capture_gates(model, x)
    q = model[:2](x)
    assert pattern["2"].shape == (5, 6, 4, 4)
    assert torch.equal(pattern["2"], q > 0)


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"padding": 1}, {"dilation": 2}, {"ceil_mode": True}])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_pool_gates_pick_the_winner(axes, options):
    pool = getattr(nn, f"MaxPool{axes}d")(3, **options)
    model = nn.Sequential(pool, nn.Flatten())
    x = torch.randn(4, 2, *(8, 7, 9)[:axes])
    gates = capture_gates(model, x)["0"]
    assert torch.equal(gates.sum(-1), torch.ones_like(gates.sum(-1)))
    # Gather every window, tap by tap, and let the gates choose.
    kernel, pad, dilation = 3, options.get("padding", 0), options.get("dilation", 1)
    stride = options.get("stride") or kernel
    padded = F.pad(x, (pad, pad + 9) * axes, value=-torch.inf)
    sizes = pool(x).shape[2:]
    chosen = torch.zeros_like(pool(x))
    for tap, offset in enumerate(torch.cartesian_prod(*[torch.arange(kernel)] * axes).view(-1, axes).tolist()):
        grid = torch.meshgrid(
            *(torch.arange(s) * stride + o * dilation for s, o in zip(sizes, offset, strict=True)), indexing="ij"
        )
        chosen += torch.where(gates[..., tap], padded[(slice(None), slice(None), *grid)], 0)
    assert torch.equal(chosen, pool(x))


def test_adaptive_max_pool_is_a_gate_when_windows_are_equal():
    x = torch.randn(3, 2, 6, 4)
    gates = capture_gates(nn.Sequential(nn.AdaptiveMaxPool2d((3, 1)), nn.Flatten()), x)
    assert gates.layer("0").kind is GateKind.MAX_POOL
    assert gates["0"].shape == (3, 2, 3, 1, 8)
    uneven = nn.Sequential(nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten())
    with pytest.raises(UnsupportedModelError, match=r"module '1' \(AdaptiveMaxPool2d\).*windows.*differ in size"):
        capture_gates(uneven, x)


def test_batches_change_nothing():
    model, x = zoo.cnn(), torch.randn(11, 4, 8, 8)
    assert capture_gates(model, x, batch_size=3) == capture_gates(model, x)


def test_gates_that_do_not_reach_the_output_are_left_out():
    class Auxiliary(zoo.Residual):
        def forward(self, x):
            self.aux = torch.relu(self.inner(self.stem(x)))
            return super().forward(x)

    assert capture_gates(Auxiliary(), torch.randn(2, 5)).layers == ("relu#2", "relu#3")


def test_decoupled_gates_come_from_q_and_not_from_value():
    class Decoupled(zoo.Residual):
        def forward(self, x):
            q = self.stem(x)
            return self.head(gated(self.inner(torch.relu(q)), -q, HardGate()))

    model, x = Decoupled(), torch.randn(7, 5)
    pattern = capture_gates(model, x)
    assert pattern.layers == ("relu", "gated")
    assert torch.equal(pattern["gated"], model.stem(x) < 0)


def test_activation_after_the_last_gate_is_allowed():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softmax(dim=1))
    assert capture_gates(model, torch.randn(2, 5)).layers == ("1",)


OBSTACLES = {
    "tanh": (torch.tanh, r"tanh in module '0'"),
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "softmax": (lambda q: q.softmax(1), "softmax"),
    "layer norm": (lambda q: F.layer_norm(q, (6,)), r"layer_norm in module '0' at test_capture.py:\d+"),
    "group norm": (lambda q: F.group_norm(q, 2), "group_norm"),
    "product of signals": (lambda q: q * q, "mul"),
    "quotient by a signal": (lambda q: 1 / (1 + q), "rdiv|reciprocal"),
    "a ReLU that opens elsewhere": (lambda q: torch.where(q > 0.5, q, 0.0), "gt"),
    "clamp elsewhere": (lambda q: q.clamp(min=-1), "clamp"),
    "abs": (torch.abs, "abs"),
    "maximum": (lambda q: torch.maximum(q, -q), "maximum"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_operations_that_are_not_gates_are_refused_with_name_and_place(name):
    function, message = OBSTACLES[name]
    model = nn.Sequential(Wrapped(function), nn.ReLU(), nn.Linear(2, 1))
    x = torch.randn(4, 5)
    before = snapshot(model)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        capture_gates(model, x)
    assert "comes before the gate '1'" in str(caught.value)
    assert "'0" in str(caught.value)
    assert snapshot(model) == before


def test_control_flow_on_values_is_refused_with_its_line():
    model = nn.Sequential(Wrapped(lambda q: q if q.sum() > 0 else -q), nn.ReLU(), nn.Linear(2, 1))
    with pytest.raises(UnsupportedModelError, match=r"module '0'.*test_capture.py:\d+.*reads the value of a signal"):
        capture_gates(model, torch.randn(4, 5))


def test_number_of_gates_that_depends_on_the_data_is_refused():
    class Deep(zoo.Tied):
        def forward(self, x):
            for _ in range(int(x[0, 0].item() > 0) + 1):
                x = torch.relu(self.layer(x))
            return self.head(x)

    with pytest.raises(UnsupportedModelError, match="reads the value"):
        capture_gates(Deep(), torch.randn(4, 5))


def test_number_of_gates_that_depends_on_the_batch_is_refused():
    class ByCount(zoo.Tied):
        def forward(self, x):
            for _ in range(len(x)):
                x = torch.relu(self.layer(x))
            return self.head(x)

    with pytest.raises(UnsupportedModelError, match="depends on chance or on the number of examples"):
        capture_gates(ByCount(), torch.randn(5, 5), batch_size=3)


def test_model_without_gates_is_refused():
    with pytest.raises(UnsupportedModelError, match="no gates found in Linear"):
        capture_gates(nn.Linear(5, 2), torch.randn(2, 5))


def test_model_that_leaves_torch_is_refused():
    class ByNumpy(zoo.Residual):
        def forward(self, x):
            return torch.from_numpy(super().forward(x).numpy() * 2)

    with pytest.raises(UnsupportedModelError, match="reads the value of a signal"):
        capture_gates(ByNumpy(), torch.randn(2, 5))


def test_examples_must_stay_on_the_first_axis():
    class Merged(zoo.Residual):
        def forward(self, x):
            return self.head(torch.relu(self.stem(x).view(-1))[:6])

    with pytest.raises(UnsupportedModelError, match=r"Merged returns shape \(3,\) for 2 examples.*on the first axis"):
        capture_gates(Merged(), torch.randn(4, 5))


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1))

    def forward(self, x):
        return self.net(x)


def test_training_mode_is_refused_and_nothing_moves():
    model, x = Noisy(), torch.randn(4, 5)
    before = snapshot(model)
    with pytest.raises(InputError, match=r"module 'net.1' \(BatchNorm1d\) is in training mode.*model.eval\(\)"):
        capture_gates(model, x)
    assert snapshot(model) == before
    assert capture_gates(model.eval(), x).layers == ("net.2",)


def test_functional_dropout_that_is_always_on_is_refused():
    with pytest.raises(InputError, match="draws random numbers"):
        capture_gates(Wrapped(lambda q: F.relu(F.dropout(q, 0.5))), torch.randn(4, 5))


def test_dropout_of_zero_and_plain_modules_may_train():
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.0), nn.ReLU(), nn.Linear(4, 1)).train()
    assert capture_gates(model, torch.randn(2, 5)).layers == ("2",)


BAD_INPUTS = {
    "no examples": (torch.zeros(0, 5), "n = 0"),
    "one axis": (torch.zeros(5), r"unsqueeze\(0\)"),
    "integers": (torch.zeros(3, 5, dtype=torch.int64), "dtype torch.int64"),
    "nan": (torch.tensor([[0.0] * 5, [0.0] * 4 + [float("nan")]]), "first in example 1"),
    "inf": (torch.full((1, 5), float("inf")), "infinite"),
    "other dtype": (torch.zeros(3, 5, dtype=torch.float32), "float32.*float64"),
    "not a tensor": ([[0.0]], "must be a torch.Tensor"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_inputs_are_named(name):
    x, message = BAD_INPUTS[name]
    model = zoo.Residual()
    before = snapshot(model)
    with pytest.raises(InputError, match=message):
        capture_gates(model, x)
    assert snapshot(model) == before


def test_wrong_shapes_are_refused_with_torchs_words_and_leave_no_trace():
    model, x = zoo.Residual(), torch.randn(3, 4)
    before = snapshot(model)
    with pytest.raises(InputError, match=r"Residual does not take examples of shape \(4,\).*cannot be multiplied"):
        capture_gates(model, x)
    assert snapshot(model) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_models_are_refused():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)))
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        capture_gates(scripted, torch.randn(3, 5))


def test_compiled_models_are_unwrapped():
    model, x = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(3, 5)

    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self._orig_mod = model

    assert capture_gates(Compiled(), x) == capture_gates(model, x)


def test_buffers_random_state_and_input_stay_as_they_are():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            torch.rand(3)
            return self.layer(x.relu_()).relu().sum(1, keepdim=True)

    model, x = Counting(), torch.randn(3, 5)
    before, original = snapshot(model), x.clone()
    capture_gates(model, x)
    assert snapshot(model) == before
    assert torch.equal(x, original)


def test_forward_hooks_of_the_user_stay_and_run():
    model, x, seen = zoo.Residual(), torch.randn(2, 5), []
    handle = model.stem.register_forward_hook(lambda *_: seen.append(1))
    before = snapshot(model)
    capture_gates(model, x)
    assert seen
    assert snapshot(model) == before
    handle.remove()


def test_half_precision_and_gradients_flags():
    model = zoo.Residual().to(torch.bfloat16)
    model.stem.weight.requires_grad_(False)
    before = {k: p.requires_grad for k, p in model.named_parameters()}
    assert capture_gates(model, torch.randn(2, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert {k: p.requires_grad for k, p in model.named_parameters()} == before


ALIASED = {
    "data": lambda q: (q.data.clamp_(min=0), q)[1],
    "detached": lambda q: (q.detach().relu_(), q)[1],
}


@pytest.mark.parametrize("name", ALIASED)
def test_writing_through_an_alias_is_seen(name):
    model = nn.Sequential(Wrapped(ALIASED[name]), nn.ReLU(), nn.Linear(2, 1))
    x = torch.randn(6, 5)
    pattern = capture_gates(model, x)
    assert len(pattern) == 2
    assert torch.equal(pattern[pattern.layers[0]], model[0].before(x) > 0)


MIXING = {
    "centred over the batch": (lambda q: F.relu(q - q.mean(0)), "examples depend on each other: mean in the model"),
    "weakly centred": (lambda q: F.relu(q - 1e-3 * q.mean(0)), "examples depend on each other: mean in the model"),
    "sorted": (lambda q: F.relu(q.sort(0).values), "sort"),
    "attention over examples": (lambda q: F.relu(q @ q.T @ q), "examples depend on each other: T in the model's"),
    "noise": (lambda q: F.relu(q + torch.randn(q.shape)), "randn draws random numbers"),
    "whole numbers": (lambda q: F.relu(q.to(torch.int32).to(q.dtype)), "to in the model's forward.* is not a gate"),
}


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("n", [1, 20])
def test_gates_that_change_with_the_batch_are_refused(name, n):
    function, message = MIXING[name]
    with pytest.raises(UnsupportedModelError, match=message):
        capture_gates(Wrapped(function, width=50), torch.randn(n, 5))


@pytest.mark.parametrize("share", [1e-3, 1e-4, 1e-5])
def test_weak_mixing_is_told_from_rounding_in_single_precision(single_precision, share):
    x = torch.randn(9, 5)
    with pytest.raises(UnsupportedModelError, match="examples depend on each other"):
        capture_gates(Wrapped(lambda q: F.relu(q - share * q.mean(0)), width=50), x)
    assert capture_gates(Wrapped(lambda q: F.relu(q - share * q.mean(1, keepdim=True)), width=50), x).n == 9


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("module", [True, False])
def test_prelu_is_a_gate_with_a_slope_for_each_channel(shared, module):
    weight = nn.Parameter(torch.tensor([0.2] if shared else [0.1, -0.5, 0.3, 2.0, 0.0, 1.0]))
    act = nn.PReLU(weight.numel())
    act.weight = weight
    model, x = Wrapped(act if module else lambda q: F.prelu(q, weight)), torch.randn(7, 5)
    layer = (pattern := capture_gates(model, x)).layer(pattern.layers[0])
    q = model.before(x)
    assert torch.equal(layer.gates(), q > 0)
    torch.testing.assert_close(q * layer.factors(torch.float64), F.prelu(q, weight), rtol=1e-15, atol=0)


def test_a_gate_function_of_the_users_own_gives_numbers():
    model, x = Wrapped(lambda q: gated(q, q, torch.abs)), torch.randn(3, 5)
    pattern = capture_gates(model, x)
    assert pattern.kind == "numbers"
    assert torch.equal(pattern["gated"], model.before(x).abs())
    assert torch.equal(pattern.hard()["gated"], model.before(x) > 0)


def test_a_users_own_relu_module_is_named_by_its_operation():
    class MyReLU(nn.ReLU):
        def forward(self, x):
            return F.relu(x)

    model = nn.Sequential(nn.Linear(5, 4), MyReLU(), nn.Linear(4, 1))
    from gatelab.kernels import neural_path_kernel

    assert capture_gates(model, torch.randn(3, 5)).layers == ("1.relu",)
    assert neural_path_kernel(model, torch.randn(3, 5)).shape == (3, 3)


def test_modules_that_are_not_ready_are_refused():
    with pytest.raises(InputError, match="no running statistics"):
        capture_gates(nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU()).eval(), torch.randn(3, 5))
    with pytest.raises(InputError, match="has no parameters yet"):
        capture_gates(nn.Sequential(nn.LazyLinear(4), nn.ReLU()), torch.randn(3, 5))


def test_inside_inference_mode():
    model, x = zoo.Residual(), torch.randn(3, 5)
    expected = capture_gates(model, x)
    with torch.inference_mode():
        assert capture_gates(model, x.clone()) == expected


@pytest.mark.parametrize(
    ("bounded", "low", "high"),
    [
        (F.relu6, 0, 6),
        (lambda q: q.clamp(0, 1), 0, 1),
        (F.hardtanh, -1, 1),
        (nn.Hardtanh(-2, 0.5), -2, 0.5),
        (nn.ReLU6(), 0, 6),
    ],
    ids=["relu6", "clamp", "hardtanh", "Hardtanh", "ReLU6"],
)
def test_bounded_gates_are_open_between_their_bounds(bounded, low, high):
    first = nn.Linear(3, 40)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.bounded, self.last = first, bounded, nn.Linear(40, 1)

        def forward(self, x):
            return self.last(self.bounded(self.first(x)))

    x = 4 * torch.randn(5, 3)
    gates = capture_gates(Net(), x)
    (name,) = gates.layers
    assert gates.layer(name).kind is GateKind.BOUNDED
    q = first(x)
    assert torch.equal(gates[name], (q > low) & (q < high))
