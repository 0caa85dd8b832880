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


def test_largest_remainder_alone_would_not_be_nested_here_but_ours_is():
    # The Alabama paradox: with these class sizes the third class gets 2 of 10, but 1 of 11.
    labels = np.repeat([0, 1, 2], [60, 60, 20])
    ten, eleven = (stratified_subset(labels, total, 0) for total in (10, 11))
    assert set(ten) < set(eleven)


def test_the_seed_decides_which_samples_are_taken():
    labels = np.tile(np.arange(10), 50)
    assert np.array_equal(stratified_subset(labels, 100, 0), stratified_subset(labels, 100, 0))
    assert not np.array_equal(stratified_subset(labels, 100, 0), stratified_subset(labels, 100, 1))
