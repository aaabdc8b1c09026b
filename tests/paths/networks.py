"""Tiny networks of all architectures, small enough to list every path; each with one example."""

import torch
import torch.nn.functional as F
from torch import nn


class Written(nn.Module):
    """A network whose forward is given as a function of its layers and x."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self._written = forward

    def forward(self, x):
        return self._written(self, x)


def _residual(net, x):
    h = F.relu(net.norm1(net.conv1(x)), inplace=True)
    out = net.norm3(net.conv3(F.relu(net.norm2(net.conv2(h)))))
    out += net.skip(h)
    h = net.relu(out)
    return net.fc(F.adaptive_avg_pool2d(h, 1).flatten(1))


def _identity_skips(net, x):
    h = net.a(x)
    h = torch.relu(h) + h  # two ways from one unit to another, with and without a gate
    h = h - net.b(torch.relu(h))
    return net.c(torch.relu(h)) + h[:, :2]


def _concatenated(net, x):
    h = torch.cat([x, torch.relu(net.a(x))], 1)
    h = torch.cat([h, h[:, 1:2], h.new_ones((h.shape[0], 1, 3, 3))], dim=1)
    return net.fc(torch.relu(net.b(h)).flatten(1))


def _shuffled(net, x):
    h = torch.relu(net.a(x))
    one, two = h.chunk(2, dim=1)
    h = torch.stack([two, F.pad(one, (1, 0), value=0.5)[..., :-1]], dim=2).flatten(1, 2)
    h = F.channel_shuffle(h, 2).flip(2).transpose(2, 3).repeat(1, 1, 1, 2)
    return net.fc(torch.relu(net.b(h)).reshape(h.size(0), -1))


def _arithmetic(net, x):
    h = torch.relu(net.a(x) * 0.5 + net.shift)
    h = torch.add(3 - h, -h.mul(net.scale), alpha=0.3) / 2.0
    h = F.batch_norm(h, net.mean, net.variance, net.scale, None, False)
    return net.b(torch.relu(torch.sub(h, 0.1)))


def _arithmetic_network():
    net = Written(_arithmetic, a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    net.shift, net.scale = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    net.register_buffer("mean", torch.randn(4))
    net.register_buffer("variance", torch.rand(4) + 0.5)
    return net


def _tokens(net, x):
    h = torch.relu(net.embed(x))  # (n, tokens, units): one weight for all tokens
    h = torch.relu(net.mix(h.transpose(1, 2)).permute(0, 2, 1)) + h.mean(1, keepdim=True)
    return net.head(h.sum(dim=1))


def _pooled(pool):
    def forward(net, x):
        return net.fc(net.pool(torch.relu(net.conv(x))).flatten(1))

    x = torch.randn(1, 2, 5, 5)
    conv = nn.Conv2d(2, 2, 2, padding=1)
    units = pool(conv(x)).numel()
    return Written(forward, conv=conv, pool=pool, fc=nn.Linear(units, 2)), x


def _convolved(*layers, shape):
    x = torch.randn(1, *shape)
    body = nn.Sequential(*layers)
    return nn.Sequential(body, nn.ReLU(), nn.Flatten(), nn.Linear(body(x).numel(), 2)), x


def _norm(channels):
    norm = nn.BatchNorm2d(channels)
    for held in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(held)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


def _residual_network():
    convolutions = {
        "conv1": nn.Conv2d(1, 2, 2, bias=False),
        "conv2": nn.Conv2d(2, 2, 3, stride=2, padding=1, bias=False),
        "conv3": nn.Conv2d(2, 2, 3, padding="same", bias=False),
    }
    norms = {f"norm{number}": _norm(2) for number in (1, 2, 3)}
    skip = nn.Sequential(nn.Conv2d(2, 2, 1, stride=2, bias=False), _norm(2))
    return Written(_residual, **convolutions, **norms, skip=skip, relu=nn.ReLU(inplace=True), fc=nn.Linear(2, 2))


def _images(small, channels=2):
    return (torch.randn(1, channels, small, small),)


NETWORKS = {
    "dense": lambda: (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)),
                      torch.randn(1, 3)),
    "no gate": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.LogSoftmax(1)), torch.randn(1, 3)),
    "leaky": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2)), torch.randn(1, 3)),
    "bounded": lambda: (nn.Sequential(nn.Linear(3, 8), nn.Hardtanh(-0.3, 0.4), nn.Linear(8, 8), nn.ReLU6(),
                                      nn.Linear(8, 2)), 9 * torch.randn(1, 3)),
    "gate at the end": lambda: (nn.Sequential(nn.Linear(3, 9), nn.ReLU()), torch.randn(1, 3)),
    "convolutions": lambda: _convolved(nn.Conv2d(2, 3, 2, stride=2), nn.ReLU(), nn.Conv2d(3, 2, 2, padding=1),
                                       shape=(2, 4, 4)),
    "groups": lambda: _convolved(nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU(),
                                 nn.Conv2d(6, 6, 2, groups=6, dilation=2), nn.ReLU(), nn.Conv2d(6, 2, 1),
                                 shape=(4, 3, 3)),
    "paddings": lambda: _convolved(nn.Conv2d(1, 2, 3, padding=(2, 1), padding_mode="circular"), nn.ReLU(),
                                   nn.Conv2d(2, 1, 3, padding="same", padding_mode="circular"), nn.ReLU(),
                                   nn.ReflectionPad2d(1), nn.Conv2d(1, 1, 2, stride=4), shape=(1, 4, 3)),
    "one axis": lambda: _convolved(nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.ReLU(),
                                   nn.ConvTranspose1d(4, 4, 3, stride=2, groups=2, output_padding=1), nn.ReLU(),
                                   nn.Conv1d(4, 1, 2, dilation=3), shape=(2, 7)),
    "transposed": lambda: _convolved(nn.ConvTranspose2d(2, 2, 2, padding=1, dilation=2), nn.ReLU(), nn.Conv2d(2, 1, 2),
                                     shape=(2, 3, 3)),
    "three axes": lambda: _convolved(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d((1, 2, 2), 1), shape=(1, 3, 3, 3)),
    "max pool": lambda: _pooled(nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)),
    "functional max pool": lambda: _pooled(lambda h: F.max_pool2d(h, 2, dilation=2)),
    "adaptive max pool": lambda: _pooled(lambda h: F.adaptive_max_pool2d(h, 2)),
    "average pool": lambda: _pooled(nn.AvgPool2d(3, 2, padding=1, count_include_pad=False)),
    "average pool, ceiling": lambda: _pooled(lambda h: F.avg_pool2d(h, 4, 3, ceil_mode=True)),
    "adaptive average pool": lambda: _pooled(nn.AdaptiveAvgPool2d((4, 1))),
    "mean": lambda: _pooled(lambda h: h.mean((2, 3))),
    "mean of channels": lambda: _pooled(lambda h: h.mean(1) + h.sum(-3)),
    "upsampled": lambda: _pooled(lambda h: F.interpolate(h[..., 2:4, 1:3], scale_factor=2, mode="bilinear")),
    "residual": lambda: (_residual_network(), *_images(4, 1)),
    "skips": lambda: (Written(_identity_skips, a=nn.Linear(3, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 2)),
                      torch.randn(1, 3)),
    "concatenated": lambda: (Written(_concatenated, a=nn.Conv2d(2, 2, 3, padding=1), b=nn.Conv2d(6, 1, 2),
                                     fc=nn.Linear(4, 2)), *_images(3)),
    "shuffled": lambda: (Written(_shuffled, a=nn.Conv2d(2, 4, 2, groups=2), b=nn.Conv2d(4, 1, 2), fc=nn.Linear(3, 2)),
                         *_images(3)),
    "arithmetic": lambda: (_arithmetic_network(), torch.randn(1, 3)),
    "tokens": lambda: (Written(_tokens, embed=nn.Linear(2, 3), mix=nn.Linear(3, 3), head=nn.Linear(3, 2)),
                       torch.randn(1, 3, 2)),
}  # fmt: skip


def network(name: str, seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """Return a network in float64 and evaluation mode, and an example for which all its weights matter."""
    while True:
        torch.manual_seed(seed)
        model, x = NETWORKS[name]()
        model, x = model.double().eval(), x.double()
        parameters = list(model.parameters())
        if all(bool(slope.any()) for slope in torch.autograd.grad(model(x)[0, 0], parameters)):
            return model, x
        seed += 100
