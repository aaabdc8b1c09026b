"""Convolutional models with unusual windows, strides, paddings, groups and layouts."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.attacks.models.cases import EVERYTHING, case, forward_of

KERNELS = tuple(what for what in EVERYTHING if what != "region")
IMAGE = (1, 5, 5)


def image(name, convolution, after, shape):
    """Register: a convolution, ReLU, something, and a mean or sum as the head."""

    def build():
        return nn.Sequential(convolution(), nn.ReLU(), after())

    case(shape, documented=KERNELS, name=name)(build)


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, x):
        return x.mean(tuple(range(2, x.ndim)))


for name, convolution, shape in (
    ("stride_three", lambda: nn.Conv2d(1, 2, 2, stride=3), IMAGE),
    ("unequal_strides", lambda: nn.Conv2d(1, 2, (1, 3), stride=(1, 2), padding=(0, 1)), IMAGE),
    ("dilation", lambda: nn.Conv2d(1, 2, 2, dilation=2), IMAGE),
    ("padding_same", lambda: nn.Conv2d(1, 1, 3, padding="same"), IMAGE),
    ("padding_valid", lambda: nn.Conv2d(1, 2, 2, padding="valid"), IMAGE),
    ("padding_larger_than_the_kernel", lambda: nn.Conv2d(1, 2, 2, padding=3), IMAGE),
    ("reflected_padding", lambda: nn.Conv2d(1, 2, 2, padding=1, padding_mode="reflect"), IMAGE),
    ("circular_padding", lambda: nn.Conv2d(1, 2, 2, padding=(2, 1), padding_mode="circular"), IMAGE),
    ("replicated_padding", lambda: nn.Conv2d(1, 2, 2, padding=1, padding_mode="replicate"), IMAGE),
    ("groups", lambda: nn.Conv2d(2, 4, (2, 1), groups=2), (2, 4, 4)),
    ("depthwise", lambda: nn.Conv2d(2, 2, 2, groups=2), (2, 4, 4)),
    ("transposed", lambda: nn.ConvTranspose2d(1, 2, 2, stride=2), (1, 3, 3)),
    ("transposed_with_output_padding", lambda: nn.ConvTranspose2d(1, 2, 2, stride=3, output_padding=1), (1, 3, 3)),
    ("transposed_with_groups", lambda: nn.ConvTranspose2d(2, 2, 2, groups=2, padding=1), (2, 3, 3)),
    ("one_axis", lambda: nn.Conv1d(1, 2, 3, padding=2, dilation=2), (1, 7)),
    ("one_axis_transposed", lambda: nn.ConvTranspose1d(1, 2, 3, stride=2, padding=1), (1, 5)),
    ("three_axes", lambda: nn.Conv3d(1, 1, 2), (1, 3, 3, 3)),
):
    image(name, convolution, Mean if len(name) % 2 else nn.Flatten, shape)

for name, pooling, shape in (
    ("max_pooling_with_overlap", lambda: nn.MaxPool2d(3, 1, 1), IMAGE),
    ("max_pooling_with_ceil_mode", lambda: nn.MaxPool2d(2, ceil_mode=True), IMAGE),
    ("max_pooling_with_dilation", lambda: nn.MaxPool2d(2, 1, dilation=2), IMAGE),
    ("max_pooling_with_unequal_windows", lambda: nn.MaxPool2d((1, 3), (2, 1)), IMAGE),
    ("adaptive_maxima", lambda: nn.AdaptiveMaxPool2d(2), (1, 5, 5)),
    ("adaptive_maxima_of_one", lambda: nn.AdaptiveMaxPool2d(1), IMAGE),
    ("adaptive_averages", lambda: nn.AdaptiveAvgPool2d((2, 3)), IMAGE),
    ("uneven_adaptive_averages", lambda: nn.AdaptiveAvgPool2d(3), IMAGE),
    ("averages_without_padding", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    ("averages_with_ceil_mode", lambda: nn.AvgPool2d(3, 2, ceil_mode=True), IMAGE),
    ("averages_with_a_divisor", lambda: nn.AvgPool2d(2, divisor_override=3), IMAGE),
    ("nearest_upsampling", lambda: nn.Upsample(scale_factor=2), IMAGE),
    ("bilinear_upsampling", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    ("bilinear_upsampling_of_corners", lambda: nn.Upsample(size=6, mode="bilinear", align_corners=True), IMAGE),
    ("bicubic_upsampling", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    ("reflected_pad", lambda: nn.ReflectionPad2d((1, 0, 2, 1)), IMAGE),
    ("constant_pad", lambda: nn.ConstantPad2d(1, 0.5), IMAGE),
    ("negative_pad", lambda: nn.ZeroPad2d((-1, 0, 0, -1)), IMAGE),
    ("unfolded", lambda: nn.Unfold(2), IMAGE),
    ("power_average_pooling", lambda: nn.LPPool2d(2, 2), IMAGE),
):
    case(shape, name=f"{name}_between_gates")(
        lambda pooling=pooling: nn.Sequential(nn.Conv2d(1, 2, 2), nn.LeakyReLU(0.2), pooling(), nn.ReLU(), Mean())
    )


@case(IMAGE, documented=("gates",))
def maxima_with_indices():
    return forward_of(
        lambda m, x: m.pool(F.relu(m.conv(x)))[0].flatten(1),
        conv=nn.Conv2d(1, 2, 2),
        pool=nn.MaxPool2d(2, return_indices=True),
    )


def _pooled(model):
    return forward_of(lambda m, x: F.adaptive_max_pool2d(F.relu(m.conv(x)), 1).flatten(1), conv=model.conv)


@case(IMAGE, plain=_pooled)
def a_global_maximum():
    return forward_of(lambda m, x: F.relu(m.conv(x)).amax((2, 3)), conv=nn.Conv2d(1, 2, 2))


@case((4, 3, 3), documented=("gates", "path kernel", "raw path kernel"))
def shuffled_channels():
    return nn.Sequential(
        nn.Conv2d(4, 4, 1, groups=4), nn.ReLU(), nn.ChannelShuffle(2), nn.Conv2d(4, 1, 1), nn.Flatten()
    )


@case((1, 4, 4), documented=("gates",))
def pixels_shuffled():
    return nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(1, 1, 2), nn.Flatten())


@case((1, 4, 4), documented=("gates",))
def pixels_unshuffled():
    return nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.PixelUnshuffle(2), nn.Conv2d(4, 1, 1), nn.Flatten())


@case((1, 3, 3), documented=("gates",))
def channels_last():
    return forward_of(
        lambda m, x: m.head(F.relu(m.conv(x)).permute(0, 2, 3, 1)).flatten(1),
        conv=nn.Conv2d(1, 2, 2),
        head=nn.Linear(2, 1),
    )


@case((1, 3, 3), documented=("gates",))
def channels_last_memory():
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Conv2d(2, 1, 1), nn.Flatten())
    return model.to(memory_format=torch.channels_last)


@case((2, 3, 3))
def rows_side_by_side():
    def forward(m, x):
        h = F.relu(m.conv(x))
        return m.head(torch.cat([h, h.flip(2)], 2)).mean((2, 3))

    return forward_of(forward, conv=nn.Conv2d(2, 2, 1), head=nn.Conv2d(2, 1, 2))


@case((2, 3, 3), documented=("gates",))
def strided_slices():
    return forward_of(
        lambda m, x: m.head(F.relu(m.conv(x))[:, ::2, 1:, :-1]).flatten(1),
        conv=nn.Conv2d(2, 3, 1),
        head=nn.Conv2d(2, 1, 1),
    )


@case((2, 3, 3), documented=("twin", "tangent kernel", "paths"), soft=True)
def squeeze_and_excitation():
    def forward(m, x):
        h = F.relu(m.conv(x))
        return (h * torch.sigmoid(m.scale(h.mean((2, 3))))[:, :, None, None]).flatten(1)

    return forward_of(forward, conv=nn.Conv2d(2, 2, 1), scale=nn.Linear(2, 2))


@case((2, 4, 4), documented=("gates", "twin", "path kernel", "raw path kernel", "tangent kernel"))
def a_residual_block():
    def forward(m, x):
        h = F.relu(m.bn(m.conv(x)))
        return F.relu(m.body(h) + h).mean((2, 3))

    return forward_of(forward, conv=nn.Conv2d(2, 2, 1), bn=nn.BatchNorm2d(2), body=nn.Conv2d(2, 2, 1))


@case((1, 4, 4), documented=("gates",))
def a_skip_around_a_pooling():
    def forward(m, x):
        h = F.relu(m.conv(x))
        return m.head(F.max_pool2d(h, 2) + F.avg_pool2d(h, 2)).flatten(1)

    return forward_of(forward, conv=nn.Conv2d(1, 2, 1), head=nn.Conv2d(2, 1, 2))


@case((1, 5, 5), documented=("gates",))
def two_poolings_in_a_row():
    return nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1), nn.Conv2d(2, 1, 1), nn.Flatten()
    )


@case((1, 5, 5), documented=("gates",))
def a_pooling_of_negative_values():
    return nn.Sequential(
        nn.Conv2d(1, 2, 2, bias=False), nn.MaxPool2d(2, padding=1), nn.ReLU(), nn.Conv2d(2, 1, 1), nn.Flatten()
    )


@case((1, 4, 4))
def convolution_by_unfolding():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(F.unfold(x, 2).transpose(1, 2))).flatten(1)),
        first=nn.Linear(4, 1),
        head=nn.Linear(9, 1, bias=False),
    )


@case((1, 4, 4), documented=("gates",), weights=("w", "v"))
def functional_convolutions():
    return forward_of(
        lambda m, x: F.conv2d(F.relu(F.conv2d(x, m.w, stride=2)), m.v).flatten(1),
        w=nn.Parameter(torch.randn(2, 1, 2, 2)),
        v=nn.Parameter(torch.randn(1, 2, 1, 1)),
    )


@case((1, 4, 4))
def a_fixed_filter():
    return forward_of(
        lambda m, x: m.head(F.relu(F.conv2d(x, m.blur))).flatten(1),
        blur=torch.ones(1, 1, 2, 2) / 4,
        head=nn.Conv2d(1, 1, 2),
    )


@case((1, 2, 2), documented=("gates", "path kernel", "raw path kernel"))
def a_skip_around_a_grouped_convolution_of_a_concatenation():
    def forward(m, x):
        h = F.relu(m.first(x))
        h = torch.cat([h, F.relu(m.second(h))], 1)
        return F.relu(m.body(h) + h).mean((2, 3))

    return forward_of(
        forward,
        first=nn.Conv2d(1, 2, 1),
        second=nn.Conv2d(2, 2, 1, groups=2, bias=False),
        body=nn.Conv2d(4, 4, 1, groups=2, bias=False),
    )


def _without_keywords(model):
    def forward(self, x):
        h = F.relu(self.first(x))
        h = self.pool(h + F.relu(self.second(h)))
        return self.last(torch.cat([h, 0.5 * h], 1).flatten(1))

    return forward_of(forward, first=model.first, second=model.second, pool=model.pool, last=model.last)


@case((1, 3, 3), documented=KERNELS, plain=_without_keywords)
def everything_by_keyword():
    """The first argument of a function has a name, too."""

    def forward(self, x):
        h = F.relu(input=F.conv2d(input=x, weight=self.first.weight, bias=self.first.bias))
        h = torch.add(input=h, other=F.relu(input=F.conv2d(weight=self.second.weight, input=h, padding="same")))
        h = torch.cat(tensors=[self.pool(input=h), torch.mul(input=self.pool(h), other=0.5)], dim=1)
        return F.linear(weight=self.last.weight, input=torch.flatten(input=h, start_dim=1))

    return forward_of(
        forward,
        first=nn.Conv2d(1, 1, 2),
        second=nn.Conv2d(1, 1, 1, bias=False),
        pool=nn.MaxPool2d(kernel_size=2),
        last=nn.Linear(2, 1, bias=False),
    )
