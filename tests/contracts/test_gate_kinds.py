"""What holds for every kind of gate: ŷ = ⟨φ, v⟩, H = ΦΦᵀ = E_v[ŷŷ'], K^V = Φ𝒱Φᵀ, and the twin of equal copies."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.gates import HardGate, SoftGate
from tests.contracts.gate_kinds import DENSE, GATED, IMAGES, JOINED, dense, selective
from tests.kernels.path.test_architectures import Net
from tests.third_party.random_values import WEIGHT_LAYERS

EXACT = {"rtol": 1e-10, "atol": 1e-10}
# Where a test takes seconds, these kinds of gates run in the fast suite and all of them in the slow one.
OFTEN = {"SiLU", "SwiGLU", "DNPFL twin", "squeeze-and-excitation", "with ReLU6 on the path"}


def some_fast(names):
    return [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in names]


def made(name):
    torch.manual_seed(3)
    return {**DENSE, **GATED, **IMAGES}[name]().double().eval()


def examples(name):
    return torch.randn(5, 4) if name in {**DENSE, **GATED} else torch.randn(5, 2, 4, 4)


@pytest.mark.parametrize("name", [*DENSE, *GATED])
def test_the_output_is_the_inner_product_of_features_and_values(name):
    model, x = made(name), examples(name)
    output = gl.neural_path_features(model, x) @ gl.neural_path_values(model)
    torch.testing.assert_close(output, model(x), **EXACT)
    torch.testing.assert_close(gl.paths.mixture_of_experts(model)(x), model(x), **EXACT)


@pytest.mark.parametrize("name", [name for name in (*DENSE, *GATED) if name not in ("ReLU", "PReLU")])
def test_hard_features_do_not_give_the_output_of_a_soft_network(name):
    """The contrast: bits in place of numbers are another network."""
    model, x = made(name), examples(name)
    hard = gl.neural_path_features(model, x, gates="hard") @ gl.neural_path_values(model)
    assert (hard - model(x)).abs().max() > 0.01 * model(x).abs().max()


@pytest.mark.parametrize("name", [*DENSE, *GATED])
def test_the_path_kernel_is_the_gram_matrix_of_the_features(name):
    model, x = made(name), examples(name)
    features = gl.neural_path_features(model, x)
    raw = gl.neural_path_kernel(model, x, normalise=False, biases=True)
    torch.testing.assert_close(raw, features @ features.T, **EXACT)


@pytest.mark.parametrize("name", [*DENSE, *GATED])
def test_the_value_tangent_kernel_gives_the_tangent_kernel_of_the_values(name):
    model, x = made(name), examples(name)
    if not hasattr(model, "value"):
        model = gl.to_dgn(model, gl.Regime.FRNPF_DI)
    features = gl.neural_path_features(model, x)
    expected = gl.neural_tangent_kernel(model, x, wrt=model.value)
    torch.testing.assert_close(features @ gl.value_tangent_kernel(model) @ features.T, expected, **EXACT)


@pytest.mark.parametrize("name", [*DENSE, *IMAGES])
def test_the_twin_of_equal_copies_is_the_model(name):
    model, x = made(name), examples(name)
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x)
    torch.testing.assert_close(twin(x), model(x), **EXACT)
    gates = gl.capture_gates(model, x)
    again = gl.capture_gates(twin, x)
    for one, other in zip(gates.layers, again.layers, strict=True):
        torch.testing.assert_close(gates.layer(one).factors(x.dtype), again.layer(other).factors(x.dtype), **EXACT)


@pytest.mark.parametrize("name", some_fast([*DENSE, *IMAGES]))
def test_gradients_through_a_twin_are_those_of_autograd(name):
    """Values: finite differences. Features and values of an equal copy together: the model's own gradient."""
    model, x = made(name), examples(name)
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x)
    twin.requires_grad_(True)
    twin(x).square().sum().backward()
    model(x).square().sum().backward()
    parts = dict(twin.named_parameters())
    soft = gl.capture_gates(model, x).kind == "numbers"
    for path, parameter in model.named_parameters():
        both = [parts[f"{half}.{path}"].grad for half in ("feature", "value") if f"{half}.{path}" in parts]
        total = sum(grad for grad in both if grad is not None)
        if soft:  # a hard gate passes no gradient to the features, and the model's own has none there either
            torch.testing.assert_close(total, parameter.grad, rtol=1e-8, atol=1e-10)
    weight = parts[next(name for name in parts if name.startswith("value.") and name.endswith("weight"))]
    place, step = (0,) * weight.ndim, 1e-6
    sums = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[place] += sign * step
            sums.append(twin(x).square().sum())
            weight[place] -= sign * step
    assert weight.grad[place] == pytest.approx(float(sums[0] - sums[1]) / (2 * step), rel=1e-5, abs=1e-7)


def _estimate(model, x, draws):
    """E_v[ŷŷ'] by its definition: gates recorded in one run, values ±1/√fan in drawn anew, through the twin's gates."""
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x) if not hasattr(model, "value") else copy.deepcopy(model)
    layers = [(path, layer) for path, layer in twin.value.named_modules() if isinstance(layer, WEIGHT_LAYERS)]
    for _, layer in layers:
        nn.init.zeros_(layer.bias) if layer.bias is not None else None
    products = []
    with torch.no_grad():
        for _ in range(draws):
            for number, (_, layer) in enumerate(layers):
                scale = 1.0 if number == 0 else layer.weight[0].numel() ** -0.5
                layer.weight.copy_(torch.randint(2, layer.weight.shape) * 2 - 1).mul_(scale)
            y = twin(x)
            products.append(y @ y.T / y.shape[1])
    kernels = torch.stack(products)
    return kernels.mean(0), kernels.std(0) / draws**0.5 + 1e-12  # some entries are always zero


@pytest.mark.parametrize(
    "name", some_fast(name for name in (*DENSE, *GATED, *IMAGES) if name not in ("with ReLU6 on the path", "PReLU"))
)
def test_the_path_kernel_is_the_mean_over_random_values(name):
    model, x = made(name), examples(name)
    exact = gl.neural_path_kernel(model, x)
    mean, error = _estimate(model, x, 800)
    assert ((mean - exact).abs() / error).max() < 4.5  # of at most 25 entries
    assert (error / exact.diagonal().max()).max() < 0.2


@pytest.mark.parametrize("name", some_fast([*DENSE, *GATED, *IMAGES]))
def test_random_features_have_the_path_kernel_as_their_mean(name):
    model, x = made(name), examples(name)
    exact = gl.neural_path_kernel(model, x)
    copies = 800
    features = gl.path_features(model, x, 2 * copies, torch.Generator().manual_seed(0), copies=copies)
    estimates = torch.stack([part @ part.T * copies for part in features.split(2, dim=1)])  # one for each network
    error = estimates.std(0) / copies**0.5 + 1e-12
    assert ((estimates.mean(0) - exact).abs() / error).max() < 4.5


@pytest.mark.parametrize("name", some_fast([*DENSE, *GATED, *IMAGES]))
def test_all_paths_together_are_the_output(name):
    model, x = made(name), examples(name)[:1]
    paths = gl.top_paths(model, x, 10**4, output=0)
    assert sum(path.contribution for path in paths) == pytest.approx(model(x)[0, 0].item(), rel=1e-9)


def test_a_sum_over_branches_is_the_sum_of_its_terms():
    """The same network, written in five ways; that the first is E_v[ŷŷ'] is tested above."""
    torch.manual_seed(3)
    models = {name: selective(join).double().eval() for name, join in JOINED.items()}
    x = torch.randn(4, 2, 4, 4)
    first = models["added"]
    for name, model in models.items():
        model.load_state_dict(first.state_dict())
        torch.testing.assert_close(model(x), first(x), **EXACT)
        torch.testing.assert_close(gl.neural_path_kernel(model, x), gl.neural_path_kernel(first, x), **EXACT, msg=name)


def test_a_sum_over_channels_has_paths_through_each_of_them():
    model = Net(
        lambda s, x: s.head(F.relu(s.last(F.silu(s.conv(x)).sum(1, keepdim=True))).flatten(1)),
        conv=nn.Conv2d(1, 3, 2),
        last=nn.Conv2d(1, 2, 2),
        head=nn.Linear(2, 1),
    ).double()
    x = torch.randn(3, 1, 3, 3)
    mean, error = _estimate(model, x, 1500)
    assert ((mean - gl.neural_path_kernel(model, x)).abs() / error).max() < 4.5


@pytest.mark.parametrize("make", [gl.to_dlgn, lambda model, beta: gl.to_dgn(model, gl.Regime.DNPFL, beta)])
def test_steeper_gates_tend_to_hard_ones(make):
    x, errors = torch.randn(20, 4), []
    model = dense(nn.ReLU)
    for beta in (10.0, 1e3, 1e5):
        twin = make(model, beta=beta)
        for feature in twin.feature.modules():
            if isinstance(feature, nn.Linear):
                torch.manual_seed(5)
                nn.init.normal_(feature.weight)
        hard = copy.deepcopy(twin).set_gates(HardGate())
        kernels = gl.neural_path_kernel(twin, x), gl.neural_path_kernel(hard, x)
        torch.testing.assert_close(gl.neural_path_kernel(twin, x, gates="hard"), kernels[1], **EXACT)
        errors.append(float((kernels[0] - kernels[1]).abs().max()))
    assert errors[2] < 1e-2 * errors[0]
    assert errors[1] < errors[0]


def test_a_saved_pattern_keeps_its_numbers(tmp_path):
    model, x = made("squeeze-and-excitation"), examples("squeeze-and-excitation")
    pattern = gl.capture_gates(model, x)
    pattern.save(tmp_path / "gates.safetensors")
    assert gl.GatePattern.load(tmp_path / "gates.safetensors") == pattern
    assert pattern.kind == "bits and numbers"
    assert pattern.hard().kind == "bits"
    assert pattern != pattern.hard()
    for other, same in ((gl.capture_gates(model, x, batch_size=2), pattern), (pattern[3:], pattern[[3, 4]])):
        assert other.hard() == same.hard()
        for name in same.layers:
            torch.testing.assert_close(other.layer(name).factors(x.dtype), same.layer(name).factors(x.dtype))


@pytest.mark.parametrize("choice", ["soft", None, 1])
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_choice_of_gates_is_refused(choice):
    model, x = dense(nn.SiLU), torch.randn(3, 4)
    calls = (gl.neural_path_features, gl.neural_path_kernel, lambda m, x, gates: gl.path_features(m, x, 8, gates=gates))
    for call in calls:
        with pytest.raises(gl.errors.InputError, match="gates is"):
            call(model, x, gates=choice)


def test_soft_overlap_of_mixed_layers():
    """Bits and numbers side by side, against the product of Gram matrices."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 70), nn.SiLU(), nn.Linear(70, 1))
    x = torch.randn(600, 4)
    pattern = gl.capture_gates(model, x)
    bits, numbers = (pattern.layer(name).factors(x.dtype) for name in pattern.layers)
    torch.testing.assert_close(gl.overlap_kernel(pattern), (bits @ bits.T / 6) * (numbers @ numbers.T / 70), **EXACT)
    hard = pattern.hard().layer("3").factors(x.dtype)
    torch.testing.assert_close(
        gl.overlap_kernel(pattern.hard(), normalise=False), (bits @ bits.T) * (hard @ hard.T), **EXACT
    )


def test_soft_gates_are_not_compared_with_bits():
    pattern = gl.capture_gates(dense(nn.SiLU), torch.randn(3, 4))
    with pytest.raises(gl.errors.InputError, match="soft gates in one pattern"):
        gl.overlap_kernel(pattern, pattern.hard())


def test_an_unbounded_gate_is_soft():
    assert gl.capture_gates(gl.models.DeepGatedNetwork([4, 3, 1], gate=SoftGate()), torch.randn(2, 4)).kind == "numbers"
