"""The models that can be trained, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scalewatt.campaign.model_registry import modules_of_packages

if TYPE_CHECKING:
    from scalewatt.workloads.interface import Workload


def workload_class(model: str) -> type[Workload]:
    """Return the workload of `model`: WORKLOAD of the module of its name, here or in another package.

    The module is imported here, so that no model needs another's packages.
    """
    module = modules_of_packages().get(model, f"scalewatt.workloads.{model}")
    return import_module(module).WORKLOAD
