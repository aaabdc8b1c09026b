import torch
from hypothesis import given
from hypothesis import strategies as st

from gatelab.gates.bits import pack, popcount, unpack


@given(n=st.integers(1, 5), units=st.integers(1, 200), seed=st.integers(0, 99))
def test_unpack_undoes_pack(n, units, seed):
    gates = torch.rand(n, units, generator=torch.Generator().manual_seed(seed)) < 0.5
    words = pack(gates)
    assert words.shape == (n, -(-units // 64))
    assert torch.equal(unpack(words, units), gates)
    assert torch.equal(popcount(words).sum(dim=1), gates.sum(dim=1))


def test_bit_order_is_fixed_on_disk():
    gates = torch.zeros(1, 130, dtype=torch.bool)
    gates[0, [0, 63, 64, 129]] = True
    assert pack(gates).view(torch.uint64).tolist() == [[1 | 1 << 63, 1, 2]]
