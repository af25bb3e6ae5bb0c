"""Compiled loops over messages, which are runs of numbers in one array, each with a first count, offset and size."""

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
def convolve_pairs(f, start, offset, size, left, right, low, width, place, out):
    """Write Σ f_a(s)·f_b(t − s) at t = low, …, low + width − 1 of each pair; `right` −1 copies the left message."""
    for i in range(left.size):
        a, b = left[i], right[i]
        base = place[i]
        if b < 0:
            for t in range(width[i]):
                out[base + t] = f[offset[a] + low[i] + t - start[a]]
            continue
        if size[a] > size[b]:
            a, b = b, a
        for t in range(width[i]):
            out[base + t] = 0.0
        for j in range(size[a]):
            shift = start[a] + j + start[b] - low[i]  # first count of the shifted message b, from `low`
            first, last = max(0, -shift), min(size[b], width[i] - shift)
            x, to, source = f[offset[a] + j], base + shift, offset[b]
            for k in range(first, last):
                out[to + k] += x * f[source + k]


@kernel
def moments(values, start, offset, size, mean, variance):
    """Write mean and variance of each normalised message."""
    for i in range(start.size):
        one = 0.0
        for j in range(size[i]):
            one += j * values[offset[i] + j]
        two = 0.0
        for j in range(size[i]):
            two += (j - one) ** 2 * values[offset[i] + j]
        mean[i], variance[i] = start[i] + one, two


@kernel
def chernoff_ends(f, start, offset, size, left, right, depth, first, last):
    """Write the ends of the total of two normalised messages, beyond each of which it has a share below e^−depth.

    Chernoff's bound: Pr[a + b ≥ t] ≤ E[e^λa]·E[e^λb]·e^−λt for all λ > 0, and likewise below.
    """
    mean, variance = np.zeros(2), np.zeros(2)
    for i in range(left.size):
        pair = np.array([left[i], right[i]])
        moments(f, np.zeros(2, np.int64), offset[pair], size[pair], mean, variance)
        centre, begin = np.floor(mean).astype(np.int64), start[pair].sum()
        low, high = 0.0, size[pair].sum() - 2.0
        for step in range(5):
            rate = 16.0 / 2.5**step / np.sqrt(variance.sum())
            down, up = depth, depth  # plus the cumulant generating functions at −λ and λ, about the centres
            for part in range(2):
                base, at = offset[pair[part]], centre[part]
                grow, decay = np.exp(rate), np.exp(-rate)
                above_down, above_up, below_down, below_up = 0.0, 0.0, 0.0, 0.0
                for k in range(size[pair[part]] - 1, at - 1, -1):
                    above_down, above_up = above_down * decay + f[base + k], above_up * grow + f[base + k]
                for k in range(at):
                    below_down, below_up = (below_down + f[base + k]) * grow, (below_up + f[base + k]) * decay
                down += np.log(above_down + below_down)
                up += np.log(above_up + below_up)
            low, high = max(low, centre.sum() - down / rate), min(high, centre.sum() + up / rate)
        first[i], last[i] = begin + int(np.floor(low)), begin + int(np.ceil(high))


@kernel
def correlate_pairs(f, start, offset, size, child, sibling, u, u_start, u_offset, u_size, out):
    """Write Σ_t u(t)·f_sibling(t − s) on the support of f_child; `sibling` −1 copies u."""
    for i in range(child.size):
        a, b, base = child[i], sibling[i], offset[child[i]]
        for s in range(size[a]):
            out[base + s] = 0.0
        if b < 0:
            shift = start[a] - u_start[i]
            for s in range(max(0, -shift), min(size[a], u_size[i] - shift)):
                out[base + s] = u[u_offset[i] + shift + s]
            continue
        if size[b] <= u_size[i]:
            for j in range(size[b]):
                shift = start[a] + start[b] + j - u_start[i]
                first, last = max(0, -shift), min(size[a], u_size[i] - shift)
                x, source = f[offset[b] + j], u_offset[i] + shift
                for s in range(first, last):
                    out[base + s] += x * u[source + s]
        else:
            for j in range(u_size[i]):
                # s = t − c with t = u_start + j, c = start_b + k
                top = u_start[i] + j - start[b] - start[a]  # index s = top − k
                x, source = u[u_offset[i] + j], offset[b]
                first, last = max(0, top - size[b] + 1), min(size[a], top + 1)
                for s in range(first, last):
                    out[base + s] += x * f[source + top - s]


@kernel
def trim(values, place, width, cut, skip, kept, total, dropped):
    """Find the run of each message without ends of total share `cut` each; `total` and `dropped` share are returned."""
    for i in range(place.size):
        base, n = place[i], width[i]
        whole = 0.0
        for j in range(n):
            whole += values[base + j]
        low, lost = 0, 0.0
        while low < n - 1 and lost + values[base + low] <= cut * whole:
            lost += values[base + low]
            low += 1
        high, gone = n, 0.0
        while high > low + 1 and gone + values[base + high - 1] <= cut * whole:
            gone += values[base + high - 1]
            high -= 1
        skip[i], kept[i], total[i] = low, high - low, whole
        dropped[i] = (lost + gone) / whole if whole > 0.0 else 0.0


@kernel
def normalise(values, place, skip, kept, total, out):
    """Write kept runs, divided by their totals, one after the other."""
    to = 0
    for i in range(place.size):
        for j in range(kept[i]):
            out[to + j] = values[place[i] + skip[i] + j] / total[i]
        to += kept[i]


@kernel
def quantiles(values, start, offset, size, p, found):
    """Write the smallest count with cumulative probability ≥ p of each message."""
    for i in range(start.size):
        total, j = values[offset[i]], 0
        while j < size[i] - 1 and total < p:
            j += 1
            total += values[offset[i] + j]
        found[i] = start[i] + j


@kernel
def draw_splits(f, start, offset, size, a, b, totals, uniforms, out):
    """Write draws of s with probability ∝ f_a(s)·f_b(t − s), one per total t."""
    for i in range(totals.size):
        t = totals[i]
        first, last = max(start[a], t - start[b] - size[b] + 1), min(start[a] + size[a] - 1, t - start[b])
        whole = 0.0
        for s in range(first, last + 1):
            whole += f[offset[a] + s - start[a]] * f[offset[b] + t - s - start[b]]
        bound, cumulative, s = uniforms[i] * whole, 0.0, first
        while s <= last:
            cumulative += f[offset[a] + s - start[a]] * f[offset[b] + t - s - start[b]]
            if cumulative > bound:
                break
            s += 1
        out[i] = min(s, last)
