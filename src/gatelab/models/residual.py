"""Residual networks for small images."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.models.init import Start, check_counts, initialise


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch-norm, and a shortcut: the identity, or a 1×1 projection if shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h2 w2"]:
        """Return the ReLU of shortcut plus branch."""
        branch = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(branch + self.shortcut(x))


class ResNet(nn.Module):
    """A 3×3 stem, stages of residual blocks (all but the first halve the size), global average pooling."""

    def __init__(
        self,
        blocks: Sequence[int],
        channels: Sequence[int],
        inputs: int,
        outputs: int,
        start: Start,
        generator: torch.Generator | None,
    ):
        super().__init__()
        if len(blocks) != len(channels) or not blocks:
            raise InputError(f"{len(blocks)} stages of blocks, {len(channels)} of channels; give both for each stage")
        self.conv = nn.Conv2d(inputs, channels[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels[0])
        self.relu = nn.ReLU()
        stages: list[nn.Module] = []
        before = channels[0]
        for stage, (count, width) in enumerate(zip(blocks, channels, strict=True)):
            for block in range(count):
                stages.append(ResidualBlock(before, width, stride=2 if stage > 0 and block == 0 else 1))
                before = width
        self.blocks = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, outputs)
        initialise(self, generator, start)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        """Return the class scores."""
        x = self.blocks(self.relu(self.bn(self.conv(x))))
        return self.head(self.pool(x).flatten(1))


def resnet(
    depth: int,
    *,
    inputs: int = 3,
    outputs: int = 10,
    start: Start = Start.KAIMING,
    generator: torch.Generator | None = None,
) -> ResNet:
    """Return a residual network for 32×32 images (halfspace, Table 2, uses depths 34 and 110).

    Args:
        depth: number of weight layers. Depth 34 has stages of 3, 4, 6, 3 blocks with 64 to 512 channels. Depths 6k + 2
            (20, 110, …) have three stages of k blocks with 16, 32, 64 channels.
        inputs: channels of an image.
        outputs: number of outputs.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        The network.

    Example:
        >>> len(resnet(20).blocks)
        9
    """
    check_counts(depth=depth, inputs=inputs, outputs=outputs)
    if depth == 34:
        blocks, channels = (3, 4, 6, 3), (64, 128, 256, 512)
    elif depth >= 8 and depth % 6 == 2:
        blocks, channels = ((depth - 2) // 6,) * 3, (16, 32, 64)
    else:
        raise InputError(f"depth is {depth}; it must be 34 or 6k + 2 (20, 32, 44, 56, 110, …)")
    return ResNet(blocks, channels, inputs, outputs, start, generator)
