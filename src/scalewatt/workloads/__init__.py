"""The models that can be trained, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewatt.workloads.protocol import Workload

_CLASSES = {"resnet50": "ResNet50", "fourcastnet": "FourCastNetWorkload"}


def workload_class(model: str) -> type[Workload]:
    """The workload of `model`: WORKLOAD of the file of its name.

    Imported here, so that one model's needs are not another's.
    """
    module = import_module(f"scalewatt.workloads.{model}")
    return getattr(module, _CLASSES.get(model, "WORKLOAD"))
