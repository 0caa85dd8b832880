"""Which files an archive may hold, by their place below a campaign's results.

What is exported and what is imported is held against the same list: an archive brings results, and
nothing that anybody would run, load as weights, or that Snakemake keeps for itself.
"""

from __future__ import annotations

import re

_NAME = r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,199}"
_DATASET = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029/\\{}.][^\x00-\x1f\x7f-\x9f\u2028\u2029/\\{}]{0,199}"
"""As the campaign's schema has them."""
_REPEAT = r"[1-9][0-9]{0,8}"
_RUN = rf"{_NAME}/{_REPEAT}"
_SPECS = r"spec\.json|provenance\.json"
_PLACES = (
    rf"runs/{_RUN}/(?:{_SPECS}|(?:history|events)\.parquet)",
    rf"energy/{_RUN}(?:\.[a-z][a-z-]{{0,40}})?\.parquet",
    rf"traces/{_RUN}\.parquet",
    rf"requests/{_NAME}\.json",
    rf"tables/{_NAME}\.(?:parquet|csv|md|tex|json)",
    rf"figures/(?:runs/{_NAME}/)?{_NAME}\.(?:pdf|svg|png|csv)",
    rf"figures/{_NAME}\.caption\.(?:tex|md)",
    rf"datasets/(?:{_DATASET}\.json|{_DATASET}/{_NAME}\.json)",
    rf"idle/(?:{_NAME}/){{0,2}}{_NAME}\.json",
    rf"superseded/{_RUN}/{_REPEAT}/(?:set-aside\.json|energy\.parquet|run/(?:{_SPECS}))",
    rf"report\.html|{_NAME}\.json",
)
_ALLOWED = re.compile("|".join(f"(?:{place})" for place in _PLACES))
ALLOWED = (
    "specs, histories, events and provenance of runs, energies, traces, requests, tables, figures, "
    "datasets, idle powers and the report, each under the name that scalewatt gives it"
)
"""In words, for messages."""


def belongs(path: str) -> bool:
    """Return True if a file, by its path below the campaign's results, may be in an archive."""
    return _ALLOWED.fullmatch(path) is not None
