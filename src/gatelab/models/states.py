"""Load the tensors of a network into another of the same class."""

from collections import OrderedDict
from collections.abc import Mapping

from torch import Tensor, nn


def load_state(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state dict of the same architecture, as ``network.load_state_dict`` does, from any mapping.

    ``state_dict()`` keeps the version of each module beside the tensors, and some networks (torchvision's MNASNet)
    cannot load tensors without it. A mapping that has no versions gets the network's own.
    """
    versioned = OrderedDict(state)
    versions = getattr(state, "_metadata", None)
    versioned._metadata = network.state_dict()._metadata if versions is None else versions  # type: ignore[attr-defined]
    network.load_state_dict(versioned)
