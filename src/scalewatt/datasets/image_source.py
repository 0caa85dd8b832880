"""ImageNet from where the cluster has it: the official tars, or a tree of class folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scalewatt.datasets.devkit import Devkit, read_devkit
from scalewatt.datasets.image_index import SPLITS, ImageFolderIndex, build_index, index_path
from scalewatt.datasets.image_tars import EXTRACTING, TARS, Tars, check_devkit, extract_tars
from scalewatt.errors import InputError

_SHOWN = 5


def prepare_images(
    definition: dict[str, Any], folder: Path, source: str | dict[str, Any] | None
) -> tuple[int, int]:
    """Extract the tars if that is the source, index the images; training and validation samples.

    Without a source the tars, or the tree, lie in `folder`. A tree elsewhere is read where it is,
    and nothing is written there.
    """
    place = find_source(folder, source)
    if isinstance(place, Tars):
        extract_tars(place, definition, folder)
        return _index(definition, folder, folder)
    return _index(definition, folder, place)


def find_source(folder: Path, source: str | dict[str, Any] | None) -> Tars | Path:
    """The tars, or the folder of the tree, that a source (text, object or nothing) means."""
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
    tars = any((place / name).exists() for name in TARS.values())
    if any((place / split).is_dir() for split in SPLITS) and not (place / EXTRACTING).exists():
        return place
    if tars:
        return Tars(place, {})
    if source:
        raise InputError(
            f"{place}: holds neither {' nor '.join(TARS.values())}, nor train/<class>/<image> "
            "and val/<class>/<image>"
        )
    return place


def lies_elsewhere(folder: Path, source: str | dict[str, Any] | None) -> bool:
    """Whether a prepared index leads to another tree than the source, or to one that is gone."""
    indexed = ImageFolderIndex.load(folder, "val").folder
    if not (indexed / "val").is_dir():
        return True
    if source is None:
        return False
    if isinstance(source, str) and not Path(source).exists():  # tars that nobody needs any more
        return False
    place = find_source(folder, source)
    meant = folder if isinstance(place, Tars) else place
    return os.path.abspath(meant) != os.path.abspath(indexed)


def index_files(folder: Path) -> list[Path]:
    """The files that preparation leaves for images that are not ours."""
    return [index_path(folder, split) for split in SPLITS]


def image_sizes(folder: Path) -> dict[str, int]:
    """Bytes of every image, by its path; the same for the tars and for a tree made of them."""
    found: dict[str, int] = {}
    for split in SPLITS:
        index = ImageFolderIndex.load(folder, split)
        assert index.sizes is not None  # it has just been written
        found |= zip(index.paths, index.sizes.tolist(), strict=True)
    return found


def _index(definition: dict[str, Any], folder: Path, images: Path) -> tuple[int, int]:
    wanted = {"train": definition["train_samples"], "val": definition["validation_samples"]}
    for split in wanted:
        if not (images / split).is_dir():
            raise InputError(
                f"{images / split}: no such folder; expected {split}/<class>/<image>, or "
                f"{', '.join(TARS.values())} in {images}"
            )
    devkit = _devkit_beside(images, definition)
    found = {}
    for split, expected in wanted.items():
        index = found[split] = build_index(folder, split, images)
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
    _same_classes(found["train"], found["val"], images)
    return len(found["train"].paths), len(found["val"].paths)


def _devkit_beside(images: Path, definition: dict[str, Any]) -> Devkit | None:
    """The devkit, where it lies with the images: then counts are checked class by class."""
    path = images / TARS["devkit"]
    if not path.is_file():
        return None
    devkit = read_devkit(path)
    check_devkit(devkit, definition, path)
    return devkit


def _check_classes(index: ImageFolderIndex, devkit: Devkit | None, where: Path) -> None:
    """Name the classes that have another number of images than the devkit says."""
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
    """Name a class that only one of the splits has: every label after it would be another."""
    alone = sorted(set(train.classes) ^ set(val.classes))
    if alone:
        split = "train" if alone[0] in val.classes else "val"
        raise InputError(
            f"{images}: {len(alone)} classes are in only one of train and val; "
            f"{alone[0]} is missing in {split}"
        )
