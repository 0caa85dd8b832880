"""Lists of terms to choose a run time's from: what the stated error owes to the list.

Each fold of the cross-validation chooses its terms anew, so no point takes part in the choice of the
terms that predict it. The list itself was written by people who knew the errors of the published points:
`first_batch` and the knee were added for them. What the model would be without is computed beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scalewatt.scaling.model.calibrate import FIRST, TermList, choose_terms
from scalewatt.scaling.model.cost_terms import Array, TimeTerms
from scalewatt.scaling.model.kind_model import Point
from scalewatt.scaling.model.posterior import draw

NO_FIRST_BATCH = "without first_batch"
NO_KNEE = "without first_batch and knee"
FREE = "no term required"
FREE_NO_KNEE = "no term required, without both"
LISTS: Mapping[str, TermList] = {
    NO_FIRST_BATCH: TermList(optional=FIRST),
    NO_KNEE: TermList(optional=FIRST, knee=False),
    FREE: TermList(required=("sample",)),
    FREE_NO_KNEE: TermList(required=("sample",), optional=FIRST, knee=False),
}
"""Lists other than the model's, by name; `sample`, the work itself, is in each."""


def times_by_list(
    points: Sequence[Point], left_out: Sequence[Point], lists: Sequence[str]
) -> list[dict[str, float]]:
    """Return medians of the run time of each point left out, in s, by the list chosen from.

    Terms are chosen, and their costs drawn, on `points` alone.
    """
    loads = [point.load for point in points]
    values = np.array([point.runtime_s for point in points])
    wanted = [one.load for one in left_out]
    medians: dict[TimeTerms, Array] = {}
    chosen = {name: choose_terms(loads, values, LISTS[name]) for name in lists}
    for terms in dict.fromkeys(chosen.values()):
        costs = draw(terms.columns(loads), values)
        medians[terms] = np.median(costs.means(terms.columns(wanted)), axis=0)
    return [
        {name: float(medians[terms][number]) for name, terms in chosen.items()}
        for number in range(len(left_out))
    ]
