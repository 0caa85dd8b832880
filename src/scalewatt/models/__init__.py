"""The models that can be trained, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewatt.models.interface import Workload


def workload_class(model: str) -> type[Workload]:
    """Workload of `model`: WORKLOAD of the module of its name.

    The module is imported here, so that no model needs another's packages.
    """
    return import_module(f"scalewatt.models.{model}").WORKLOAD
