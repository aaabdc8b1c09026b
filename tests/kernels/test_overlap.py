import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.bits import pack
from gatelab.gates.layer import GateKind, GateLayer
from gatelab.kernels import OverlapKernel
from gatelab.kernels import overlap_tiles as overlap_module
from gatelab.kernels import tiles as tiles_module
from gatelab.kernels.tiles import evaluate
from gatelab.regions import RegionPlan
from tests import zoo
from tests.references import explicit


def random_pattern(n, widths, seed=0, slopes=None, dtype=None) -> GatePattern:
    generator = torch.Generator().manual_seed(seed)
    layers = {}
    for i, width in enumerate(widths):
        gates = torch.rand(n, width, generator=generator) < 0.5
        slope = slopes[i] if slopes else 0.0
        layers[str(i)] = GateLayer(GateKind.LEAKY_RELU if slope else GateKind.RELU, (width,), pack(gates), slope)
    return GatePattern(layers, dtype)


@settings(deadline=None, max_examples=20)
@given(widths=st.lists(st.integers(1, 5), min_size=1, max_size=4), n=st.integers(1, 6), seed=st.integers(0, 99))
def test_counts_are_those_of_listed_paths(widths, n, seed):
    pattern = random_pattern(n, widths, seed)
    assert torch.equal(
        gl.overlap_kernel(pattern, normalise=False), explicit.overlap([pattern[name] for name in pattern])
    )


@settings(deadline=None, max_examples=20)
@given(
    widths=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    slope=st.sampled_from([0.0, 0.01, 0.5, -1.0]),
    normalise=st.booleans(),
)
def test_bits_agree_with_real_valued_gates(widths, n, m, slope, normalise):
    slopes = [slope] * len(widths)
    p, q = random_pattern(n, widths, 1, slopes), random_pattern(m, widths, 2, slopes)
    expected = torch.ones(n, m)
    for name, width in zip(p, widths, strict=True):
        a, b = (torch.where(pattern[name], 1.0, slope) for pattern in (p, q))
        expected *= a @ b.T / (width if normalise else 1)
    torch.testing.assert_close(
        gl.overlap_kernel(p, q, normalise=normalise), expected, rtol=1e-12, atol=1e-12 * expected.abs().max().item()
    )


def test_several_tiles_symmetric_and_not(monkeypatch):
    pattern = random_pattern(45, [70, 9])
    whole = gl.overlap_kernel(pattern)
    monkeypatch.setattr(tiles_module, "TILE", 7)
    assert torch.equal(gl.overlap_kernel(pattern), whole)
    assert torch.equal(gl.overlap_kernel(pattern, pattern[:]), whole)
    assert torch.equal(gl.overlap_kernel(pattern[:10], pattern[10:]), whole[:10, 10:])
    assert torch.equal(whole, whole.T)


@pytest.mark.parametrize("slopes", [None, [0.1, 0.0, 0.3]])
def test_matmul_fallback_agrees(monkeypatch, slopes):
    p, q = random_pattern(20, [130, 64, 3], 1, slopes), random_pattern(9, [130, 64, 3], 2, slopes)
    by_bits = gl.overlap_kernel(p, q), gl.overlap_kernel(p)
    monkeypatch.setattr(overlap_module, "compiled", lambda _module: None)
    torch.testing.assert_close((gl.overlap_kernel(p, q), gl.overlap_kernel(p)), by_bits, rtol=1e-12, atol=0)


def test_kernel_is_positive_semi_definite_and_permutes_with_its_examples():
    pattern = random_pattern(30, [5, 6])
    kernel = gl.overlap_kernel(pattern)
    assert torch.linalg.eigvalsh(kernel)[0] > -1e-12
    order = torch.randperm(30)
    assert torch.equal(gl.overlap_kernel(pattern[order]), kernel[order][:, order])


def test_dtype_is_the_networks_and_counts_are_double():
    for dtype in (torch.float32, torch.bfloat16):
        pattern = random_pattern(4, [300], dtype=dtype)
        assert gl.overlap_kernel(pattern).dtype == dtype
        assert gl.overlap_kernel(pattern, normalise=False).dtype == torch.float64
    exact = gl.overlap_kernel(random_pattern(4, [300]))
    torch.testing.assert_close(gl.overlap_kernel(pattern), exact.to(torch.bfloat16))


def test_width_beyond_float32s_whole_numbers_is_exact():
    wide = GatePattern({"a": torch.ones(1, 2**24 + 1, dtype=torch.bool)})
    assert gl.overlap_kernel(wide, normalise=False).item() == 2**24 + 1


def test_overflow_is_an_error_and_never_infinite():
    pattern = GatePattern({str(i): torch.ones(2, 1000, dtype=torch.bool) for i in range(103)})
    with pytest.raises(PathCountOverflowError, match="normalise=True"):
        gl.overlap_kernel(pattern, normalise=False)
    assert torch.equal(gl.overlap_kernel(pattern), torch.ones(2, 2))


def test_positions_and_other_networks_are_refused():
    with pytest.raises(UnsupportedModelError, match=r"layer '2' \(relu\) has gates of shape \(6, 4, 4\)"):
        gl.overlap_kernel(gl.capture_gates(zoo.cnn(), torch.randn(2, 4, 8, 8)))
    with pytest.raises(InputError, match="layer '0': shape"):
        gl.overlap_kernel(random_pattern(2, [3]), random_pattern(2, [4]))
    with pytest.raises(InputError, match="different networks"):
        gl.overlap_kernel(random_pattern(2, [3]), random_pattern(2, [3, 3]))


def test_calls_from_several_threads_agree():
    from concurrent.futures import ThreadPoolExecutor

    patterns = [random_pattern(60, [80, 80], seed) for seed in range(8)]
    alone = [gl.overlap_kernel(p) for p in patterns]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(gl.overlap_kernel, patterns))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


class ResidualMlp(nn.Module):
    """c(h + relu(b(h))), h = relu(a(x))."""

    def __init__(self, width: int = 5):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.c(h + torch.relu(self.b(h)))


def _open_paths(model, x):
    """Count the paths open for both inputs, from one input node, by listing units."""
    gates = gl.capture_gates(model, x)
    first, second = (gates[name].double() for name in gates.layers)
    one_gate = first @ first.T
    both = torch.einsum("ni,mi,nj,mj->nm", first, first, second, second)
    return one_gate + both


def test_paths_of_a_residual_network_are_counted_by_its_graph():
    model, x = ResidualMlp(), torch.randn(6, 3)
    kernel = evaluate(OverlapKernel(model, normalise=False).on(x), x, None)
    torch.testing.assert_close(kernel, _open_paths(model, x))


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: s.c((h := torch.relu(s.a(x))) + h),
        lambda s, x: s.c(torch.relu(torch.relu(s.a(x)) - 0.1)),
        lambda s, x: s.c(torch.relu(2 * torch.relu(s.a(x)))),
        lambda s, x: s.c(torch.cat([(h := torch.relu(s.a(x)))[:, :2], torch.relu(s.b(h))[:, 2:]], dim=1)),
        ResidualMlp.forward,
    ],
    ids=["twice", "two gates on a unit", "two gates around a factor", "concatenation", "skip"],
)
def test_gates_alone_do_not_tell_the_paths_where_signals_meet(forward, monkeypatch, tmp_path):
    monkeypatch.setattr(ResidualMlp, "forward", forward)
    gates = gl.capture_gates(ResidualMlp(), torch.randn(4, 3))
    gates.save(tmp_path / "gates.safetensors")
    planned, _ = RegionPlan(ResidualMlp()).capture(ResidualMlp(), torch.randn(4, 3))
    for pattern in (gates, gates[:2], GatePattern.load(tmp_path / "gates.safetensors"), planned):
        with pytest.raises(UnsupportedModelError, match="the layers do not form one chain"):
            gl.overlap_kernel(pattern)


def test_a_chain_is_known_as_one_however_it_is_written():
    net = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)
    )
    assert gl.capture_gates(net.eval(), torch.randn(2, 3)).is_chain
    assert gl.capture_gates(gl.to_dgn(net, gl.Regime.FRNPF_II), torch.randn(2, 3)).is_chain
