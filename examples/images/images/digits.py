"""MNIST from one file, or downloaded, and each client's share of it."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

KEYS = ("x_train", "y_train", "x_test", "y_test")
HOME = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SEED = 20_260_229


def share(path: str, partition: int, partitions: int) -> tuple[Pixels, Labels]:
    """Return one client's images and their digits; no image is in two shares."""
    images, labels, _, _ = _read(path, download=partitions > 1)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(labels))
    own = order[partition::partitions]
    return images[own], labels[own]


def test(path: str) -> tuple[Pixels, Labels]:
    """Return the test images, which belong to no client, and their digits."""
    _, _, images, labels = _read(path, download=True)
    return images, labels


@functools.cache
def _read(path: str, *, download: bool) -> tuple[Pixels, Labels, Pixels, Labels]:
    contents = f"It has to hold {', '.join(KEYS)}: uint8 images (n, 28, 28) and their n digits, as in {HOME}"
    # In a deployment the file is a client's own, and no other will do.
    if download and not Path(path).expanduser().is_file():
        return _download()
    with np.load(Path(path).expanduser(), allow_pickle=False) as file:
        missing = [key for key in KEYS if key not in file.files]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}. {contents}")
        images, labels, test_images, test_labels = (file[key] for key in KEYS)
    return images, labels.astype(np.int64), test_images, test_labels.astype(np.int64)


def _download() -> tuple[Pixels, Labels, Pixels, Labels]:
    from flwr_datasets import FederatedDataset

    mnist = FederatedDataset(dataset="ylecun/mnist", partitioners={})
    train, test = (mnist.load_split(split).with_format("numpy") for split in ("train", "test"))
    return train["image"][:], train["label"][:], test["image"][:], test["label"][:]
