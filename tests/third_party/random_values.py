"""The path kernel of a network by its definition: run the network itself with recorded gates and random values."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from tests.references.replay import Record, Replay, fan_in

WEIGHT_LAYERS = (nn.Linear, _ConvNd)


@torch.no_grad()
def estimated_kernel(net: nn.Module, x: Tensor, draws: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return the mean over draws and outputs of ŷ(s) ŷ(s'), and its standard error; overwrites the weights of ``net``.

    Values are ±1/√fan_in, ±1 in the first layer. Biases are zero and batch-norm is the identity: neither counts.
    """
    first = first_layers(net, x)
    with Record() as record:
        net(x)
    events = [event.to(x.dtype) if event.is_floating_point() else event for event in record.events]
    _drop_what_does_not_count(net)
    layers = [module for module in net.modules() if isinstance(module, WEIGHT_LAYERS)]
    generator = torch.Generator().manual_seed(seed)
    products = []
    for _ in range(draws):
        for layer in layers:
            scale = 1.0 if layer in first else fan_in(layer) ** -0.5
            signs = torch.randint(2, layer.weight.shape, generator=generator, dtype=torch.int8)
            layer.weight.copy_(signs).mul_(2).sub_(1).mul_(scale)
        with Replay(events):
            y = net(x).flatten(1).double()
        products.append(y @ y.T / y.shape[1])
    kernels = torch.stack(products)
    return kernels.mean(dim=0), kernels.std(dim=0) / draws**0.5


def first_layers(net: nn.Module, x: Tensor) -> set[nn.Module]:
    """Return the layers whose input depends on no weight."""
    found = set()

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not inputs[0].requires_grad:
            found.add(layer)

    handles = []
    for module in net.modules():
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(isinstance(module, WEIGHT_LAYERS))
        if isinstance(module, WEIGHT_LAYERS):
            handles.append(module.register_forward_pre_hook(note))
    with torch.enable_grad():
        net(x)
    for handle in handles:
        handle.remove()
    return found


def _drop_what_does_not_count(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, _BatchNorm):
            nn.init.ones_(module.weight)
            module.running_mean.zero_()
            module.running_var.fill_(1)
            module.eps = 0.0
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
