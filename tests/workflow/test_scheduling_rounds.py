"""How often Snakemake looks at the jobs that wait."""

from __future__ import annotations

import re

import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_snakemake_looks_at_waiting_jobs_when_another_ends_and_not_every_second(
    again: Workspace,
) -> None:
    """Else a campaign of days takes more of the login node with each job it ever started."""
    figures = ("figure2", "figure3", "figure4")
    for name in figures:
        (again.results / "figures" / f"{name}.svg").unlink()
    code, output = again.snakemake("--verbose", "--cores", "1", *figures)
    assert code == 0, output
    (jobs,) = re.findall(r"^total +(\d+)$", output, flags=re.MULTILINE)
    assert 1 < output.count("Resources before job selection") <= int(jobs) + 2, output
