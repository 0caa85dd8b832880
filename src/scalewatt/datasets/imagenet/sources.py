"""ImageNet from where the cluster has it: the official tars, or a tree of class folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.devkit import Devkit, read_devkit
from scalewatt.datasets.imagenet.index import (
    SPLITS,
    ImageFolderIndex,
    classes_are_there,
    find_images,
    index_path,
    indexed_folder,
)
from scalewatt.datasets.imagenet.official_tars import (
    EXTRACTING,
    RECORD,
    TARS,
    Tars,
    check_devkit,
    check_recorded,
    extract_tars,
)

_SHOWN = 5


def prepare_images(
    definition: dict[str, Any], folder: Path, source: str | dict[str, Any] | None
) -> dict[str, ImageFolderIndex]:
    """Extract the tars if that is the source; return the checked indices by split, not yet written.

    Without a source the tars, or the tree, are in `folder`. A tree elsewhere is read where it is,
    and nothing is written there.
    """
    place = find_source(folder, source)
    if isinstance(place, Tars):
        extract_tars(place, definition, folder)
        place = folder
    return _indices(definition, place)


def find_source(folder: Path, source: str | dict[str, Any] | None) -> Tars | Path:
    """Return the tars, or the folder of the tree, that a source (text, object or None) means."""
    if isinstance(source, dict):
        if "tars" in source:
            return Tars(Path(source["tars"]), source.get("md5", {}))
        if "tree" in source:
            return Path(source["tree"])
        raise InputError(
            f"sources: {', '.join(source)} is nothing that ImageNet is prepared from; "
            "expected {tars: FOLDER} or {tree: FOLDER}"
        )
    place = Path(source) if source else folder
    tars = [(place / name).exists() for name in TARS.values()]
    splits = [(place / split).is_dir() for split in SPLITS]
    extracted = (place / EXTRACTING).exists() or (all(tars) and (place / RECORD).exists())
    if all(splits) and not extracted:
        return place
    if any(tars):
        return Tars(place, {})
    if source and not any(splits):
        raise InputError(
            f"{place}: has neither {' nor '.join(TARS.values())}, nor train/<class>/<image> "
            "and val/<class>/<image>"
        )
    return place


def lies_elsewhere(folder: Path, source: str | dict[str, Any] | None) -> bool:
    """Return True if a prepared index refers to another tree than the source, or to missing classes.

    Tars are not needed any more once they are extracted. InputError if another MD5 is given
    than what was extracted from them has.
    """
    indexed = {indexed_folder(folder, split) for split in SPLITS}
    if len(indexed) > 1 or not all(classes_are_there(folder, split) for split in SPLITS):
        return True
    (place,) = indexed
    here = os.path.abspath(place) == os.path.abspath(folder)
    names = (*TARS.values(), *SPLITS)
    if source is None or (
        here and isinstance(source, str) and not any(Path(source, name).exists() for name in names)
    ):
        return False
    meant = find_source(folder, source)
    if not isinstance(meant, Tars):
        return os.path.abspath(meant) != os.path.abspath(place)
    if here:
        check_recorded(meant, folder)
    return not here


def index_files(folder: Path) -> list[Path]:
    """Return the files that preparation leaves for images elsewhere."""
    return [index_path(folder, split) for split in SPLITS]


def image_sizes(folder: Path) -> dict[str, int]:
    """Return the size of every image by path; the same for the tars and for a tree extracted from them."""
    found: dict[str, int] = {}
    for split in SPLITS:
        index = ImageFolderIndex.load(folder, split)
        assert index.sizes is not None  # it has just been written
        found |= zip(index.paths, index.sizes.tolist(), strict=True)
    return found


def _indices(definition: dict[str, Any], images: Path) -> dict[str, ImageFolderIndex]:
    wanted = {"train": definition["train_samples"], "val": definition["validation_samples"]}
    for split in wanted:
        if not (images / split).is_dir():
            raise InputError(
                f"{images / split}: no such folder; expected {split}/<class>/<image>, or "
                f"{', '.join(TARS.values())} in {images}"
            )
    devkit = _devkit_beside(images, definition)
    found = {split: find_images(images, split) for split in wanted}
    _same_classes(found["train"], found["val"], images)
    for split, expected in wanted.items():
        index = found[split]
        _check_classes(index, devkit, images / split)
        for what, number, right in (
            ("images", len(index.paths), expected),
            ("classes", len(index.classes), definition["classes"]),
        ):
            if number != right:
                raise InputError(
                    f"{images / split}: has {number} {what}, "
                    f"dataset {definition['name']} has {right}"
                )
    return found


def _devkit_beside(images: Path, definition: dict[str, Any]) -> Devkit | None:
    """Return the devkit if it is beside the images; counts are then checked class by class."""
    path = images / TARS["devkit"]
    if not path.is_file():
        return None
    devkit = read_devkit(path)
    check_devkit(devkit, definition, path)
    return devkit


def _check_classes(index: ImageFolderIndex, devkit: Devkit | None, where: Path) -> None:
    """Raise InputError naming classes that have another number of images than in the devkit."""
    if devkit is None:
        return
    train = where.name == "train"
    wanted = devkit.train_images if train else devkit.validation_images()
    counts = index.counts()
    wrong = [
        f"{name} has {counts.get(name, 0)} of {wanted.get(name, 0)} images"
        for name in sorted(wanted.keys() | counts.keys())
        if counts.get(name, 0) != wanted.get(name, 0)
    ]
    if wrong:
        more = " …" if len(wrong) > _SHOWN else ""
        raise InputError(f"{where}: {len(wrong)} classes: {', '.join(wrong[:_SHOWN])}{more}")


def _same_classes(train: ImageFolderIndex, val: ImageFolderIndex, images: Path) -> None:
    """Raise InputError naming a class that only one split has: every label after it would be shifted."""
    alone = sorted(set(train.classes) ^ set(val.classes))
    if alone:
        split = "train" if alone[0] in val.classes else "val"
        raise InputError(
            f"{images}: {len(alone)} classes are in only one of train and val; "
            f"{alone[0]} is missing in {split}"
        )
