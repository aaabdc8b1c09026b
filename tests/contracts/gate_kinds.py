"""Networks with every kind of gate: bits, numbers, and both."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.gates import SoftGate
from gatelab.models import DeepGatedNetwork, mlp
from tests.kernels.path.test_architectures import Net


def dense(activation, widths=(4, 6, 5, 1)):
    """Return a fully connected network with an activation between its layers."""
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


def _product(gate):
    """A gated linear unit: one layer's output times the gate of another's."""
    layers = {name: nn.Linear(4, 6) for name in "ab"}
    return Net(lambda s, x: s.out(s.a(x) * gate(s.b(x))), **layers, out=nn.Linear(6, 1))


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


DENSE = {
    "ReLU": lambda: dense(nn.ReLU),
    "SiLU": lambda: dense(nn.SiLU),
    "GELU": lambda: dense(nn.GELU),
    "GELU (tanh)": lambda: dense(lambda: nn.GELU("tanh")),
    "Hardswish": lambda: dense(nn.Hardswish),
    "Mish": lambda: dense(nn.Mish),
    "ELU": lambda: dense(lambda: nn.ELU(0.7)),
    "SELU": lambda: dense(nn.SELU),
    "CELU": lambda: dense(lambda: nn.CELU(2.0)),  # torch differentiates with 1/α in float32
    "PReLU": lambda: dense(lambda: nn.PReLU(init=0.3)),
    "x · σ(x), written out": lambda: dense(Swish),
    "GLU": lambda: _product(torch.sigmoid),
    "SwiGLU": lambda: _product(F.silu),
    "GEGLU": lambda: _product(F.gelu),
    "ReGLU": lambda: _product(torch.relu),
}
GATED = {
    "DGN, soft": lambda: DeepGatedNetwork([4, 6, 5, 1], gate=SoftGate()),
    "DGN, soft, ε": lambda: DeepGatedNetwork([4, 6, 5, 1], gate=SoftGate(4.0, 0.1)),
    "DNPFL twin": lambda: gl.to_dgn(mlp([4, 6, 5, 1]), gl.Regime.DNPFL),
    "DNPFL twin of a LeakyReLU network": lambda: gl.to_dgn(dense(nn.LeakyReLU), gl.Regime.DNPFL),
    "DLGN twin": lambda: gl.to_dlgn(mlp([4, 6, 5, 1])),
    "DI twin of a SiLU network": lambda: gl.to_dgn(dense(nn.SiLU), gl.Regime.FRNPF_DI),
}


def _excited(h, z):
    return h * z[:, :, None, None]


def _squeeze(squash, activation=F.relu):
    def forward(s, x):
        h = activation(s.conv(x))
        h = _excited(h, squash(s.up(F.relu(s.down(h.mean((2, 3)))))))
        return s.head(activation(s.last(h)).mean((2, 3)))

    return Net(
        forward,
        conv=nn.Conv2d(2, 4, 3, padding=1),
        down=nn.Linear(4, 2),
        up=nn.Linear(2, 4),
        last=nn.Conv2d(4, 3, 2),
        head=nn.Linear(3, 2),
    )


def selective(join):
    """Two branches weighted by a softmax over branches (SKNet); ``join(branches, weights)`` adds them."""

    def forward(s, x):
        branches = F.relu(s.one(x)), F.relu(s.two(x))
        weight = s.weigh(sum(branches).mean((2, 3))).unflatten(1, (2, 3)).softmax(1)
        return s.head(F.relu(s.last(join(branches, weight[..., None, None]))).flatten(1))

    return Net(
        forward,
        one=nn.Conv2d(2, 3, 3, padding=1),
        two=nn.Conv2d(2, 3, 1),
        weigh=nn.Linear(3, 6),
        last=nn.Conv2d(3, 2, 2),
        head=nn.Linear(18, 1),
    )


def _spatial_attention():
    def forward(s, x):
        h = F.silu(s.conv(x))
        mask = F.interpolate(torch.sigmoid(s.look(F.avg_pool2d(h, 2))), scale_factor=2)
        return s.head((h * (1 + mask)).flatten(1))

    return Net(forward, conv=nn.Conv2d(2, 3, 3, padding=1), look=nn.Conv2d(3, 1, 1), head=nn.Linear(48, 1))


# Five ways to write one sum over branches.
JOINED = {
    "added": lambda both, weight: both[0] * weight[:, 0] + both[1] * weight[:, 1],
    "stacked": lambda both, weight: (torch.stack(both, 1) * weight).sum(1),
    "joined and cut (ResNeSt)": lambda both, weight: (torch.cat(both, 1).unflatten(1, (2, 3)) * weight).sum(dim=1),
    "stacked behind channels": lambda both, weight: (torch.stack(both, 1).transpose(1, 2) * weight.transpose(1, 2)).sum(
        2
    ),
    "averaged": lambda both, weight: 2 * (torch.stack(both, 1) * weight).mean(dim=-4),
}
IMAGES = {
    "branches weighted by a softmax": lambda: selective(JOINED["stacked"]),
    "squeeze-and-excitation": lambda: _squeeze(torch.sigmoid),
    "with hard sigmoid and Hardswish": lambda: _squeeze(F.hardsigmoid, F.hardswish),
    "with relu6(x + 3)/6": lambda: _squeeze(lambda q: F.relu6(q + 3) / 6),
    "with ReLU6 on the path": lambda: _squeeze(torch.sigmoid, F.relu6),
    "spatial attention, 1 + σ": _spatial_attention,
    "SiLU and max-pooling": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 2)
    ),
    "GLU over channels": lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.GLU(1), nn.Flatten(), nn.Linear(12, 1)),
}
