"""A job's request to Slurm as resources of a rule, asked anew for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scalewatt.scheduling.job_request import RESOURCES, Request, as_resources


def slurm_resources(request: Callable[[Any], Request]) -> dict[str, Callable[..., Any]]:
    """Return a rule's resources by name: functions of `wildcards` and `attempt`.

    `request(wildcards)` says what a job asks for. It is asked once for each attempt of a job.
    """
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def resource(name: str) -> Callable[..., Any]:
        def value(wildcards: Any, attempt: int) -> Any:
            key = (*wildcards, attempt)
            if key not in known:
                known[key] = as_resources(request(wildcards))
            return known[key][name]

        return value

    return {name: resource(name) for name in RESOURCES}
