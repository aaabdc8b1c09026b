"""The path kernel beyond fully connected networks: bundles of paths that share their weights (npk, generalised)."""

import torch
from torch import Tensor, nn

from gatelab.gates import capture_gates
from gatelab.kernels import neural_path_kernel
from gatelab.models import initialise
from gatelab.theorems._measure import against, identity, relative_error
from gatelab.theorems._registry import theorem
from gatelab.theorems._result import Measurement


@theorem(
    "npk-rotation", "Convolutional bundles", "H of a circular CNN with global pooling ignores rotations of an input"
)
def rotation_invariance(seed: int) -> Measurement:
    """Path bundles that differ by a shift share their weights: rotate one input and compare the kernel's row."""
    generator = torch.Generator().manual_seed(seed)
    options = {"padding": 1, "padding_mode": "circular", "dtype": torch.float64}
    pooled = nn.Sequential(
        nn.Conv2d(2, 6, 3, **options), nn.ReLU(), nn.Conv2d(6, 5, 3, **options), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    )
    model = nn.Sequential(*pooled.children(), nn.Flatten(), nn.Linear(5, 1, dtype=torch.float64))
    initialise(model, generator)
    x = torch.randn(4, 2, 6, 5, generator=generator, dtype=torch.float64)
    kernel = neural_path_kernel(model, x)
    rotated = torch.stack([neural_path_kernel(model, x.roll((a, b), (2, 3)), x) for a, b in ((1, 0), (0, 2), (3, 4))])
    flattened = nn.Sequential(*list(pooled.children())[:4], nn.Flatten(), nn.Linear(150, 1, dtype=torch.float64))
    moved = relative_error(neural_path_kernel(flattened, x.roll(1, 2), x), neural_path_kernel(flattened, x))
    return Measurement(
        (identity("H(rotated x, x') against H(x, x')", rotated, kernel.expand_as(rotated)),),
        against(rotated, kernel.expand_as(rotated), "H(s, s') after three rotations"),
        (f"flattened instead of pooled, the same rotation changes H by {moved:.0%}.",),
    )


@theorem("npk-residual", "Residual bundles", "H of a residual network is the sum of H over its sub-networks")
def residual_sum(seed: int) -> Measurement:
    """Two blocks x + W relu(V x): four sub-networks, the gates of the whole in each."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    width = 5
    stem, *inner = (nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in ((3, width), *((width, width),) * 4))
    model = _Residual(stem, inner, nn.Linear(width, 1, bias=False, dtype=torch.float64))
    initialise(model, generator)
    whole = neural_path_kernel(model, x, normalise=False)
    pattern = capture_gates(model, x)
    gates = [pattern[name].double() for name in pattern.layers]
    # Paths through a branch: any of its units open for both (τ), then any of the layer behind; past it: the unit stays.
    overlaps = [gate @ gate.T for gate in gates]
    gram = x @ x.T
    parts = [
        gram * width,  # past both blocks: one layer of units before the head
        gram * width * overlaps[0] * width,
        gram * width * overlaps[1] * width,
        gram * width * overlaps[0] * width * overlaps[1] * width,
    ]
    total = torch.stack(parts).sum(dim=0)
    return Measurement((identity("H against the sum", whole, total),), against(whole, total, "H(s, s')"))


class _Residual(nn.Module):
    def __init__(self, stem: nn.Linear, inner: list[nn.Linear], head: nn.Linear):
        super().__init__()
        self.stem, self.inner, self.head = stem, nn.ModuleList(inner), head

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for into, out in zip(self.inner[::2], self.inner[1::2], strict=True):
            h = h + out(torch.relu(into(h)))
        return self.head(h)
