"""What a campaign may say of its datasets, and how many samples that makes."""

from __future__ import annotations

from typing import Any

from scalewatt.common.errors import InputError

EMBEDDED_SCANS, EMBEDDED_CLASSES = 1797, 10
"""What scikit-learn's handwriting scans have."""


def check_dataset(where: str, dataset: dict[str, Any]) -> None:
    """Raise InputError, which begins with `where`, for years or numbers that no dataset can have."""
    for key in ("train_years", "validation_years", "test_years"):
        first, last = dataset.get(key, (0, 0))
        if first > last:
            raise InputError(
                f"{where}: {key}: [{first}, {last}] is the wrong way round; allowed: first and last year"
            )
    if dataset["format"] == "imagenet" and dataset["source"] == "embedded":
        _check_embedded(where, dataset)


def _check_embedded(where: str, dataset: dict[str, Any]) -> None:
    wanted = dataset["train_samples"] + dataset["validation_samples"]
    if wanted > EMBEDDED_SCANS or dataset["classes"] != EMBEDDED_CLASSES:
        raise InputError(
            f"{where}: {wanted} samples of {dataset['classes']} classes; allowed: at most "
            f"{EMBEDDED_SCANS} scans, train_samples and validation_samples together, of "
            f"{EMBEDDED_CLASSES} classes"
        )


def sample_counts(dataset: dict[str, Any]) -> tuple[int, int]:
    """Return training and validation samples of a whole dataset."""
    if dataset["format"] == "imagenet":
        return dataset["train_samples"], dataset["validation_samples"]

    def samples(key: str) -> int:
        first, last = dataset[key]
        return (last - first + 1) * dataset["samples_per_year"]

    return samples("train_years"), samples("validation_years")


def check_apart(where: str, dataset: dict[str, Any]) -> None:
    """Refuse years that are trained on and validated or tested on: the errors would be too small.

    For what is yet to be trained: what is finished can be drawn and exported nevertheless.
    """
    first, last = dataset.get("train_years", (0, -1))
    for key in ("validation_years", "test_years"):
        begin, end = dataset.get(key, (0, -1))
        if begin <= end and begin <= last and first <= end:
            raise InputError(
                f"{where}: {key}: [{begin}, {end}] shares years with train_years [{first}, {last}]; "
                "allowed: years that are not trained on; to draw from finished runs only: "
                "--config results_only=true"
            )
