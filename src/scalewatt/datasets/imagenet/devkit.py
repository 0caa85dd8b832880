"""The development kit of ILSVRC2012: classes, images of each, labels for validation."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError

_META = "data/meta.mat"
_GROUND_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"


@dataclass(frozen=True)
class Devkit:
    """The classes (WordNet ids): training images of each, and that of each validation image."""

    train_images: dict[str, int]
    validation: list[str]
    """Entry i belongs to ILSVRC2012_val_<i + 1>.JPEG."""

    def validation_images(self) -> dict[str, int]:
        """Count the validation images of each class."""
        counts = dict.fromkeys(self.train_images, 0)
        for name in self.validation:
            counts[name] += 1
        return counts


def read_devkit(path: Path | str) -> Devkit:
    """Read `ILSVRC2012_devkit_t12.tar.gz`; InputError if it is damaged or another one.

    Only synsets without children are classes; the others are their groups in WordNet.
    """
    files = _read_files(Path(path))
    classes = _classes(files[_META], f"{path}: {_META}")
    wnid_of = {number: wnid for number, wnid, _ in classes}
    if len(wnid_of) != len(classes) or len(set(wnid_of.values())) != len(classes):
        raise InputError(f"{path}: {_META}: duplicate class")
    validation = []
    for number, line in enumerate(files[_GROUND_TRUTH].decode("ascii", "replace").split(), 1):
        if not line.isdigit() or int(line) not in wnid_of:
            raise InputError(
                f"{path}: {_GROUND_TRUTH}: line {number} is {line!r}; expected the "
                f"ILSVRC2012_ID of one of the {len(classes)} classes"
            )
        validation.append(wnid_of[int(line)])
    return Devkit(dict(sorted((wnid, images) for _, wnid, images in classes)), validation)


def _read_files(path: Path) -> dict[str, bytes]:
    found = {}
    try:
        # All of it at once, so that the checksum at its end is verified.
        content = gzip.decompress(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for member in tar:
                for wanted in (_META, _GROUND_TRUTH):
                    if member.isfile() and f"/{member.name}".endswith(f"/{wanted}"):
                        found[wanted] = tar.extractfile(member).read()  # type: ignore[union-attr]
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read as a tar.gz file ({error})") from error
    for wanted in (_META, _GROUND_TRUTH):
        if wanted not in found:
            raise InputError(f"{path}: has no {wanted}; expected the devkit of ILSVRC2012")
    return found


def _classes(content: bytes, where: str) -> list[tuple[int, str, int]]:
    """Return ILSVRC2012_ID, WordNet id and training images of every synset without children."""
    from scipy.io import loadmat

    try:
        synsets: Any = np.atleast_1d(loadmat(io.BytesIO(content), squeeze_me=True)["synsets"])
        columns = ("ILSVRC2012_ID", "WNID", "num_children", "num_train_images")
        rows = [tuple(synset[name] for name in columns) for synset in synsets]
        return [(int(i), str(wnid), int(n)) for i, wnid, children, n in rows if int(children) == 0]
    except Exception as error:  # scipy raises many kinds where the file is damaged
        raise InputError(
            f"{where}: cannot be read as the devkit's table of synsets ({error})"
        ) from error
