"""A job's request to Slurm as resources of a rule, asked anew for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from scalewatt.scheduling.job_request import Request


def slurm_resources(request: Callable[[Any], Request]) -> dict[str, Callable[..., Any]]:
    """Return a rule's resources by name: functions of `wildcards` and `attempt`.

    `request(wildcards)` says what a job asks for. It is asked once for each attempt of a job.
    """
    known: dict[tuple[Any, ...], Request] = {}

    def resource(name: str) -> Callable[..., Any]:
        def value(wildcards: Any, attempt: int) -> Any:
            key = (*wildcards, attempt)
            if key not in known:
                known[key] = request(wildcards)
            return getattr(known[key], name)

        return value

    return {field.name: resource(field.name) for field in fields(Request)}
