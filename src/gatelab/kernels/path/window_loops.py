"""Loops over pairs of positions at some offsets, compiled by Numba, for signals after a max-pooling.

The partner p + δ of a position lies ``shift`` further in memory, for all positions alike; where it lies outside the
image, ``inside`` is zero. So all inner loops run over contiguous memory and become vector code. Their indices are
unsigned: Numba lets signed indices count from the end, which prevents vector code.
"""

import numba
import numpy as np

from gatelab.kernels.popcount import ctpop

U = np.uint64


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _multiply(left, right, i, j, shift, inside, d, out):
    """out[p] = Σ_k left[i, k, p] right[j, k, p + shift]."""
    channels, positions = left.shape[1:]
    first, last = U(max(0, -shift)), U(min(positions, positions - shift))
    real = left.dtype.type
    for p in range(U(positions)):
        out[p] = 0
    for k in range(U(channels)):
        for p in range(first, last):
            out[p] += left[i, k, p] * right[j, k, p + U(shift)]
    for p in range(U(positions)):
        out[p] *= real(inside[d, p])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _sum_taps(source, outer, length, inner, starts, stride, outputs, target):
    """target[a, q, b] = Σ_t source[a, stride q + starts[t], b], zero outside; both flat."""
    for p in range(U(outer * outputs * inner)):
        target[p] = 0
    for t in range(len(starts)):
        start = starts[t]
        first = max(0, -(start // stride))
        last = min(outputs, (length - 1 - start) // stride + 1)
        if inner == 1:
            for a in range(outer):
                to, at = U(a * outputs), a * length + start
                for q in range(U(first), U(last)):
                    target[to + q] += source[U(at) + U(stride) * q]
        else:
            for a in range(outer):
                for q in range(first, last):
                    to, at = U((a * outputs + q) * inner), U((a * length + stride * q + start) * inner)
                    for b in range(U(inner)):
                        target[to + b] += source[at + b]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _sum_all_taps(one, other, taps, target):
    """Sum the image in ``one`` over the filter taps of every axis; ``other`` is scratch memory."""
    size, out_size, counts, starts, strides = taps
    outer, inner = 1, 1
    for axis in range(len(size)):
        inner *= size[axis]
    for axis in range(len(size)):
        inner //= size[axis]
        _sum_taps(one, outer, size[axis], inner, starts[axis, : counts[axis]], strides[axis], out_size[axis], other)
        one, other = other, one
        outer *= out_size[axis]
    for p in range(U(outer)):
        target[p] = one[p]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def convolve(entries, taps, scratch, out):
    """Sum over filter taps in every row of ``entries``, an image."""
    for e in range(entries.shape[0]):
        for p in range(U(entries.shape[1])):
            scratch[0, p] = entries[e, p]
        _sum_all_taps(scratch[0], scratch[1], taps, out[e])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _convolve_products(left, right, i, j, shifts, inside, taps, scratch, out):
    for d in range(len(shifts)):
        _multiply(left, right, i, j, shifts[d], inside, d, scratch[0])
        _sum_all_taps(scratch[0], scratch[1], taps, out[d])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def convolve_products(left, right, shifts, inside, taps, scratch, out):
    """The covariances of a first convolution: products of inputs at some offsets, summed over filter taps."""
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            _convolve_products(left, right, i, j, shifts, inside, taps, scratch, out[i, j])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _between_windows(left, right, i, j, field, reads, numbers, shifts, inside, out):
    places, words, windows = left.shape[1:]
    others = right.shape[1]
    real = field.dtype.type
    for d in range(len(shifts)):
        shift = shifts[d]
        first, last = U(max(0, -shift)), U(min(windows, windows - shift))
        for p in range(U(windows)):
            out[d, p] = 0
        for w in range(U(places)):
            for v in range(U(others)):
                number = numbers[d, w, v]
                for k in range(U(words)):
                    for p in range(first, last):
                        both = left[i, w, k, p] & right[j, v, k, p + U(shift)] & inside[d, p]
                        out[d, p] += real(np.int32(ctpop(both))) * field[number, reads[w, p]]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def between_windows(left, right, fields, reads, numbers, shifts, inside, out):
    """Sum, over the places w and w' of two windows, (channels that take both) · (covariance between them).

    out[i, j, d, p] = Σ_{w, w'} |left[i, w, p] ∧ right[j, w', p + δ_d]| fields[i, j, numbers[d, w, w'], reads[w, p]]

    Args:
        left: the channels, as bits, that take place w of window p: (examples, places, words, p).
        right: the same for the columns.
        fields: covariances of the field by offset and position.
        reads: the position in the field of place w of window p.
        numbers: the number of the offset between two places of windows δ_d apart.
        shifts: δ in memory.
        inside: all bits where p + δ is a window, no bit elsewhere: (offsets, p).
        out: the result.
    """
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            _between_windows(left, right, i, j, fields[i, j], reads, numbers, shifts, inside, out[i, j])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def between_first_windows(left, right, first, scratch, field, reads, numbers, shifts, inside, out):
    """The same for a first convolution, whose covariance is made for one pair of examples at a time, in the cache."""
    x, y, scale, bias, field_shifts, field_inside, taps = first
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            _convolve_products(x, y, i, j, field_shifts, field_inside, taps, scratch, field)
            if scale != 1 or bias != 0:
                for d in range(field.shape[0]):
                    for p in range(U(field.shape[1])):
                        field[d, p] = scale * field[d, p] + bias
            _between_windows(left, right, i, j, field, reads, numbers, shifts, inside, out[i, j])
