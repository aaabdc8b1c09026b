"""The path kernels of GCONV and VCONV on 32×32 images, and their random features."""

import time

import torch
from torch import Tensor, nn

import gatelab as gl
from benchmarks.memory import in_fresh_process
from benchmarks.timing import Ratio, interleaved

GCONV_EXAMPLES, VCONV_EXAMPLES = 32, 256
DIM = 4096
SKETCHED = 128  # of 2000: the cost is linear in n, and 2000 take three minutes a side


def problem(examples: int, make=gl.models.gconv) -> tuple[nn.Module, Tensor]:
    """The network and random images."""
    generator = torch.Generator().manual_seed(0)
    return make(generator=generator).eval(), torch.randn(examples, 3, 32, 32, generator=generator)


def direct_kernel(model: nn.Sequential, x: Tensor) -> Tensor:
    """The obvious way: products over channels for all pairs of positions, nine shifted sums, layer by layer."""
    gates = gl.capture_gates(model, x)
    convolutions = [module for module in model if isinstance(module, nn.Conv2d)]
    masks = [gates[name].float() for name in gates.layers]
    kernel = torch.empty(len(x), len(x))
    for i in range(len(x)):
        for j in range(len(x)):
            pairs = torch.einsum("cyx,cvu->yxvu", x[i], x[j])
            for number, (layer, mask) in enumerate(zip(convolutions, masks, strict=False)):
                scale = 1.0 if number == 0 else 1 / (9 * layer.in_channels)
                padded = torch.nn.functional.pad(pairs, (1, 1) * 4)
                total = torch.zeros_like(pairs)
                for dy in range(3):
                    for dx in range(3):
                        total += padded[dy : dy + 32, dx : dx + 32, dy : dy + 32, dx : dx + 32]
                pairs = total.mul_(scale).mul_(torch.einsum("cyx,cvu->yxvu", mask[i], mask[j]))
            kernel[i, j] = pairs.mean()
    for number, mask in enumerate(masks[len(convolutions) :]):
        width = convolutions[-1].out_channels if number == 0 else masks[len(convolutions) + number - 1].shape[1]
        kernel = kernel / width * (mask @ mask.T)
    return kernel / masks[-1].shape[1]


def run() -> list[Ratio]:
    """Measure."""
    model, x = problem(GCONV_EXAMPLES)
    few = x[:8]
    ours, direct = interleaved(lambda: gl.neural_path_kernel(model, x), lambda: direct_kernel(model, x), rounds=1)
    torch.testing.assert_close(gl.neural_path_kernel(model, few), direct_kernel(model, few), rtol=1e-3, atol=1e-6)
    memory = float(in_fresh_process("benchmarks.convolutional_memory"))
    flat, images = problem(VCONV_EXAMPLES, gl.models.vconv)
    start = time.perf_counter()
    gl.neural_path_kernel(flat, images)
    seconds = time.perf_counter() - start
    _, images = problem(SKETCHED)
    copies = DIM // 256

    @torch.no_grad()
    def as_wide() -> None:
        for _ in range(copies):
            model(images)

    generator = torch.Generator().manual_seed(0)
    sketch, plain = interleaved(lambda: gl.path_features(model, images, DIM, generator), as_wide, rounds=2)
    work = f"path kernel, GCONV, n = {GCONV_EXAMPLES}"
    return [
        Ratio(work, "direct float32 evaluation (speed-up)", direct / ours, "≥ 8", direct / ours >= 8),
        Ratio(work, "4 GiB (peak memory)", memory, "≤ 1", memory <= 1),
        Ratio(f"path kernel, VCONV, n = {VCONV_EXAMPLES}", "one minute (time)", seconds / 60, "≤ 1", seconds <= 60),
        Ratio(
            f"path_features, GCONV, dim = {DIM}",
            f"forward pass of {copies} such networks, as wide together (time)",
            sketch / plain,
            "≤ 1.5",
            sketch / plain <= 1.5,
        ),
    ]
