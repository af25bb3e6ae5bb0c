"""Compiled loops over messages; a message f of a node has ``f.size`` values from the count ``f.start``."""

from __future__ import annotations

import numpy as np

from mechanisms.core.jit import inlined_kernel, kernel


@kernel
def leaf_log_weights(first, size, r, rate, out):
    """Write ln w(x) − ln w(first) + (x − first)·rate of each leaf, by sums of log ratios; `r` is 0 for Poisson."""
    place = 0
    for i in range(first.size):
        value = 0.0
        for j in range(size[i]):
            if j > 0:
                x = first[i] + j  # ln w(x) − ln w(x − 1) is ln((x − 1 + r)/x), or −ln x for Poisson
                if r[i] == 0.0:
                    value -= np.log(x)
                elif x == 1:
                    value += np.log(r[i])  # r − 1 has no digits of a small r
                elif r[i] != 1.0:
                    value += np.log1p((r[i] - 1.0) / x)
                value += rate[i]
            out[place + j] = value
        place += size[i]


@inlined_kernel
def _log_gaussian(x, centre, scale, first_term, second_term):
    """Return the log likelihood of Gaussian noise at a count: −u²/2 less two terms, u = (centre − x)/scale."""
    u = (centre - x) / scale
    return -0.5 * u * u - first_term - second_term


@kernel
def add_gaussian(first, size, centre, scale, terms, out):
    """Add log likelihoods of Gaussian noise at runs of counts."""
    place = 0
    for i in range(first.size):
        values = out[place : place + size[i]]
        for j in range(values.size):
            values[j] += _log_gaussian(first[i] + j, centre[i], scale[i], terms[0, i], terms[1, i])
        place += size[i]


@kernel
def gaussian_log_weights(
    first, last, stride, log_stride, spike, prior, rate, constant, centre, scale, terms, tilt, x, out
):
    """Write counts x of each leaf, and their log weights with Gaussian noise, −∞ beyond the last count.

    Counts have a stride, or if `spike` > 0 follow each other up to that number, and are then middles of strides, with
    the log of the stride added. `prior` has ln w(x) − x·rate − constant, or is left out for strides with `spike` 0 and
    a row of zeros.
    """
    for i in range(first.size):
        row = 0 if spike > 0 or stride[i] == 1.0 else 1
        for j in range(x.shape[1]):
            if spike == 0:
                at = first[i] + stride[i] * j
            elif j < spike:
                at = first[i] + j
            else:
                at = first[i] + j + (j - spike) * (stride[i] - 1.0) + np.floor(0.5 * stride[i])
            x[i, j] = at
            if at > last[i]:
                out[i, j] = -np.inf
                continue
            weight = prior[row, int(at)] + at * rate[i] + constant[i]
            value = weight + _log_gaussian(at, centre[i], scale[i], terms[0, i], terms[1, i]) + tilt[i] * at
            out[i, j] = value + log_stride[i] if 0 < spike <= j else value


@kernel
def convolve(f, left, g, right, sign, low, width, place, out):
    """Write Σ f(s)·g(sign·(t − s)) at t = low, …, low + width − 1 for pairs of messages; `right` −1 copies f.

    Four values of the shorter message are used at once, which loads and stores sums a quarter as often. Loops over
    slices from 0 are compiled to vector instructions, unlike loops with offsets, which may be negative.
    """
    most = max(f.size.max(), g.size.max()) if left.size else 0
    padded_left, padded_right = np.zeros(most + 6), np.zeros(most + 6)  # values with three zeros on both sides
    for i in range(left.size):
        a, b, base = left[i], right[i], place[i]
        m, n = f.size[a], g.size[b] if b >= 0 else 1
        first = f.start[a] - low[i]  # first count of the convolution
        if b >= 0:
            first += g.start[b] if sign > 0 else 1 - g.start[b] - n
        for j in range(m):
            padded_left[j + 3] = f.values[f.offset[a] + j]
        for j in range(n):
            padded_right[j + 3] = g.values[g.offset[b] + (j if sign > 0 else n - 1 - j)] if b >= 0 else 1.0
        for j in range(3):
            padded_left[m + 3 + j] = padded_right[n + 3 + j] = 0.0
        x, y = (padded_left, padded_right) if m <= n else (padded_right, padded_left)
        for t in range(width[i]):
            out[base + t] = 0.0
        for j in range(0, min(m, n), 4):
            x0, x1, x2, x3, shift = x[j + 3], x[j + 4], x[j + 5], x[j + 6], first + j
            begin, end = max(0, -shift), min(max(m, n) + 3, width[i] - shift)
            if begin >= end:
                continue
            sums = out[base + shift + begin : base + shift + end]
            y0, y1, y2, y3 = y[begin + 3 : end + 3], y[begin + 2 : end + 2], y[begin + 1 : end + 1], y[begin:end]
            for k in range(sums.size):
                sums[k] += x0 * y0[k] + x1 * y1[k] + x2 * y2[k] + x3 * y3[k]


@kernel
def normalise(values, place, width, cut, out, skip, size, total, dropped):
    """Write runs of values one after the other, divided by their totals, without ends of a share of `cut` each.

    The numbers of values that are omitted below and of those that are kept, totals, and omitted shares follow.
    """
    to = 0
    for i in range(place.size):
        base, total_of_run = place[i], 0.0
        for j in range(width[i]):
            total_of_run += values[base + j]
        low, high, lost, gone = 0, width[i], 0.0, 0.0
        while low < high - 1 and lost + values[base + low] <= cut[i] * total_of_run:
            lost += values[base + low]
            low += 1
        while high > low + 1 and gone + values[base + high - 1] <= cut[i] * total_of_run:
            gone += values[base + high - 1]
            high -= 1
        kept, shares = values[base + low : base + high], out[to : to + high - low]
        for j in range(kept.size):
            shares[j] = kept[j] / total_of_run
        skip[i], size[i], total[i], dropped[i] = low, high - low, total_of_run, (lost + gone) / total_of_run
        to += high - low


@kernel
def moments(f, mean, variance):
    """Write mean and variance of each message."""
    for i in range(f.start.size):
        mean_offset, spread = 0.0, 0.0
        for j in range(f.size[i]):
            mean_offset += j * f.values[f.offset[i] + j]
        for j in range(f.size[i]):
            spread += (j - mean_offset) ** 2 * f.values[f.offset[i] + j]
        mean[i], variance[i] = f.start[i] + mean_offset, spread


@kernel
def quantiles(f, p, out):
    """Write the smallest count with cumulative probability ≥ p of each message."""
    for i in range(f.start.size):
        total, j = f.values[f.offset[i]], 0
        while j < f.size[i] - 1 and total < p:
            j += 1
            total += f.values[f.offset[i] + j]
        out[i] = f.start[i] + j


@kernel
def draw_splits(f, a, b, totals, uniforms, out):
    """Write draws of s with probability ∝ f_a(s)·f_b(t − s), one per total t."""
    for i in range(totals.size):
        t = totals[i]
        first = max(f.start[a], t - f.start[b] - f.size[b] + 1)
        last = min(f.start[a] + f.size[a] - 1, t - f.start[b])
        at, other = f.offset[a] - f.start[a], f.offset[b] - f.start[b] + t
        total_weight = 0.0
        for s in range(first, last + 1):
            total_weight += f.values[at + s] * f.values[other - s]
        bound, cumulative, s = uniforms[i] * total_weight, 0.0, first
        while s <= last:
            cumulative += f.values[at + s] * f.values[other - s]
            if cumulative > bound:
                break
            s += 1
        out[i] = min(s, last)
