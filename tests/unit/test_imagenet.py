"""The ImageNet reader: torchvision's transforms, random numbers of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.imagenet_dataset import (
    CHANNEL_MEAN,
    CHANNEL_SD,
    ImageNetDataset,
    central_geometry,
    central_view,
    random_box,
    to_tensor,
)
from scalewatt.datasets.imagenet.index import ImageFolderIndex, build_index
from scalewatt.datasets.prepare import prepare_dataset

DEFINITION = {
    "name": "photos",
    "format": "imagenet",
    "source": "data_root",
    "train_samples": 12,
    "validation_samples": 6,
    "classes": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("imagenet")
    rng = np.random.default_rng(0)
    for split, images in (("train", 4), ("val", 2)):
        for name in ("n02", "n10", "n01"):
            (root / split / name).mkdir(parents=True)
            for number in range(images):
                pixels = rng.integers(0, 255, (rng.integers(50, 90), rng.integers(50, 90), 3))
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(root / split / name / f"{number}.JPEG", quality=95)
    prepare_dataset(DEFINITION, root, None)
    return root


def dataset(folder, augment=True, split="train", indices=None, **options):
    return ImageNetDataset(folder, split, indices, 32, augment, seed=5, **options)


def test_labels_follow_the_sorted_class_folders(folder):
    index = ImageFolderIndex.load(folder, "val")
    assert index.classes == ["n01", "n02", "n10"]
    assert index.paths[2] == "val/n02/0.JPEG" and index.labels.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("size", [(40, 40), (57, 83), (91, 50), (500, 375)])
def test_the_central_view_is_torchvisions_resize_and_center_crop(size):
    from torchvision import transforms

    pixels = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    expected = transforms.Compose(
        [
            transforms.Resize(round(32 * 256 / 224)),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD),
        ]
    )(image)
    torch.testing.assert_close(to_tensor(central_view(image, 32)), expected, rtol=0, atol=2e-6)


def test_every_size_is_resized_to_torchvisions():
    from torchvision.transforms.functional import _compute_resized_output_size

    for width in range(60, 700, 7):
        for height in range(60, 700, 11):
            expected = _compute_resized_output_size((height, width), [256])
            assert list(central_geometry(width, height, 224)[1::-1]) == expected, (width, height)


def test_random_boxes_have_the_scale_and_aspect_asked_for():
    rng = np.random.default_rng(0)
    boxes = np.array([random_box(400, 300, (0.5, 1.0), rng) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0 and boxes[:, 2].max() <= 400 and boxes[:, 3].max() <= 300
    assert np.all((width / height > 0.74) & (width / height < 1.35))
    share = width * height / (400 * 300)
    assert 0.49 < share.min() < 0.52 and share.max() > 0.95
    assert random_box(10, 100, (0.9, 1.0), rng) == (0, 43, 10, 56)  # no such box: the central one


def test_augmentation_depends_on_seed_epoch_and_image_only(folder):
    data = dataset(folder)
    first = data[0, 7][0]
    assert torch.equal(first, dataset(folder, indices=np.array([3, 7]))[0, 1][0])
    assert not torch.equal(first, data[1, 7][0])
    assert not torch.equal(first, ImageNetDataset(folder, "train", None, 32, True, seed=6)[0, 7][0])


def test_the_number_of_workers_changes_nothing(folder):
    keys = [(3, position) for position in range(12)]
    loaded = [
        torch.cat(
            [
                images
                for images, _ in DataLoader(
                    dataset(folder), batch_size=5, sampler=keys, num_workers=workers
                )
            ]
        )
        for workers in (0, 2)
    ]
    assert torch.equal(*loaded)


def test_without_flips_no_image_is_mirrored(folder):
    whole = {"crop_scale": (1.0, 1.0)}
    flips = 0
    for key in [(epoch, position) for epoch in range(8) for position in range(12)]:
        plain = dataset(folder, horizontal_flip=False, **whole)[key][0]
        flipped = dataset(folder, **whole)[key][0]
        flips += torch.equal(flipped, plain.flip(2)) and not torch.equal(flipped, plain)
        assert torch.equal(flipped, plain) or torch.equal(flipped, plain.flip(2))
    assert 30 <= flips <= 66


def test_an_item_is_a_normalised_float_image_and_its_label(folder):
    image, label = dataset(folder, split="val", augment=False)[0, 5]
    assert image.shape == (3, 32, 32) and image.dtype == torch.float32 and image.is_contiguous()
    assert label == 2 and isinstance(label, int)


def test_a_damaged_image_is_named(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
    (tmp_path / "train" / "a" / "whole.JPEG").write_bytes(
        (folder / "train" / "n01" / "0.JPEG").read_bytes()
    )
    (tmp_path / "train" / "b" / "torn.JPEG").write_bytes(b"\xff\xd8 nothing")
    build_index(tmp_path, "train")
    with pytest.raises(InputError, match=r"train/b/torn\.JPEG"):
        dataset(tmp_path)[0, 1]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train_samples", 13, "train: has 12 images, dataset photos has 13"),
        ("validation_samples", 5, "val: has 6 images, dataset photos has 5"),
        ("classes", 4, "train: has 3 classes, dataset photos has 4"),
    ],
)
def test_a_tree_that_does_not_fit_its_definition_is_refused(folder, tmp_path, key, value, message):
    for split in ("train", "val"):
        (tmp_path / split).symlink_to(folder / split)
    with pytest.raises(InputError, match=message):
        prepare_dataset(DEFINITION | {key: value}, tmp_path, None)
    assert not (tmp_path / "manifest.json").exists()


def test_a_missing_split_is_named(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "x.JPEG").touch()
    wrong = DEFINITION | {"train_samples": 1, "classes": 1}
    with pytest.raises(InputError, match="val: no such folder"):
        prepare_dataset(wrong, tmp_path, None)


def test_a_prepared_tree_is_refused_for_another_definition(folder):
    with pytest.raises(InputError, match="was prepared for"):
        prepare_dataset(DEFINITION | {"name": "others"}, folder, None)
