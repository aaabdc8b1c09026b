"""Networks that others wrote, from pytorchcv: how each is built, the images it takes, and what must be refused.

Weights are random, so nothing is downloaded. Batch-norm statistics are random too: at mean 0 and variance 1 an error in
them would not show.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_GLOBAL_POOLING = 7  # only a final pooling, made for 224 pixels, has so wide a window


@dataclass(frozen=True)
class Network:
    """One network of the list.

    Attributes:
        name: its name in pytorchcv.
        size: height and width of its images.
        cheap: whether the default suite tests it.
        curved: the operation that makes it other than piecewise linear; empty for piecewise linear networks.
        tied: why its weights have no independent values; empty if they do.
    """

    name: str
    size: int = 64
    cheap: bool = False
    curved: str = ""
    tied: str = ""

    @property
    def is_piecewise_linear(self) -> bool:
        """Whether every operation is a gate or linear."""
        return not self.curved

    def build(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        """Return the network in evaluation mode, with random weights and random batch-norm statistics."""
        from pytorchcv.model_provider import get_model

        with torch.random.fork_rng(devices=[]), _single_precision():
            torch.manual_seed(seed)
            net = get_model(self.name)
            for module in net.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                    _randomise(module)
        if self.size < 224 and not self.is_small_image:
            _pool_globally(net)
        return net.to(dtype).eval()

    def images(self, n: int = 2, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
        """Return n random images of the size that the network takes."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, 3, self.size, self.size, generator=generator, dtype=torch.float64).to(dtype)

    @property
    def is_small_image(self) -> bool:
        """Whether the network was made for images of 32 pixels."""
        return self.name.endswith(("cifar10", "svhn"))


@contextmanager
def _single_precision() -> Iterator[None]:
    """Draw the same weights whatever the default dtype is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _randomise(norm: nn.Module) -> None:
    if norm.running_mean is not None:
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
    if norm.affine:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.1)


def _pool_globally(net: nn.Module) -> None:
    """Let a final pooling over a fixed window take images of any size."""
    for path, module in list(net.named_modules()):
        owner, _, leaf = path.rpartition(".")
        if isinstance(module, nn.AvgPool2d) and (leaf == "final_pool" or _side(module) >= _GLOBAL_POOLING):
            setattr(net.get_submodule(owner), leaf, nn.AdaptiveAvgPool2d(1))


def _side(pool: nn.AvgPool2d) -> int:
    return pool.kernel_size if isinstance(pool.kernel_size, int) else min(pool.kernel_size)


_CHEAP = set(
    "resnet20_cifar10 preresnet20_cifar10 shakedropresnet20_cifar10 resnet18_wd4 darknet_tiny squeezenet_v1_1 "
    "mobilenetv2_wd4 sharesnet18 seresnet10".split()
)

_PLAIN = """
alexnetb:224 vgg11:224 bn_vgg11b:224 diracnet18v2 darknet_ref darknet_tiny darknet19 nin_cifar10:32

resnet10 resnet18 resnet18_wd4 resnet34 resnet50 resnet50b resnetbc14b preresnet18 preresnet18_wd4 preresnet50 wrn50_2
resneta10 resneta18 resnetd50b resnext14_32x4d resnext50_32x4d darknet53 drnc26 drnd22 dla34 dla46c dpn68 selecsls42
bagnet9 bagnet17 revnet38 irevnet301 hrnet_w18_small_v1 octresnet10_ad2
resnet20_cifar10:32 resnet56_cifar10:32 preresnet20_cifar10:32 preresnet56_cifar10:32 resnext20_16x4d_cifar10:32
pyramidnet110_a48_cifar10:32 wrn16_10_cifar10:32 wrn20_10_1bit_cifar10:32 rir_cifar10:32 ror3_56_cifar10:32
resdropresnet20_cifar10:32 shakedropresnet20_cifar10:32 shakeshakeresnet20_2x16d_cifar10:32 fractalnet_cifar10:32

densenet121 peleenet vovnet27s hardnet39ds condensenet74_c4_g4 sparsenet121 xdensenet121_2
densenet40_k12_cifar10:32 densenet40_k12_bc_cifar10:32 xdensenet40_2_k24_bc_cifar10:32 msdnet22_cifar10:32

bninception inceptionv3:96 inceptionv4:96 inceptionresnetv1:96 inceptionresnetv2:96 xception
squeezenet_v1_0 squeezenet_v1_1 squeezeresnet_v1_0 squeezeresnet_v1_1 sqnxt23_w1 sqnxt23v5_w1

shufflenet_g1_wd4 shufflenet_g3_wd4 shufflenet_g8_w1 shufflenetv2_wd2 shufflenetv2b_wd2 mobilenet_wd4 mobilenetb_wd4
fdmobilenet_wd4 mobilenetv2_wd4 mobilenetv2b_wd4 igcv3_wd4 channelnet espnetv2_wd2 mnasnet_b1 spnasnet
proxylessnas_cpu fbnet_cb nasnet_4a1056 pnasnet5large darts

unet_cityscapes
"""

_TIED = {
    "polynet:96": "units of the polynomial share one block",
    "sharesnet18": "the units of a stage share one convolution",
}

_CURVED = {
    "alexnet:224": "local response norm",
    "zfnet:224": "local response norm",
    "zfnetb:224": "local response norm",
    "ibn_resnet50": "instance norm",
    "seresnet10": "squeeze-and-excitation",
    "mnasnet_small": "squeeze-and-excitation",
    "fishnet99": "squeeze-and-excitation",
    "ghostnet": "squeeze-and-excitation",
    "efficientnet_b0": "Swish",
    "mixnet_s": "Swish",
    "mobilenetv3_small_w7d20": "hard Swish",
    "menet108_8x1_g3": "sigmoid",
    "airnet50_1x64d_r2": "sigmoid",
    "dicenet_wd5": "sigmoid",
    "scnet50:128": "sigmoid",
    "bam_resnet18": "sigmoid",
    "cbam_resnet18": "sigmoid",
    "resattnet56": "sigmoid",
    "resnesta18": "softmax",
    "sknet50": "softmax",
    "lwopenpose2d_mobilenet_cmupan_coco": "ELU",
}


def _network(entry: str, curved: str = "", tied: str = "") -> Network:
    name, _, size = entry.partition(":")
    return Network(name, int(size or 64), name in _CHEAP, curved, tied)


NETWORKS = (
    *(_network(entry) for entry in _PLAIN.split()),
    *(_network(entry, tied=why) for entry, why in _TIED.items()),
    *(_network(entry, curved=why) for entry, why in _CURVED.items()),
)
BY_NAME = {network.name: network for network in NETWORKS}
