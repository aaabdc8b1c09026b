"""Small convolutional networks in common coding styles."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    """Average pooling, a view with a literal size, functional ReLUs, log-probabilities at the end."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 5, padding=2)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.fc1 = nn.Linear(6 * 3 * 3, 12)
        self.fc2 = nn.Linear(12, 5)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, 6 * 3 * 3)
        x = F.dropout(F.relu(self.fc1(x)), p=0.3, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)

    @staticmethod
    def images() -> Tensor:
        return torch.randn(5, 1, 16, 16)


class Vgg(nn.Module):
    """Sequential features with batch-norm and in-place ReLUs, a classifier with dropout."""

    def __init__(self):
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in (4, "pool", 6, 6, "pool"):
            if width == "pool":
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            before = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(24, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 3))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 3, 16, 16)


class Block(nn.Module):
    """The usual residual block: one ReLU module used twice, in place, and an in-place sum."""

    def __init__(self, before: int, after: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Residual(nn.Module):
    """A stem with max-pooling, identity and projection shortcuts, global average pooling."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(Block(4, 4), Block(4, 6, stride=2))
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 3, 8, 8)


class PreActivation(nn.Module):
    """ReLU before the convolution; the in-place write also changes the shortcut."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.bn(self.stem(x))
        x = x + self.conv(self.relu(x))
        return self.head(torch.relu(x).mean((2, 3)))

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 2, 6, 6)


class Dense(nn.Module):
    """Every layer reads the concatenation of all earlier ones."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 2, 3, padding=1)) for c in (3, 5)
        )
        self.norm = nn.BatchNorm2d(7)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = F.relu(self.norm(torch.cat(features, 1)), inplace=True)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 2, 6, 6)


class FunctionalStyle(nn.Module):
    """Parameters without modules, methods that write in place, arithmetic by numbers."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 2, 3, 3) / 4)
        self.offset = nn.Parameter(torch.randn(4) / 4)
        self.dense = nn.Parameter(torch.randn(3, 4 * 16) / 8)
        self.register_buffer("shift", torch.tensor(0.1))

    def forward(self, x):
        x = F.conv2d(2 * x - self.shift, self.kernel, self.offset, padding=1)
        x.relu_()
        x = F.leaky_relu(-x + 0.5, 0.2).clamp(min=0)
        return F.linear(x.reshape(x.size(0), -1), self.dense)

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 2, 4, 4)


class Signals(nn.Module):
    """One-dimensional convolutions, LeakyReLU, adaptive maxima."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(2, 4, 3, padding=1, groups=2), nn.LeakyReLU(0.1, inplace=True), nn.MaxPool1d(3, 2, padding=1)),
            *(nn.Conv1d(4, 3, 3), nn.LeakyReLU(0.3), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(3, 2)),
        )

    def forward(self, x):
        return self.body(x)

    @staticmethod
    def images() -> Tensor:
        return torch.randn(4, 2, 13)


ALL = (LeNet, Vgg, Residual, PreActivation, Dense, FunctionalStyle, Signals)


def made(kind: type[nn.Module]) -> nn.Module:
    """Return a network in evaluation mode with random batch-norm statistics."""
    torch.manual_seed(3)
    model = kind()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
            module.running_mean.normal_(0.0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()
