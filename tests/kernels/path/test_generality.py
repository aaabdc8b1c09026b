"""Everything that may stand between weight layers, against all sign patterns of the weights."""

# ruff: noqa: E501  one network to a line

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.kernels.path import covariances, pairs, planning, selections
from gatelab.kernels.path.first_fields import FirstField
from gatelab.kernels.path.pooled_windows import between_windows
from tests.kernels.path.test_architectures import Net, conv, dense, sequential, with_open_paths
from tests.references.replay import exact_kernel


def net(forward, **layers):
    return lambda: Net(
        forward,
        **{
            name: layer() if callable(layer) and not isinstance(layer, nn.Module) else layer
            for name, layer in layers.items()
        },
    )


def shuffled(h, groups):
    n, c, *size = h.shape
    return h.view(n, groups, c // groups, *size).transpose(1, 2).contiguous().view(n, c, *size)


def by_hand(h):
    """Positions to channels, as i-RevNet does it: cut, viewed, stacked and turned."""
    n, c, high, _ = h.shape
    rows = [part.contiguous().view(n, high // 2, 4 * c) for part in h.permute(0, 2, 3, 1).split(2, dim=2)]
    return torch.stack(rows, dim=1).permute(0, 3, 2, 1).contiguous()


A11, A21, A12 = conv(1, 1, 1), conv(1, 2, 1), conv(2, 1, 1)

# name -> (network, shape of an example); at most 13 weights, so that all sign patterns can be run.
TINY = {
    "overlapping max-pool, flattened": (sequential(A21, nn.ReLU, lambda: nn.MaxPool2d(2, 1), nn.Flatten, dense(8, 1)), (1, 3, 3)),
    "padded max-pool, pooled": (sequential(conv(1, 2, 2), nn.ReLU, lambda: nn.MaxPool2d(3, 2, 1), A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten, dense(1, 1)), (1, 4, 5)),
    "max-pool in ceil mode": (sequential(A21, nn.ReLU, lambda: nn.MaxPool2d(2, 2, ceil_mode=True), nn.Flatten, dense(8, 1)), (1, 3, 3)),
    "dilated max-pool": (sequential(A21, lambda: nn.LeakyReLU(0.2), lambda: nn.MaxPool2d(2, 1, dilation=2), A12, nn.ReLU, nn.Flatten, dense(2, 1)), (1, 4, 3)),
    "max-pool, identity skip, pooled": (net(lambda s, x: s.c(F.relu(s.b(h := F.max_pool2d(F.relu(s.a(x)), 3, 2, 1)) + h).mean((2, 3))), a=A21, b=conv(2, 2, 1), c=dense(2, 1)), (1, 5, 4)),
    "max-pool beside its own input": (net(lambda s, x: s.c((F.max_pool2d(h := F.relu(s.a(x)), 3, 1, 1) + h).flatten(1)), a=A11, c=dense(9, 1)), (1, 3, 3)),
    "max-pool of max-pool": (sequential(A21, nn.ReLU, lambda: nn.MaxPool2d(2, 1), lambda: nn.MaxPool2d(2, 1), A12, nn.ReLU, nn.Flatten, dense(4, 1)), (1, 4, 4)),
    "max-pool of an average": (sequential(A21, lambda: nn.AvgPool2d(2, 1), lambda: nn.MaxPool2d(2), nn.ReLU, nn.Flatten, dense(2, 1)), (1, 3, 4)),
    "overlapping average": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(3, 1, 1), A12, nn.ReLU, nn.Flatten, dense(6, 1)), (1, 3, 2)),
    "overlapping average, not counting padding": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 4, 3)),
    "overlapping average, then a gate": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(2, 1), nn.ReLU, A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten, dense(1, 1)), (1, 3, 3)),
    "gated averages in a row, pooled": (sequential(A21, lambda: nn.LeakyReLU(0.2), lambda: nn.AvgPool2d(3, 2, 1), lambda: nn.LeakyReLU(0.1), lambda: nn.AvgPool2d(3, 2, 1), nn.ReLU, A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten, dense(1, 1)), (1, 5, 5)),
    "gated averages of two groups, joined": (net(lambda s, x: s.c(F.relu(s.b(torch.cat([F.avg_pool2d(F.leaky_relu(F.avg_pool2d(h := F.relu(s.a(x)), 3, 1, 1), 0.1), 3, 1, 1), h], 1))).mean((2, 3))), a=conv(2, 2, 1, groups=2), b=conv(4, 1, 1), c=dense(1, 1)), (2, 2, 3)),
    "max-pool of gated averages": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(2, 1), nn.ReLU, lambda: nn.AvgPool2d(2, 1), nn.ReLU, lambda: nn.MaxPool2d(2, 1), A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 4, 4)),
    "average that cuts the border": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(2), nn.Flatten, dense(2, 1)), (1, 3, 3)),
    "average in ceil mode": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(2, ceil_mode=True), nn.Flatten, dense(8, 1)), (1, 3, 3)),
    "average over the image with stride 1": (sequential(A21, nn.ReLU, lambda: nn.AvgPool2d(3, stride=1), nn.Flatten, dense(2, 1)), (1, 3, 3)),
    "adaptive average that overlaps": (sequential(A21, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(2), nn.Flatten, dense(8, 1)), (1, 3, 3)),
    "nearest upsampling": (sequential(A21, nn.ReLU, lambda: nn.Upsample(scale_factor=2), conv(2, 1, 2), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 2)),
    "bilinear upsampling, then a gate": (net(lambda s, x: s.c(F.relu(F.interpolate(F.leaky_relu(s.a(x), 0.3), scale_factor=2, mode="bilinear")).mean((2, 3))), a=A21, c=dense(2, 1)), (1, 2, 2)),
    "reflected padding": (sequential(conv(1, 1, 2, padding=1, padding_mode="reflect"), nn.ReLU, A11, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 3, 3)),
    "replicated padding": (sequential(A11, nn.ReLU, conv(1, 1, 2, padding=1, padding_mode="replicate"), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 3)),
    "padding modules": (sequential(A21, nn.ReLU, lambda: nn.ReflectionPad2d(1), lambda: nn.ZeroPad2d((1, 0, 0, 1)), conv(2, 1, 2), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 3)),
    "transposed convolution": (sequential(A21, nn.ReLU, lambda: nn.ConvTranspose2d(2, 1, 2, stride=2, padding=1, output_padding=1), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 3)),
    "transposed convolution in groups": (sequential(A21, nn.ReLU, lambda: nn.ConvTranspose2d(2, 2, (1, 2), groups=2), nn.ReLU, A12, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 2)),
    "depthwise, then pointwise": (sequential(A21, nn.ReLU, conv(2, 2, 2, groups=2), nn.ReLU, A12, nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 3, 2)),
    "depthwise with a multiplier, flattened": (sequential(conv(2, 4, 1, groups=2), nn.ReLU, conv(4, 1, 1), nn.ReLU, nn.Flatten, dense(4, 1)), (2, 2, 2)),
    "groups behind groups": (sequential(conv(1, 4, 1), nn.ReLU, conv(4, 2, 1, groups=2), nn.ReLU, conv(2, 1, 1), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 2, 2)),
    "shuffled channels in groups": (net(lambda s, x: s.d(F.relu(s.c(shuffled(F.relu(torch.cat([s.a(x), s.b(x)], 1)), 2))).mean((2, 3))), a=A21, b=A21, c=conv(4, 2, 1, groups=2), d=dense(2, 1)), (1, 2, 2)),
    "split and joined": (net(lambda s, x: s.c(torch.cat([(p := F.relu(s.a(x)).chunk(2, 1))[0], F.relu(s.b(p[1]))], 1).flatten(1)), a=A21, b=A11, c=dense(8, 1)), (1, 2, 2)),
    "slices": (net(lambda s, x: s.c(F.relu(s.b(F.relu(s.a(x))[:, 1:, ::2, 1:])).mean((2, 3))), a=conv(1, 3, 1), b=conv(2, 1, 1), c=dense(1, 1)), (1, 3, 3)),
    "zeros for more channels": (net(lambda s, x: s.c(F.relu(s.b(F.relu(h := s.a(x))) + F.pad(h, (0, 0, 0, 0, 0, 1))).mean((2, 3))), a=A21, b=conv(2, 3, 1), c=dense(3, 1)), (1, 2, 2)),
    "half of a sum": (net(lambda s, x: s.c(0.5 * (s.a(x) + F.relu(s.b(x)))), a=dense(2, 2), b=dense(2, 2), c=dense(2, 1)), (2,)),
    "difference": (net(lambda s, x: s.c(F.relu(s.a(x)) - F.relu(s.b(x)) / 2), a=dense(2, 2), b=dense(2, 2), c=dense(2, 1)), (2,)),
    "space to depth": (net(lambda s, x: s.c(F.relu(s.b(F.pixel_unshuffle(F.relu(s.a(x)), 2))).mean((2, 3))), a=A11, b=conv(4, 1, 1), c=dense(1, 1)), (1, 4, 2)),
    "slices of one weight": (net(lambda s, x: s.c(F.relu(F.conv2d(F.relu(F.conv2d(x, s.a.weight[:2, :1])), s.a.weight[2:, :])).mean((2, 3))), a=conv(2, 3, 1), c=dense(1, 1)), (1, 2, 2)),
    "space to depth by hand": (net(lambda s, x: s.c(F.relu(s.b(by_hand(F.relu(s.a(x))))).mean((2, 3))), a=A11, b=conv(4, 1, 1), c=dense(1, 1)), (1, 4, 2)),
    "mean of stacked branches": (net(lambda s, x: s.c(torch.stack([F.relu(s.a(x)), F.relu(s.b(x))], dim=0).mean(dim=0)), a=dense(2, 2), b=dense(2, 2), c=dense(2, 1)), (2,)),
    "one axis of positions": (sequential(lambda: nn.Conv1d(1, 2, 2), nn.ReLU, lambda: nn.MaxPool1d(2, 1), lambda: nn.Conv1d(2, 1, 2, dilation=2), nn.ReLU, lambda: nn.AdaptiveAvgPool1d(1), nn.Flatten), (1, 6)),
    "three axes of positions": (sequential(lambda: nn.Conv3d(1, 2, 1), nn.ReLU, lambda: nn.MaxPool3d(2, 1), lambda: nn.Conv3d(2, 1, (1, 2, 1)), nn.ReLU, lambda: nn.AvgPool3d((1, 1, 2)), nn.Flatten, dense(1, 1)), (1, 2, 3, 3)),
    "gate at the end": (sequential(conv(1, 2, 2), nn.ReLU, nn.Flatten), (1, 3, 3)),
    "image as output": (sequential(A21, nn.ReLU, conv(2, 2, 1)), (1, 2, 2)),
    "max-pools, then flattened": (sequential(A21, nn.ReLU, lambda: nn.MaxPool2d(2), conv(2, 1, 2, padding=1), nn.ReLU, lambda: nn.MaxPool2d(2), nn.Flatten, dense(1, 1)), (1, 5, 4)),
    "bounded gates": (net(lambda s, x: s.c(F.relu6(s.b(F.hardtanh(s.a(x), -0.5, 0.5)))), a=dense(2, 3), b=dense(3, 2), c=dense(2, 1)), (2,)),
}  # fmt: skip


def alive(name):
    return with_open_paths(*TINY[name], n=4)


@pytest.mark.parametrize("name", TINY)
def test_kernel_is_the_mean_over_all_sign_patterns(name):
    model, x = alive(name)
    wanted = exact_kernel(model, x)
    torch.testing.assert_close(gl.neural_path_kernel(model, x, normalise=False), wanted, rtol=1e-10, atol=1e-12)
    rectangle = gl.neural_path_kernel(model, x[:1], x[1:], normalise=False)
    torch.testing.assert_close(rectangle, wanted[:1, 1:], rtol=1e-10, atol=1e-12)


SPATIAL = [name for name, (_, shape) in TINY.items() if len(shape) > 1]


@pytest.mark.parametrize("name", SPATIAL)
def test_all_pairs_offsets_and_uncompiled_loops_agree(name, monkeypatch):
    model, x = alive(name)
    kernel = gl.neural_path_kernel(model, x)

    def all_pairs(size, offsets):
        return pairs.AllPairs(size) if size else pairs.OffsetPairs(size, ((),))

    def some_pairs(size, offsets):
        return pairs.AllPairs(size) if offsets is None else pairs.OffsetPairs(size, tuple(sorted(offsets)))

    for form in (all_pairs, some_pairs):
        for compiled in (selections.compiled, lambda _: None):
            monkeypatch.setattr(planning, "chosen_pairs", form)
            monkeypatch.setattr(selections, "compiled", compiled)
            torch.testing.assert_close(gl.neural_path_kernel(model, x), kernel, rtol=1e-10, atol=1e-14)


def test_bits_and_numbers_give_the_same_products(monkeypatch):
    """A network wide enough for bits, with offsets between max-poolings, gates at two levels, and a LeakyReLU."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 70, 3), nn.LeakyReLU(0.1)]
    layers += [nn.Conv2d(70, 17, 1), nn.ReLU(), nn.MaxPool2d(3, 1), nn.Flatten(), nn.Linear(17 * 16, 3)]
    model, x = nn.Sequential(*layers), torch.randn(3, 2, 16, 16)
    kernel = gl.neural_path_kernel(model, x)
    used = []
    monkeypatch.setattr(pairs, "bit_products", lambda *args: used.append(args))
    torch.testing.assert_close(gl.neural_path_kernel(model, x), kernel, rtol=1e-12, atol=0)
    assert used


BEHIND_POOLING = {
    "windows side by side": ((2,), {}, {"padding": 1}, 15),
    "windows that overlap, padded": ((3, 2, 1), {}, {"padding": 1}, 15),
    "dilated windows": ((2, 1), {"dilation": 2}, {"padding": (0, 2)}, 15),
    "a strided first layer, rounded up": ((2,), {"ceil_mode": True}, {"stride": 2, "padding": 1}, 25),
}


@pytest.mark.parametrize("name", BEHIND_POOLING)
def test_counting_channels_in_windows_is_reading_them_one_by_one(name, monkeypatch):
    """70 channels are two words; the second layer has one group of fields that is not the first."""
    torch.manual_seed(0)
    pool, options, first, width = BEHIND_POOLING[name]
    layers = [nn.Conv2d(3, 70, 3, **first), nn.ReLU(), nn.MaxPool2d(*pool, **options), nn.Conv2d(70, 16, 3, padding=1)]
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3)]
    model, x, y = nn.Sequential(*layers).double(), *(torch.randn(n, 3, 16, width).double() for n in (3, 2))
    model(x)
    counted = []
    monkeypatch.setattr(covariances, "between_windows", lambda *a: counted.append(a[4]) or between_windows(*a))
    kernels = [gl.neural_path_kernel(model, x, y, biases=biases) for biases in (False, True)]
    assert [type(field) for field in counted] == 2 * [FirstField, torch.Tensor]
    monkeypatch.setattr(covariances, "windows_of", lambda *_: None)
    read = [gl.neural_path_kernel(model, x, y, biases=biases) for biases in (False, True)]
    torch.testing.assert_close(kernels, read, rtol=1e-12, atol=0)
    monkeypatch.setattr(covariances, "first_field", lambda *_: None)
    monkeypatch.setattr(pairs, "compiled", lambda _: None)
    torch.testing.assert_close(gl.neural_path_kernel(model, x, y), kernels[0], rtol=1e-12, atol=0)
