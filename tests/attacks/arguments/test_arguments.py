"""Arguments of the wrong type, sign or size: refused, and the message names the argument."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate, LeakyGate, SoftGate, StraightThroughGate, gated
from gatelab.kernels import (
    condition_number,
    cumulative_eigenvalues,
    infinite_width_kernels,
    kernel_ridge,
    kernel_ridges,
    label_alignment,
    label_complexity,
    spectrum,
    top_eigenpairs,
)
from gatelab.paths import count_paths
from gatelab.regions import linear_regions_1d, linear_regions_2d
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("inputs and arguments")


def net(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))


def x() -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(1))


def psd() -> torch.Tensor:
    return x() @ x().T + torch.eye(4)


def asymmetric() -> torch.Tensor:
    return psd() + torch.triu(torch.ones(4, 4), 1)


y = torch.tensor([1.0, -1.0, 1.0, -1.0])
nan = float("nan")


def _one_foreign():
    model = net()
    return gl.neural_tangent_kernel(model, x(), wrt=[model[0].weight, nn.Parameter(torch.ones(2))])


def _finite(kernel):
    if not bool(torch.isfinite(kernel).all()):
        raise SilentlyWrongError(f"{kernel.tolist()}")
    raise InputError("finite: as good as a refusal")


REFUSED = {
    "SoftGate, beta NaN": lambda: SoftGate(nan),
    "SoftGate, beta infinite": lambda: SoftGate(float("inf")),
    "SoftGate, beta a text": lambda: SoftGate("8"),
    "StraightThroughGate, beta below 0": lambda: StraightThroughGate(-1.0),
    "LeakyGate, slope a text": lambda: LeakyGate(HardGate(), "0.1"),
    "gated, gate a number": lambda: gated(x(), x(), 3),
    "gated, value a list": lambda: gated([1.0], x(), HardGate()),
    "gated, q of another shape": lambda: gated(x(), x()[:, :2], HardGate()),
    "to_dgn, beta True": lambda: gl.to_dgn(net(), gl.Regime.DNPFL, beta=True),
    "hardening_gap, y NaN": lambda: gl.hardening_gap(net(), x(), torch.full((4, 2), nan)),
    "GatePattern, layers a list": lambda: gl.GatePattern([torch.ones(2, 3, dtype=torch.bool)]),
    "flips, other a text": lambda: gl.capture_gates(net(), x()).flips("pattern"),
    "path_features, dim 10**12": lambda: gl.path_features(net(), x(), 10**12),
    "open_kernel, path 3": lambda: gl.open_kernel(3),
    "draw, path a directory": lambda: gl.read(net(), x()).draw("."),
    "capture_gates, batch_size 2.5": lambda: gl.capture_gates(net(), x(), batch_size=2.5),
    "capture_gates, batch_size 0": lambda: gl.capture_gates(net(), x(), batch_size=0),
    "capture_gates, batch_size -1": lambda: gl.capture_gates(net(), x(), batch_size=-1),
    "capture_gates, batch_size 'a'": lambda: gl.capture_gates(net(), x(), batch_size="a"),
    "capture_gates, model None": lambda: gl.capture_gates(None, x()),
    "capture_gates, arguments swapped": lambda: gl.capture_gates(x(), net()),
    "neural_path_kernel, batch_size 2.5": lambda: gl.neural_path_kernel(net(), x(), batch_size=2.5),
    "neural_path_kernel, batch_size 0": lambda: gl.neural_path_kernel(net(), x(), batch_size=0),
    "neural_path_kernel, y a list": lambda: gl.neural_path_kernel(net(), x(), [1.0]),
    "neural_path_kernel, y of other features": lambda: gl.neural_path_kernel(net(), x(), torch.randn(2, 4)),
    "neural_path_kernel, y of other dtype": lambda: gl.neural_path_kernel(net(), x(), x().float()),
    "neural_path_kernel, y empty": lambda: gl.neural_path_kernel(net(), x(), x()[:0]),
    "neural_path_kernel, y with NaN": lambda: gl.neural_path_kernel(net(), x(), x() * nan),
    "neural_tangent_kernel, batch_size 2.5": lambda: gl.neural_tangent_kernel(net(), x(), batch_size=2.5),
    "neural_tangent_kernel, batch_size -3": lambda: gl.neural_tangent_kernel(net(), x(), batch_size=-3),
    "neural_tangent_kernel, y of other features": lambda: gl.neural_tangent_kernel(net(), x(), torch.randn(2, 4)),
    "neural_tangent_kernel, wrt 3": lambda: gl.neural_tangent_kernel(net(), x(), wrt=3),
    "neural_tangent_kernel, wrt [3]": lambda: gl.neural_tangent_kernel(net(), x(), wrt=[3]),
    "neural_tangent_kernel, wrt an unknown name": lambda: gl.neural_tangent_kernel(net(), x(), wrt="5.weight"),
    "neural_tangent_kernel, wrt nothing": lambda: gl.neural_tangent_kernel(net(), x(), wrt=[]),
    "neural_tangent_kernel, wrt a foreign module": lambda: gl.neural_tangent_kernel(net(), x(), wrt=nn.Linear(3, 4)),
    "neural_tangent_kernel, wrt a foreign parameter": lambda: gl.neural_tangent_kernel(
        net(), x(), wrt=nn.Parameter(torch.ones(2))
    ),
    "neural_tangent_kernel, wrt one own and one foreign parameter": _one_foreign,
    "neural_tangent_kernel, wrt a buffer": lambda: gl.neural_tangent_kernel(
        nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval(), x(), wrt="1.running_mean"
    ),
    "neural_tangent_kernel, outputs 'sum'": lambda: gl.neural_tangent_kernel(net(), x(), outputs="sum"),
    "neural_tangent_kernel, outputs 2": lambda: gl.neural_tangent_kernel(net(), x(), outputs=2),
    "neural_tangent_kernel, outputs -1": lambda: gl.neural_tangent_kernel(net(), x(), outputs=-1),
    "neural_tangent_kernel, outputs 1.5": lambda: gl.neural_tangent_kernel(net(), x(), outputs=1.5),
    "neural_tangent_kernel, outputs None": lambda: gl.neural_tangent_kernel(net(), x(), outputs=None),
    "neural_tangent_kernel, outputs True": lambda: gl.neural_tangent_kernel(net(), x(), outputs=True),
    "neural_tangent_kernel, outputs a list": lambda: gl.neural_tangent_kernel(net(), x(), outputs=[0]),
    "overlap_kernel of a tensor": lambda: gl.overlap_kernel(x()),
    "overlap_kernel of a model": lambda: gl.overlap_kernel(net()),
    "overlap_kernel with a tensor": lambda: gl.overlap_kernel(gl.capture_gates(net(), x()), x()),
    "overlap_kernel of two widths": lambda: gl.overlap_kernel(
        gl.capture_gates(net(), x()), gl.capture_gates(net(5), x())
    ),
    "overlap_kernel of other layers": lambda: gl.overlap_kernel(
        gl.capture_gates(net(), x()), gl.GatePattern({"other": torch.ones(4, 4, dtype=torch.bool)})
    ),
    "GatePattern of numbers": lambda: gl.GatePattern({"a": torch.ones(2, 2)}),
    "GatePattern of nothing": lambda: gl.GatePattern({}),
    "GatePattern of unequal examples": lambda: gl.GatePattern(
        {"a": torch.ones(2, 2, dtype=torch.bool), "b": torch.ones(3, 2, dtype=torch.bool)}
    ),
    "GatePattern, unknown layer": lambda: gl.capture_gates(net(), x())["nope"],
    "GatePattern, a far example": lambda: gl.capture_gates(net(), x())[[9]],
    "GatePattern on an absent device": lambda: gl.capture_gates(net(), x()).to("cuda"),
    "GatePattern on a device that does not exist": lambda: gl.capture_gates(net(), x()).to("gpu"),
    "path_features, dim 2.5": lambda: gl.path_features(net(), x(), 2.5),
    "path_features, dim 0": lambda: gl.path_features(net(), x(), 0),
    "path_features, dim 'a'": lambda: gl.path_features(net(), x(), "a"),
    "path_features, generator 3": lambda: gl.path_features(net(), x(), 4, 3),
    "path_features, copies 9": lambda: gl.path_features(net(), x(), 4, copies=9),
    "path_features, batch_size 0": lambda: gl.path_features(net(), x(), 4, batch_size=0),
    "top_paths, k 2.5": lambda: gl.top_paths(net(), x()[0], 2.5),
    "top_paths, k 0": lambda: gl.top_paths(net(), x()[0], 0),
    "top_paths, k -1": lambda: gl.top_paths(net(), x()[0], -1),
    "top_paths, k '3'": lambda: gl.top_paths(net(), x()[0], "3"),
    "top_paths, k None": lambda: gl.top_paths(net(), x()[0], None),
    "top_paths, k NaN": lambda: gl.top_paths(net(), x()[0], nan),
    "top_paths of four examples": lambda: gl.top_paths(net(), x(), 3),
    "top_paths, output 7": lambda: gl.top_paths(net(), x()[0], 3, output=7),
    "top_paths, output 0.5": lambda: gl.top_paths(net(), x()[0], 3, output=0.5),
    "count_paths, output '0'": lambda: count_paths(net(), x()[0], output="0"),
    "to_dgn, regime as a string": lambda: gl.to_dgn(net(), "DNPFL"),
    "to_dgn, regime None": lambda: gl.to_dgn(net(), None),
    "to_dgn, beta 'a'": lambda: gl.to_dgn(net(), gl.Regime.DNPFL, beta="a"),
    "to_dgn, beta NaN": lambda: gl.to_dgn(net(), gl.Regime.DNPFL, beta=nan),
    "to_dgn, beta -1": lambda: gl.to_dgn(net(), gl.Regime.DNPFL, beta=-1.0),
    "to_dgn, gates of another width": lambda: gl.to_dgn(net(), gl.Regime.FLNPF, gates_from=net(5)),
    "to_dgn, gates of a tensor": lambda: gl.to_dgn(net(), gl.Regime.FLNPF, gates_from=x()),
    "to_dgn, generator 3": lambda: gl.to_dgn(net(), gl.Regime.FRNPF_II, generator=3),
    "to_dlgn, beta 0": lambda: gl.to_dlgn(net(), beta=0.0),
    "widen_values, m 0": lambda: gl.widen_values(gl.to_dgn(net(), gl.Regime.FRNPF_DI), 0),
    "widen_values, m 1.5": lambda: gl.widen_values(gl.to_dgn(net(), gl.Regime.FRNPF_DI), 1.5),
    "widen_values of a plain model": lambda: gl.widen_values(net(), 2),
    "infinite_width_ntk, depth 0": lambda: gl.infinite_width_ntk(x(), depth=0),
    "infinite_width_ntk, depth 2.5": lambda: gl.infinite_width_ntk(x(), depth=2.5),
    "infinite_width_ntk, depth '3'": lambda: gl.infinite_width_ntk(x(), depth="3"),
    "infinite_width_ntk, y of other features": lambda: gl.infinite_width_ntk(x(), torch.randn(2, 5), depth=3),
    "infinite_width_ntk, y of other dtype": lambda: gl.infinite_width_ntk(x(), x().float(), depth=3),
    "infinite_width_ntk, a row of zeros": lambda: _finite(gl.infinite_width_ntk(torch.zeros(2, 3), depth=3)),
    "infinite_width_kernels, depth -1": lambda: infinite_width_kernels(x(), depth=-1),
    "spectrum of an asymmetric matrix": lambda: spectrum(asymmetric()),
    "spectrum of a rectangle": lambda: spectrum(torch.ones(2, 3)),
    "spectrum of a vector": lambda: spectrum(y),
    "spectrum of integers": lambda: spectrum(torch.ones(2, 2, dtype=torch.int64)),
    "spectrum of a list": lambda: spectrum([[1.0]]),
    "spectrum of nothing": lambda: spectrum(torch.zeros(0, 0)),
    "condition_number of an asymmetric matrix": lambda: condition_number(asymmetric()),
    "condition_number of an indefinite matrix": lambda: condition_number(torch.diag(torch.tensor([1.0, -1.0]))),
    "condition_number with NaN": lambda: condition_number(psd() * nan),
    "cumulative_eigenvalues of an asymmetric matrix": lambda: cumulative_eigenvalues(asymmetric()),
    "cumulative_eigenvalues of complex numbers": lambda: cumulative_eigenvalues(psd().to(torch.complex128)),
    "label_alignment of NaN labels": lambda: label_alignment(psd(), y * nan),
    "label_alignment of too few labels": lambda: label_alignment(psd(), y[:2]),
    "label_alignment of an asymmetric matrix": lambda: label_alignment(asymmetric(), y),
    "label_complexity of NaN labels": lambda: label_complexity(psd(), y * nan),
    "label_complexity of an asymmetric matrix": lambda: label_complexity(asymmetric(), y),
    "label_complexity, ridge 'a'": lambda: label_complexity(psd(), y, ridge="a"),
    "label_complexity, ridge NaN": lambda: label_complexity(psd(), y, ridge=nan),
    "label_complexity, ridge -1": lambda: label_complexity(psd(), y, ridge=-1.0),
    "label_complexity of an indefinite matrix": lambda: label_complexity(torch.diag(torch.tensor([3.0, -1.0])), y[:2]),
    "kernel_ridge, ridge 'a'": lambda: kernel_ridge(psd(), y, ridge="a"),
    "kernel_ridge, ridge -1": lambda: kernel_ridge(psd(), y, ridge=-1.0),
    "kernel_ridge, ridge NaN": lambda: kernel_ridge(psd(), y, ridge=nan),
    "kernel_ridge of NaN labels": lambda: kernel_ridge(psd(), y * nan, ridge=0.1),
    "kernel_ridge of too few labels": lambda: kernel_ridge(psd(), y[:3], ridge=0.1),
    "kernel_ridge of an asymmetric matrix": lambda: kernel_ridge(asymmetric(), y, ridge=0.1),
    "kernel_ridge of integer labels": lambda: kernel_ridge(psd(), y.long(), ridge=0.1),
    "kernel_ridge, tolerance -1": lambda: kernel_ridge(psd(), y, ridge=0.1, tolerance=-1.0),
    "kernel_ridge, max_iterations 0": lambda: kernel_ridge(psd(), y, ridge=0.1, max_iterations=0),
    "kernel_ridge, preconditioner_rank 2.5": lambda: kernel_ridge(psd(), y, ridge=0.1, preconditioner_rank=2.5),
    "kernel_ridges of no ridges": lambda: kernel_ridges(psd(), y, []),
    "kernel_ridges of one number": lambda: kernel_ridges(psd(), y, 0.1),
    "top_eigenpairs, k 2.5": lambda: top_eigenpairs(psd(), 2.5),
    "top_eigenpairs, k 0": lambda: top_eigenpairs(psd(), 0),
    "top_eigenpairs, k 9": lambda: top_eigenpairs(psd(), 9),
    "top_eigenpairs with NaN": lambda: top_eigenpairs(psd() * nan, 1),
    "top_eigenpairs of an asymmetric matrix": lambda: top_eigenpairs(asymmetric(), 1),
    "neural_path_features, limit 2": lambda: gl.neural_path_features(net(), x(), limit=2),
    "neural_path_features, limit 2.5": lambda: gl.neural_path_features(net(), x(), limit="a"),
    "value_tangent_kernel, limit 1": lambda: gl.value_tangent_kernel(net(), limit=1),
    "linear_regions_1d, bounds reversed": lambda: linear_regions_1d(net(), (1, 0), origin=x()[0], direction=x()[1]),
    "linear_regions_1d, bounds infinite": lambda: linear_regions_1d(
        net(), (0, float("inf")), origin=x()[0], direction=x()[1]
    ),
    "linear_regions_1d, origin of other features": lambda: linear_regions_1d(
        net(), (0, 1), origin=torch.ones(5), direction=torch.ones(5)
    ),
    "linear_regions_1d, direction zero": lambda: linear_regions_1d(
        net(), (0, 1), origin=x()[0], direction=torch.zeros(3)
    ),
    "linear_regions_1d, direction NaN": lambda: linear_regions_1d(net(), (0, 1), origin=x()[0], direction=x()[1] * nan),
    "linear_regions_2d without a plane": lambda: linear_regions_2d(net()),
    "linear_regions_2d, plane a tensor": lambda: linear_regions_2d(net(), x()),
    "linear_regions_2d, bounds flat": lambda: linear_regions_2d(
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), bounds=((0, 0), (0, 1))
    ),
    "linear_regions_2d, limit 1": lambda: linear_regions_2d(
        nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 1)), limit=1
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_argument(what):
    message = refusal(REFUSED[what])
    if len(message) < 20:
        raise SilentlyWrongError(f"a refusal that explains nothing: {message!r}")
