"""Labels and groups of the columns of the tables of results, by `scalewatt.common.columns`."""

from __future__ import annotations

from scalewatt.common.columns import columns

RUNS_TABLE, METRICS = "runs", "metrics"
SEVERAL = "several"
"""Stands for the metric, or the device, of runs that have different ones."""
METRIC_OF_MODEL = {"resnet50": "top1_error_percent", "fourcastnet": "z500_rmse_m2_s2"}


def tagged(tag: str) -> tuple[str, ...]:
    """List the columns of `runs` with a tag."""
    return tuple(row.name for row in columns(RUNS_TABLE).values() if tag in row.tags.split())


def label(name: str, gpu_word: str = "GPUs") -> str:
    """Label of a column of `runs`, without its unit; `gpu_word` is what n counts: GPUs or processes."""
    row = columns(RUNS_TABLE).get(name)
    return in_words(row.label, gpu_word) if row and row.label else name


def singular(gpu_word: str) -> str:
    """Singular of what n counts: `GPU` of `GPUs`, `process`, `rank`."""
    return gpu_word.removesuffix("es" if gpu_word.endswith("sses") else "s")


def in_words(label: str, gpu_word: str) -> str:
    """Fill a label with what n counts, and begin it with a capital."""
    text = label.format(gpu=singular(gpu_word), gpus=gpu_word)
    return text[:1].upper() + text[1:]


def unit(name: str) -> str:
    """Unit of a column of `runs`; empty without one."""
    row = columns(RUNS_TABLE).get(name)
    return row.unit if row else ""


def with_unit_of(name: str, gpu_word: str = "GPUs") -> str:
    """Label of a column of `runs` with its unit in brackets: the head of a table's column."""
    return f"{label(name, gpu_word)} ({unit(name)})" if unit(name) else label(name, gpu_word)


def metric_label(model: str | None, metric_name: str | None = None) -> str:
    """Label of a quality metric with its unit, by its name or, if that is not known, by the model."""
    name = metric_name or METRIC_OF_MODEL.get(model or "", SEVERAL)
    if name == SEVERAL:
        return label("metric_last")
    if known := columns(METRICS).get(name):
        return f"{known.label} ({known.unit})"
    words = name.removesuffix("_percent").replace("_", " ")
    return words[:1].upper() + words[1:] + (" (%)" if name.endswith("_percent") else "")
