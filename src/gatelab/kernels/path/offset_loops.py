"""The path kernel of a pooled convolutional network, offset by offset, compiled by Numba.

A filter tap moves two positions p and p' = p + δ together, so their offset δ changes only by the stride. The
covariances at one offset therefore follow from those at one offset in the layer before. The table of all pairs of
positions is never made, and the data of one offset stay in the cache.

``LANES`` pairs of examples are computed together. Every array has the lanes on its last axis, so all inner loops
run over contiguous memory and become vector code, however few positions an offset leaves. Their indices are unsigned:
Numba lets signed indices count from the end, which prevents vector code. There are no slices: each costs as much as a
short row.
"""

import numba
import numpy as np

from gatelab.kernels.path.offset_program import LANES
from gatelab.kernels.popcount import ctpop

U = np.uint64

# Columns of the layer table.
IN_H, IN_W, OUT_H, OUT_W, TAPS_Y, TAPS_X, STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, STEP_Y, STEP_X = range(12)
SCALE_Y, SCALE_X, FIELD, FIRST_TERM, LAST_TERM = range(12, 17)

# Columns of the term table.
ORIGIN, IS_BITS, PLANES, DATA = range(4)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _common_bits(left, right, a, b, plane, planes, total, length):
    """Count the channels open at both positions, along a row of positions."""
    if planes == U(1):
        for x in range(length):
            total[x] = np.int32(ctpop(left[a + x] & right[b + x]))
        return
    a1, b1 = a + plane, b + plane
    for x in range(length):
        total[x] = np.int32(ctpop(left[a + x] & right[b + x]) + ctpop(left[a1 + x] & right[b1 + x]))
    for k in range(U(2), planes):
        a1, b1 = a + k * plane, b + k * plane
        for x in range(length):
            total[x] += np.int32(ctpop(left[a1 + x] & right[b1 + x]))


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _weigh_bits(left, right, a, b, plane, planes, fields, at, fresh, target, to, length):
    """Handle the usual case in one loop: at most 128 channels, after one gate, times the covariance of one layer."""
    real = fields.dtype.type
    a1, b1 = a + plane, b + plane
    if planes == U(1):
        for x in range(length):
            target[to + x] = real(np.int32(ctpop(left[a + x] & right[b + x]))) * fields[at + x]
    elif fresh:
        for x in range(length):
            both = ctpop(left[a + x] & right[b + x]) + ctpop(left[a1 + x] & right[b1 + x])
            target[to + x] = real(np.int32(both)) * fields[at + x]
    else:
        for x in range(length):
            both = ctpop(left[a + x] & right[b + x]) + ctpop(left[a1 + x] & right[b1 + x])
            target[to + x] += real(np.int32(both)) * fields[at + x]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _combine(total, inside, fresh, fields, at, target, to, length):
    """Write or add a row, times the covariance of the origin unless that is the input."""
    if fresh and inside:
        for x in range(length):
            target[to + x] = total[x]
    elif inside:
        for x in range(length):
            target[to + x] += total[x]
    elif fresh:
        for x in range(length):
            target[to + x] = total[x] * fields[at + x]
    else:
        for x in range(length):
            target[to + x] += total[x] * fields[at + x]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _products(left, right, a, b, plane, planes, total, length):
    """Write inner products over channels, along a row of positions."""
    for x in range(length):
        total[x] = left[a + x] * right[b + x]
    for k in range(U(1), planes):
        a1, b1 = a + k * plane, b + k * plane
        for x in range(length):
            total[x] += left[a1 + x] * right[b1 + x]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _weigh(term, gain, fresh, size, offset, data, fields, target, place, pitch, total):
    """Write or add one term: inner product over channels times the origin's covariance, where p and p + δ exist."""
    height, width = size
    dy, dx = offset
    left_bits, right_bits, left_real, right_real = data
    y0, y1 = max(0, -dy), min(height, height - dy)
    x0, x1 = max(0, -dx), min(width, width - dx)
    length, plane, planes = U(max(0, x1 - x0) * LANES), U(height * width * LANES), U(term[PLANES])
    inside = term[ORIGIN] < 0
    usual = term[IS_BITS] and gain == 1 and not inside and (term[PLANES] == 2 or (term[PLANES] == 1 and fresh))
    for y in range(y0, y1):
        a = U(term[DATA] + (y * width + x0) * LANES)
        b = U(term[DATA] + ((y + dy) * width + x0 + dx) * LANES)
        to = U((place + y * pitch + x0) * LANES)
        at = U(max(0, term[ORIGIN]) + (y * width + x0) * LANES)
        if usual:
            _weigh_bits(left_bits, right_bits, a, b, plane, planes, fields, at, fresh, target, to, length)
            continue
        if term[IS_BITS]:
            _common_bits(left_bits, right_bits, a, b, plane, planes, total, length)
        else:
            _products(left_real, right_real, a, b, plane, planes, total, length)
        if gain != 1:
            for x in range(length):
                total[x] *= gain
        _combine(total, inside, fresh, fields, at, target, to, length)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _clear_around(layer, in_offset, out_offset, padded):
    """Write zeros where the filter taps read beyond the existing positions."""
    pitch = layer[IN_W] + 2 * layer[PAD_X]
    dy, dx = in_offset
    top, bottom = max(0, -dy) + layer[PAD_Y], min(layer[IN_H], layer[IN_H] - dy) + layer[PAD_Y]
    start, stop = max(0, -dx) + layer[PAD_X], min(layer[IN_W], layer[IN_W] - dx) + layer[PAD_X]
    dy, dx = out_offset
    y0, y1 = max(0, -dy), min(layer[OUT_H], layer[OUT_H] - dy)
    x0, x1 = max(0, -dx), min(layer[OUT_W], layer[OUT_W] - dx)
    first = layer[STRIDE_X] * x0
    last = layer[STRIDE_X] * (x1 - 1) + layer[STEP_X] * (layer[TAPS_X] - 1) + 1
    for y in range(layer[STRIDE_Y] * y0, layer[STRIDE_Y] * (y1 - 1) + layer[STEP_Y] * (layer[TAPS_Y] - 1) + 1):
        row = y * pitch
        if y < top or y >= bottom or start >= stop:
            _clear(padded, row + first, row + last)
        else:
            _clear(padded, row + first, row + start)
            _clear(padded, row + stop, row + last)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _clear(padded, start, stop):
    for q in range(U(start * LANES), U(max(start, stop) * LANES)):
        padded[q] = 0


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _sum_taps(source, start, step, taps, scale, bias, target, to, length):
    """Set target[to + q] = bias + scale · Σ_k source[start + k·step + q], in all lanes."""
    second, third = start + step, start + U(2) * step
    if taps == U(3):
        for q in range(length):
            target[to + q] = (source[start + q] + source[second + q] + source[third + q]) * scale + bias
        return
    for q in range(length):
        target[to + q] = source[start + q] * scale + bias
    for k in range(U(1), taps):
        second = start + k * step
        for q in range(length):
            target[to + q] += source[second + q] * scale


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _convolve(layer, scale, bias, offset, padded, scratch, fields):
    """Sum a layer's input covariance over its filter taps, along y and then along x, row by row."""
    dy, dx = offset
    out_w, stride = layer[OUT_W], layer[STRIDE_X]
    y0, y1 = max(0, -dy), min(layer[OUT_H], layer[OUT_H] - dy)
    x0, x1 = max(0, -dx), min(out_w, out_w - dx)
    if x0 >= x1:
        return
    one, zero = padded.dtype.type(1), padded.dtype.type(0)
    pitch, length = (layer[IN_W] + 2 * layer[PAD_X]) * LANES, U((x1 - x0) * LANES)
    taps_y, taps_x = U(layer[TAPS_Y]), U(layer[TAPS_X])
    step_y, step_x = U(layer[STEP_Y] * pitch), U(layer[STEP_X] * LANES)
    dense = U((stride * (x1 - x0 - 1) + 1) * LANES)  # before every stride-th position is taken
    span = dense + step_x * (taps_x - U(1))
    for y in range(y0, y1):
        start = U(layer[STRIDE_Y] * y * pitch + stride * x0 * LANES)
        _sum_taps(padded, start, step_y, taps_y, one, zero, scratch, U(0), span)
        to = U(layer[FIELD] + (y * out_w + x0) * LANES)
        if stride == 1:
            _sum_taps(scratch, U(0), step_x, taps_x, scale, bias, fields, to, length)
        else:
            _sum_taps(scratch, U(0), step_x, taps_x, scale, bias, scratch, span, dense)
            for q in range(U(x1 - x0)):
                for lane in range(U(LANES)):
                    fields[to + q * U(LANES) + lane] = scratch[span + q * U(stride * LANES) + lane]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def pooled_lanes(layers, scales, terms, gains, size, first_term, data, work, out):
    """Compute the kernel of the globally summed output, for ``LANES`` pairs of examples.

    Args:
        layers: (layers, LAYER_COLUMNS) int64.
        scales: (layers, 2), variance of weights and of the bias.
        terms: (terms, TERM_COLUMNS) int64; those from ``first_term`` make up the output.
        gains: (terms,), the factor of a bit that is open on both sides.
        size: height and width of the output before it is summed.
        first_term: see ``terms``.
        data: packed gates and real multipliers, left and right, each flat with the lanes last.
        work: scratch arrays: covariances of all layers, a padded image, rows.
        out: (LANES,), the result.
    """
    fields, padded, scratch = work
    height, width = size
    sums, totals = np.empty(width * LANES, padded.dtype), np.zeros(width * LANES, np.float64)
    for dy in range(1 - height, height):
        for dx in range(1 - width, width):
            for number in range(layers.shape[0]):
                layer = layers[number]
                pitch = layer[IN_W] + 2 * layer[PAD_X]
                inside, place = (layer[IN_H], layer[IN_W]), layer[PAD_Y] * pitch + layer[PAD_X]
                offset = (dy * layer[SCALE_Y], dx * layer[SCALE_X])
                before = (offset[0] * layer[STRIDE_Y], offset[1] * layer[STRIDE_X])
                _clear_around(layer, before, offset, padded)
                for t in range(layer[FIRST_TERM], layer[LAST_TERM]):
                    fresh = t == layer[FIRST_TERM]
                    _weigh(terms[t], gains[t], fresh, inside, before, data, fields, padded, place, pitch, scratch)
                _convolve(layer, scales[number, 0], scales[number, 1], offset, padded, scratch, fields)
            # A pitch of zero adds all rows into one. Sums over offsets are in float64; sums within one need not be.
            sums[:] = 0
            for t in range(first_term, terms.shape[0]):
                _weigh(terms[t], gains[t], False, size, (dy, dx), data, fields, sums, 0, 0, scratch)
            for x in range(width * LANES):
                totals[x] += sums[x]
    out[:] = 0
    for x in range(width):
        for lane in range(LANES):
            out[lane] += totals[x * LANES + lane]
