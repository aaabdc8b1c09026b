"""Gates from two networks, layer by layer, against the values passed through those gates by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.convert.regimes import to_mixed_dgn
from gatelab.errors import InputError


def net():
    convolutions = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3), nn.ReLU())
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 2)).eval()


@pytest.mark.parametrize("layers", [[], ["1"], ["2"], ["4", "7"], ["1", "2", "4", "7"]])
def test_each_layer_has_the_gates_of_its_network(layers):
    model, inside, outside, x = net(), net(), net(), torch.randn(6, 1, 8, 8)
    patterns = {True: gl.capture_gates(inside, x), False: gl.capture_gates(outside, x)}

    def gates(layer):
        return patterns[layer in layers][layer].double()

    h = model[0](x) * gates("1")
    windows = F.unfold(h.flatten(0, 1).unsqueeze(1), 2, stride=2).view(6, 3, 4, 4, 4).movedim(2, -1)
    h = (windows * gates("2")).sum(dim=-1)
    h = model[6]((model[3](h) * gates("4")).flatten(1)) * gates("7")
    twin = to_mixed_dgn(model, inside, outside, layers, x=x)
    torch.testing.assert_close(twin(x), model[8](h), rtol=1e-12, atol=1e-12)
    learns = {name.split(".")[0] for name, parameter in twin.named_parameters() if parameter.requires_grad}
    assert learns == {"value"}


def test_a_layer_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="there is no gate layer 9; the layers are 1, 2, 4, 7"):
        to_mixed_dgn(net(), net(), net(), ["9"])
