"""Dense networks in common coding styles, for tests that must pass on all of them."""

import torch
import torch.nn.functional as F
from torch import nn


class Functional(nn.Module):
    """Functional, in-place and reused ReLUs, and a clamp."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.second = nn.Linear(6, 4)
        self.third = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)
        self.act = nn.ReLU()

    def forward(self, x, mask=None):
        if mask is not None:
            x = x * mask
        x = x.view(x.size(0), -1)
        x = self.act(self.first(x))
        x = F.relu_(self.second(x))
        x = self.third(x).clamp(min=0)
        return self.last(x)


class Residual(nn.Module):
    """A shared ReLU, an identity skip, and an in-place sum."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(5, 6)
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.stem(x))
        out = self.inner(x)
        out += x
        return self.head(self.relu(out))


class Tied(nn.Module):
    """One layer used three times."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        for _ in range(3):
            x = torch.relu(self.layer(x))
        return self.head(x)


class LooseParameters(nn.Module):
    """Parameters used outside nn.Linear, one of them in two ways."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 6)
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        h = torch.relu(self.layer(x))
        h = self.norm(h + torch.relu(h @ self.weight.T))
        return self.head(torch.relu(F.linear(h, self.weight)))


class Tokens(nn.Module):
    """Dense layers on sequences, examples first or second."""

    def __init__(self, examples_first: bool = True):
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)
        self.examples_first = examples_first

    def forward(self, x):
        if self.examples_first:
            return self.head(F.gelu(self.embed(x)).mean(1))
        return self.head(F.gelu(self.embed(x.transpose(0, 1))).mean(0))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 4, 3, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4, 3),
    ).eval()


def leaky() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.LeakyReLU(0.1), nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2))
