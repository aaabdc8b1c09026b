"""Booleans packed 64 to a word, on any device.

A word is an ``int64`` element that holds an unsigned 64-bit pattern, because torch has bit operations for the signed
type only. Bit b of word k of a row is gate 64 k + b.
"""

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

_WORD = 64


def pack(gates: Bool[Tensor, "n units"]) -> Int64[Tensor, "n words"]:
    """Pack each row of booleans into 64-bit words, padded with zeros.

    Example:
        >>> pack(torch.tensor([[True, False, True]])).tolist()
        [[5]]
    """
    n, units = gates.shape
    words = -(-units // _WORD)
    if gates.device.type == "cpu":
        padded = np.zeros((n, words * 8), np.uint8)
        padded[:, : -(-units // 8)] = np.packbits(gates.detach().numpy(), axis=1, bitorder="little")
        return torch.from_numpy(padded).view(torch.int64)
    padded = gates.new_zeros((n, words * _WORD), dtype=torch.uint8)
    padded[:, :units] = gates
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=gates.device)
    octets = (padded.view(n, words * 8, 8) * weights).sum(dim=-1, dtype=torch.uint8)
    return octets.view(torch.int64)


def unpack(words: Int64[Tensor, "n words"], units: int) -> Bool[Tensor, "n units"]:
    """Undo :func:`pack`.

    Example:
        >>> unpack(torch.tensor([[5]]), 3).tolist()
        [[True, False, True]]
    """
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=words.device)
    octets = words.contiguous().view(torch.uint8)
    return (octets.unsqueeze(-1) & weights).bool().flatten(1)[:, :units]


def one(words: Int64[Tensor, "n words"], unit: int) -> Bool[Tensor, " n"]:
    """Return one column of what :func:`pack` packed.

    Example:
        >>> one(torch.tensor([[5], [2]]), 2).tolist()
        [True, False]
    """
    return (words[:, unit // _WORD] >> (unit % _WORD) & 1).bool()


def popcount(words: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
    """Count the one bits in each word.

    Example:
        >>> popcount(torch.tensor([5, -1])).tolist()
        [2, 64]
    """
    # The usual parallel sum over pairs, nibbles and octets; the product adds up the eight octets in the top one.
    pairs = words - ((words >> 1) & 0x5555555555555555)
    nibbles = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    octets = (nibbles + (nibbles >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (octets * 0x0101010101010101) >> 56
