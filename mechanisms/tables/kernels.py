"""Compiled loops over messages; a message f of a node has ``f.size`` values from the count ``f.start``."""

from __future__ import annotations

import numpy as np

from mechanisms.jit import kernel


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


@kernel
def convolve(f, left, right, low, width, place, out):
    """Write Σ f_a(s)·f_b(t − s) at t = low, …, low + width − 1 of each pair; `right` −1 copies the left message."""
    for i in range(left.size):
        a, b, base = left[i], right[i], place[i]
        if b >= 0 and f.size[a] > f.size[b]:
            a, b = b, a
        for t in range(width[i]):
            out[base + t] = f.values[f.offset[a] + low[i] + t - f.start[a]] if b < 0 else 0.0
        for j in range(f.size[a] if b >= 0 else 0):
            shift = f.start[a] + j + f.start[b] - low[i]  # first count of the shifted message b, from `low`
            x, to, source = f.values[f.offset[a] + j], base + shift, f.offset[b]
            for k in range(max(0, -shift), min(f.size[b], width[i] - shift)):
                out[to + k] += x * f.values[source + k]


@kernel
def correlate(f, child, sibling, u, which, out):
    """Write Σ_t u(t)·f_sibling(t − s) on the support of each child, u being number `which`; `sibling` −1 copies u."""
    for i in range(child.size):
        a, b, w = child[i], sibling[i], which[i]
        for s in range(f.size[a]):
            out[f.offset[a] + s] = 0.0
        for j in range(f.size[b] if b >= 0 else 1):
            shift = f.start[a] + (f.start[b] + j if b >= 0 else 0) - u.start[w]
            x = f.values[f.offset[b] + j] if b >= 0 else 1.0
            to, source = f.offset[a], u.offset[w] + shift
            for s in range(max(0, -shift), min(f.size[a], u.size[w] - shift)):
                out[to + s] += x * u.values[source + s]


@kernel
def normalise(values, place, width, cut, out, skip, size, total, dropped):
    """Write runs of values one after the other, divided by their totals, without ends of a share of `cut` each.

    The numbers of values that are omitted below and of those that are kept, totals, and omitted shares follow.
    """
    to = 0
    for i in range(place.size):
        base, whole = place[i], 0.0
        for j in range(width[i]):
            whole += values[base + j]
        low, high, lost, gone = 0, width[i], 0.0, 0.0
        while low < high - 1 and lost + values[base + low] <= cut[i] * whole:
            lost += values[base + low]
            low += 1
        while high > low + 1 and gone + values[base + high - 1] <= cut[i] * whole:
            gone += values[base + high - 1]
            high -= 1
        for j in range(high - low):
            out[to + j] = values[base + low + j] / whole
        skip[i], size[i], total[i], dropped[i] = low, high - low, whole, (lost + gone) / whole
        to += high - low


@kernel
def quantiles(f, p, found):
    """Write the smallest count with cumulative probability ≥ p of each message."""
    for i in range(f.start.size):
        total, j = f.values[f.offset[i]], 0
        while j < f.size[i] - 1 and total < p:
            j += 1
            total += f.values[f.offset[i] + j]
        found[i] = f.start[i] + j


@kernel
def draw_splits(f, a, b, totals, uniforms, out):
    """Write draws of s with probability ∝ f_a(s)·f_b(t − s), one per total t."""
    for i in range(totals.size):
        t = totals[i]
        first = max(f.start[a], t - f.start[b] - f.size[b] + 1)
        last = min(f.start[a] + f.size[a] - 1, t - f.start[b])
        at, other = f.offset[a] - f.start[a], f.offset[b] - f.start[b] + t
        whole = 0.0
        for s in range(first, last + 1):
            whole += f.values[at + s] * f.values[other - s]
        bound, cumulative, s = uniforms[i] * whole, 0.0, first
        while s <= last:
            cumulative += f.values[at + s] * f.values[other - s]
            if cumulative > bound:
                break
            s += 1
        out[i] = min(s, last)
