"""Subsets are exact in size, stratified, nested and seeded."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewatt.data.imagenet import stratified_subset


@st.composite
def labels_and_totals(draw):
    sizes = draw(st.lists(st.integers(10, 20), min_size=1, max_size=9))
    labels = np.random.default_rng(draw(st.integers(0, 99))).permutation(
        np.repeat(np.arange(len(sizes)) * 3, sizes)
    )
    return labels, sorted(draw(st.lists(st.integers(0, len(labels)), min_size=2, max_size=5)))


@settings(max_examples=1000)
@given(labels_and_totals(), st.integers(0, 3))
def test_a_subset_is_exact_in_total_within_one_of_every_share_and_nested(case, seed):
    labels, totals = case
    smaller: set[int] = set()
    for total in totals:
        subset = stratified_subset(labels, total, seed)
        assert len(set(subset)) == total and np.all(np.diff(subset) > 0)
        for klass in np.unique(labels):
            share = total * np.mean(labels == klass)
            count = np.sum(labels[subset] == klass)
            assert abs(count - share) <= 1 + 1e-9
        assert smaller <= set(subset)
        smaller = set(subset)
