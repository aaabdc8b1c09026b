"""What all tasks need, as it travels."""

import pickle

import pytest
import torch

from tests.work.tasks import Counting, product

held = pytest.importorskip("gatelab.work.held")


def travel(thing, protocol=5):
    """As Dask sends it: large buffers beside the rest, where the protocol can do that."""
    buffers = [] if protocol == 5 else None
    content = pickle.dumps(thing, protocol, buffer_callback=buffers.append if protocol == 5 else None)
    return pickle.loads(content, buffers=[bytearray(one) for one in buffers] if protocol == 5 else None)


class Several:
    def __init__(self):
        self.x = torch.randn(700, 400)
        self.same = self.x.detach()
        self.half = self.x.to(torch.bfloat16).repeat(3, 1)
        self.turned = self.x.T
        self.small = torch.arange(3)
        self.weight = torch.nn.Parameter(torch.randn(600, 600))
        self.wanted = torch.randn(600, 600, requires_grad=True)


@pytest.mark.parametrize("protocol", [4, 5])
def test_everything_arrives_as_it_was(protocol):
    sent = Several()
    function, common = travel(travel(held.Held.of(product, sent), protocol), protocol).open()
    assert function is product
    for name, tensor in vars(sent).items():
        arrived = getattr(common, name)
        assert type(arrived) is type(tensor)
        assert arrived.dtype == tensor.dtype
        assert arrived.stride() == tensor.stride()
        assert arrived.requires_grad == tensor.requires_grad
        assert torch.equal(arrived, tensor)
    assert common.same.data_ptr() == common.x.data_ptr()


def test_a_large_tensor_is_held_once():
    common = Counting(1000)
    sent = held.Held.of(product, common)
    assert len(sent._content) < 5000
    assert sent._tensors[0] is common.weights
    arrived = travel(sent)
    _, there = arrived.open()
    assert arrived._tensors[0] is there.weights
    assert there.weights.data_ptr() != common.weights.data_ptr()
    assert arrived.open()[1] is there


def test_a_peer_gets_what_came_whatever_a_task_does_to_it():
    """As if a task had a network's parameters exchanged just now, or kept something that cannot be sent."""
    arrived = travel(held.Held.of(product, torch.nn.Linear(2, 3)))
    _, network = arrived.open()
    before = network.weight.detach().clone()
    network._parameters["weight"] = network.weight * 2
    network.kept = lambda: None
    _, again = travel(arrived).open()
    assert torch.equal(again.weight, before)
    assert not hasattr(again, "kept")
