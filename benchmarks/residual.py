"""The path kernels of ResNet-18 and ResNet-50, in torchvision's shape."""

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gatelab as gl
from benchmarks.memory import in_fresh_process
from benchmarks.timing import Ratio, interleaved
from gatelab.network.network import read

EXAMPLES = 32
DIRECT_EXAMPLES = 4  # the direct way is timed on the pairs of these, and compared per pair


class Block(nn.Module):
    """A basic block, or a bottleneck if ``expansion`` is 4."""

    def __init__(self, channels: int, width: int, stride: int, expansion: int):
        super().__init__()
        out = width * expansion
        kernels = [(channels, width, 3, stride), (width, out, 3, 1)]
        if expansion > 1:
            kernels = [(channels, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in kernels)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in kernels)
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(branch + skip)."""
        h = x
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = norm(conv(h if place == 0 else F.relu(h)))
        return F.relu(h + self.skip(x))


class ResNet(nn.Module):
    """7×7 stem, max-pooling, four stages, global average, dense layer."""

    def __init__(self, counts: tuple[int, ...], expansion: int):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for stage, count in enumerate(counts):
            for place in range(count):
                stride = 2 if stage and not place else 1
                blocks.append(Block(channels, 64 * 2**stage, stride, expansion))
                channels = 64 * 2**stage * expansion
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def problem(kind: str, examples: int) -> tuple[ResNet, Tensor]:
    """ResNet-18 on 64×64 or ResNet-50 on 32×32 random images."""
    torch.manual_seed(0)
    if kind == "ResNet-18":
        return ResNet((2, 2, 2, 2), 1).eval(), torch.randn(examples, 3, 64, 64)
    return ResNet((3, 4, 6, 3), 4).eval(), torch.randn(examples, 3, 32, 32)


def direct_kernel(model: ResNet, x: Tensor) -> Tensor:
    """The obvious way, for basic blocks: products over channels for all pairs of positions, gathers, shifted sums."""
    gates = gl.capture_gates(model, x)
    masks = {name: gates[name].float() for name in gates.layers if "pool" not in name}
    first = F.relu(model.norm(model.stem(x)))
    winners = F.max_pool2d(first, 3, 2, 1, return_indices=True)[1].flatten(2)
    opened = masks["relu"].flatten(2).gather(2, winners)
    kernel = torch.empty(len(x), len(x))
    for i in range(len(x)):
        for j in range(i + 1):
            pairs = torch.einsum("cyx,cvu->yxvu", x[i], x[j])
            stem = _shifted(pairs, model.stem, 1.0).flatten(2).flatten(0, 1)
            # Behind the max-pooling every channel has a covariance of its own.
            own = stem[winners[i][:, :, None], winners[j][:, None, :]]
            terms = [(opened[i], opened[j], own)]
            for number, block in enumerate(model.blocks):
                terms = _through(block, terms, [masks[f"blocks.{number}.relu{end}"] for end in ("", "#2")], i, j)
            kernel[i, j] = kernel[j, i] = _summed(terms).mean() / 512
    return kernel


def _through(block: Block, terms: list, masks: list[Tensor], i: int, j: int) -> list:
    inner, outer = (mask.flatten(2) for mask in masks)
    pairs = _square(_summed(terms))
    hidden = _shifted(pairs, block.convs[0], 1 / block.convs[0].weight[0].numel())
    hidden = hidden.flatten(2).flatten(0, 1) * torch.einsum("cp,cq->pq", inner[i], inner[j])
    branch = _shifted(_square(hidden), block.convs[1], 1 / block.convs[1].weight[0].numel())
    branch = branch.flatten(2).flatten(0, 1)
    if not isinstance(block.skip, nn.Identity):
        side = _shifted(pairs, block.skip, 1 / block.skip.weight[0].numel()).flatten(2).flatten(0, 1)
        return [(outer[i], outer[j], branch + side)]
    kept = [(a * outer[i], b * outer[j], covariance) for a, b, covariance in terms]
    return [*kept, (outer[i], outer[j], branch)]


def _summed(terms: list) -> Tensor:
    total = 0
    for a, b, covariance in terms:
        if covariance.ndim == 3:
            total = total + torch.einsum("cp,cq,cpq->pq", a, b, covariance)
        else:
            total = total + torch.einsum("cp,cq->pq", a, b) * covariance
    return total


def _square(pairs: Tensor) -> Tensor:
    side = round(pairs.shape[0] ** 0.5)
    return pairs.view(side, side, side, side)


def _shifted(pairs: Tensor, conv: nn.Conv2d, scale: float) -> Tensor:
    taps, stride, padding = conv.kernel_size[0], conv.stride[0], conv.padding[0]
    padded = F.pad(pairs, (padding,) * 8)
    out = (pairs.shape[0] + 2 * padding - taps) // stride + 1
    total = torch.zeros(out, out, out, out)
    reach = (out - 1) * stride + 1
    for dy in range(taps):
        for dx in range(taps):
            rows, columns = slice(dy, dy + reach, stride), slice(dx, dx + reach, stride)
            total += padded[rows, columns, rows, columns]
    return total.mul_(scale)


def forward_and_backward(model: nn.Module, x: Tensor) -> None:
    """One pass of all examples in each direction."""
    model(x).sum().backward()


def run() -> list[Ratio]:
    """Measure."""
    ratios = []
    model, x = problem("ResNet-18", EXAMPLES)
    few = x[:DIRECT_EXAMPLES]
    with torch.no_grad():
        torch.testing.assert_close(gl.neural_path_kernel(model, few), direct_kernel(model, few), rtol=1e-3, atol=1e-6)
        ours, direct = interleaved(lambda: gl.neural_path_kernel(model, x), lambda: direct_kernel(model, few), rounds=1)
    pairs, few_pairs = (n * (n + 1) / 2 for n in (EXAMPLES, DIRECT_EXAMPLES))
    speed_up = (direct / few_pairs) / (ours / pairs)
    work = f"path kernel, ResNet-18, 64×64, n = {EXAMPLES}"
    ratios.append(Ratio(work, "direct float32 evaluation, per pair (speed-up)", speed_up, "≥ 8", speed_up >= 8))
    for kind in ("ResNet-18", "ResNet-50"):
        model, x = problem(kind, EXAMPLES)
        work = f"path kernel, {kind}, {x.shape[2]}×{x.shape[3]}, n = {EXAMPLES}"
        memory = float(in_fresh_process(f"benchmarks.residual_memory {kind}"))
        ratios.append(Ratio(work, "4 GiB (peak memory)", memory, "≤ 1", memory <= 1))
        start = time.perf_counter()
        gl.neural_path_kernel(model, x)
        seconds = time.perf_counter() - start
        (passes,) = interleaved(lambda model=model, x=x: forward_and_backward(model, x), rounds=2)
        ratios.append(Ratio(work, "forward and backward pass of these examples (time)", seconds / passes, "none", True))
        with torch.no_grad():
            one = x[:1]
            reading, once = interleaved(
                lambda m=model, one=one: read(m, one),
                lambda m=model, one=one: m(one),
                rounds=15,
                clock=time.process_time,  # milliseconds, which other work would disturb
            )
        share = reading / once
        against = "forward pass of one example (processor time)"
        ratios.append(Ratio(f"reading {kind}", against, share, "≤ 2", share <= 2))
    return ratios
