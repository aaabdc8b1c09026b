"""Multiplication of numbers by gates that are packed eight to a byte, compiled by Numba.

Import this module through :func:`gatelab.kernels.compiled.compiled`: it needs Numba.
"""

import numba


@numba.njit(nogil=True, cache=True, boundscheck=False)
def keep_open(numbers, octets, out):
    """Copy the numbers whose gate is open to ``out``; write zero for the others.

    The mask is −1 (all bits set) or 0: an AND with it keeps or clears a number, including infinities and NaN. LLVM
    turns the inner loop into vector code, which a branch would prevent.

    Args:
        numbers: (n, units) the bits of floating-point numbers, as integers of the same size.
        octets: (n, at least units / 8) bit b of octet k is gate 8 k + b.
        out: (n, units) of the type of ``numbers``.
    """
    n, units = numbers.shape
    integer = numbers.dtype.type
    for i in range(n):
        for k in range(units // 8):
            octet = integer(octets[i, k])
            for b in range(8):
                out[i, 8 * k + b] = numbers[i, 8 * k + b] & -((octet >> integer(b)) & integer(1))
        for unit in range(units - units % 8, units):
            octet = integer(octets[i, unit // 8])
            out[i, unit] = numbers[i, unit] & -((octet >> integer(unit % 8)) & integer(1))
    return out
