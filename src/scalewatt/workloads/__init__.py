"""The models that can be trained, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewatt.workloads.interface import Workload


def workload_class(model: str) -> type[Workload]:
    """The workload of `model`: WORKLOAD of the file of its name.

    Imported here, so that one model's needs are not another's.
    """
    return import_module(f"scalewatt.workloads.{model}").WORKLOAD
