"""Small files of the structure in which ImageNet-2012 is distributed."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

from scalewatt.data.imagenet import TARS
from scalewatt.data.prepared import prepare_dataset

FIELDS = (
    *("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children"),
    *("wordnet_height", "num_train_images"),
)


def image_bytes(seed: int, mode: str = "RGB", kind: str = "JPEG", side: int = 40) -> bytes:
    """A small image of a colour that the seed decides, with some noise."""
    rng = np.random.default_rng(seed)
    channels = {"RGB": 3, "CMYK": 4}[mode]
    pixels = rng.integers(0, 255, channels) + rng.integers(-40, 40, (side, side + 7, channels))
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8), mode).save(out, kind)
    return out.getvalue()


def tar_bytes(members: dict[str, bytes], format_: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar file with these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@dataclass
class Official:
    """What the three files hold; `write` makes them of it."""

    train: dict[str, dict[str, bytes]]
    """Images by name, by class."""
    validation: list[tuple[str, bytes]]
    """Class and image of ILSVRC2012_val_00000001.JPEG and so on."""

    @classmethod
    def make(
        cls, classes: int = 3, train: int = 5, validation: int = 2, side: int = 40
    ) -> Official:
        """`train` and up to two more training images a class; one a PNG, one CMYK."""
        images: dict[str, dict[str, bytes]] = {}
        for label in range(classes):
            # In the devkit's order, which is not the alphabet's.
            wnid = f"n{1440000 + 7919 * (label * 5 % classes):08d}"
            images[wnid] = {
                f"{wnid}_{number}.JPEG": image_bytes(100 * label + number, side=side)
                for number in range(train + label % 3)
            }
        first, *_, last = images
        images[first][f"{first}_0.JPEG"] = image_bytes(1, kind="PNG", side=side)
        images[last][f"{last}_1.JPEG"] = image_bytes(2, mode="CMYK", side=side)
        order = np.random.default_rng(0).permutation(np.repeat(list(images), validation))
        return cls(
            images, [(str(w), image_bytes(9000 + i, side=side)) for i, w in enumerate(order)]
        )

    @property
    def definition(self) -> dict[str, Any]:
        """The dataset's definition."""
        return {
            "name": "photos",
            "format": "imagenet",
            "source": "data_root",
            "train_samples": sum(map(len, self.train.values())),
            "validation_samples": len(self.validation),
            "classes": len(self.train),
        }

    def write(self, folder: Path) -> Path:
        """Write the three files to `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        inner = {f"{wnid}.tar": tar_bytes(images) for wnid, images in sorted(self.train.items())}
        (folder / TARS["train"]).write_bytes(tar_bytes(inner))
        named = {
            f"ILSVRC2012_val_{i:08d}.JPEG": image for i, (_, image) in enumerate(self.validation, 1)
        }
        (folder / TARS["val"]).write_bytes(tar_bytes(named))
        with tarfile.open(folder / TARS["devkit"], "w:gz") as tar:
            for name, content in self._devkit().items():
                info = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return folder

    def _devkit(self) -> dict[str, bytes]:
        wnids = list(self.train)
        rows = [
            (i, wnid, "word, other word", "what it is", 0, np.array([]), 0, len(images))
            for i, (wnid, images) in enumerate(self.train.items(), 1)
        ]
        last = len(rows)
        rows += [  # the groups above them, which are no classes
            (last + 1, "n00001740", "entity", "all", 2, np.array([1, last + 2]), 2, 0),
            (last + 2, "n00002137", "group", "some", 2, np.array([2, last]), 1, 0),
        ]
        synsets = np.zeros((len(rows), 1), dtype=[(name, object) for name in FIELDS])
        for row, values in enumerate(rows):
            synsets[row, 0] = values
        mat = io.BytesIO()
        savemat(mat, {"synsets": synsets})
        truth = "".join(f"{wnids.index(wnid) + 1}\n" for wnid, _ in self.validation)
        return {
            "readme.txt": b"about",
            "data/meta.mat": mat.getvalue(),
            "data/ILSVRC2012_validation_ground_truth.txt": truth.encode(),
        }

    def tree(self, folder: Path) -> Path:
        """Write what the tars hold as a tree, independently of them."""
        for wnid, images in self.train.items():
            (folder / "train" / wnid).mkdir(parents=True)
            (folder / "val" / wnid).mkdir(parents=True)
            for name, content in images.items():
                (folder / "train" / wnid / name).write_bytes(content)
        for i, (wnid, content) in enumerate(self.validation, 1):
            (folder / "val" / wnid / f"ILSVRC2012_val_{i:08d}.JPEG").write_bytes(content)
        return folder


def prepare(official: Official, folder: Path, source: Any = None) -> dict[str, Any]:
    """Prepare `folder` for these images; the marker."""
    return prepare_dataset(official.definition, folder, source)


def md5s(folder: Path) -> dict[str, str]:
    """MD5 of the three files in `folder`."""
    return {
        kind: hashlib.md5((folder / name).read_bytes()).hexdigest() for kind, name in TARS.items()
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Every image below train/ and val/ by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for split in ("train", "val")
        for path in sorted((folder / split).rglob("*"))
        if path.is_file()
    }
