"""Class-stratified, nested, seeded subsets of a labelled dataset."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator

import numpy as np


def stratified_subset(labels: np.ndarray, total: int, seed: int) -> np.ndarray:
    """Return sorted indices (int64) of `total` samples, stratified by class.

    A class with c of the N samples has the exact share total·c/N. As with the largest-remainder
    method, the subset has exactly `total` samples and every class gets its share rounded down or
    up. Largest remainder itself is not monotone in `total` (the Alabama paradox), so which classes
    are rounded up is decided differently: all N samples are put into one order such that every
    prefix rounds every share down or up, and the subset is a prefix. Hence a smaller subset with
    the same seed is always contained in a larger one.

    Such an order exists (R. Tijdeman, The chairman assignment problem, 1980) and is found by
    earliest deadline first (Steiner and Yeomans 1993): the j-th sample of a class, j = 0, 1, …,
    may come once the class's share exceeds j, and must come before the share reaches j + 1.
    The seed fixes the order of the samples within each class and of classes that tie.
    """
    labels = np.asarray(labels)
    if not 0 <= total <= len(labels):
        raise ValueError(f"a subset of {len(labels)} samples cannot have {total} samples")
    classes, members = np.unique(labels, return_inverse=True)
    rng = np.random.default_rng(seed)
    priority = np.argsort(rng.random(len(classes)), kind="stable")
    keys = rng.random(len(labels))
    ranked = np.lexsort((keys, members))  # class by class, in the seeded order within a class
    sizes = np.bincount(members, minlength=len(classes))
    starts = np.cumsum(sizes) - sizes
    order = _class_order(sizes.tolist(), priority.tolist(), total)
    taken = np.bincount(np.fromiter(order, np.int64, total), minlength=len(classes))
    chosen = [ranked[start : start + count] for start, count in zip(starts, taken, strict=True)]
    return np.sort(np.concatenate([*chosen, np.empty(0, np.int64)]))


def _class_order(sizes: list[int], priority: list[int], total: int) -> Iterator[int]:
    """Yield the class of each of the first `total` samples of the order; `priority` breaks ties."""
    n = sum(sizes)
    given = [0] * len(sizes)
    waiting = [(0, klass) for klass in range(len(sizes))]  # (last step before release, class)
    heapq.heapify(waiting)
    released: list[tuple[int, int, int]] = []  # (deadline, tie break, class)
    for step in range(1, total + 1):
        while waiting and waiting[0][0] < step:
            _, klass = heapq.heappop(waiting)
            deadline = -(-(given[klass] + 1) * n // sizes[klass])
            heapq.heappush(released, (deadline, priority[klass], klass))
        _, _, klass = heapq.heappop(released)
        given[klass] += 1
        if given[klass] < sizes[klass]:
            heapq.heappush(waiting, (given[klass] * n // sizes[klass], klass))
        yield klass


def indices_sha256(indices: np.ndarray) -> str:
    """Return the SHA-256 of an index list, as little-endian int64."""
    return hashlib.sha256(np.asarray(indices).astype("<i8").tobytes()).hexdigest()
