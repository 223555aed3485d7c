"""Four public image sets, cut to the first images of each class and checked by their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.data._files import place, require

Name = Literal["mnist", "fashion_mnist", "cifar10", "cifar100"]
Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

KEYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, slots=True)
class Images:
    """Images (N, H, W, C) and their classes."""

    train: Pixels
    train_labels: Labels
    test: Pixels
    test_labels: Labels
    classes: int


@dataclass(frozen=True, slots=True)
class _Published:
    """What is taken of a published set, and the checksum of what was taken."""

    title: str
    home: str
    classes: int
    train_each: int
    test_each: int
    checksum: str
    # The reference copy of one set has its test images class by class.
    test_by_class: bool = False

    @property
    def contents(self) -> str:
        return (
            f"the arrays {', '.join(KEYS)} (uint8 images with channels last, integer labels) with at least the first "
            f"{self.train_each} training and {self.test_each} test images of each of the {self.classes} classes "
            f"in their published order; the content taken has SHA-256 {self.checksum}"
        )


_SETS: dict[str, _Published] = {
    "mnist": _Published(
        "MNIST",
        "http://yann.lecun.com/exdb/mnist/",
        10,
        2000,
        500,
        "ef6a146b0eb3e8b1706d4a36c6cf42c9894fccff93e536448e842cac826cb1c9",
    ),
    "fashion_mnist": _Published(
        "Fashion-MNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        10,
        2000,
        500,
        "271d04c400faa9862b6cbf38aee3907f81a0e359d2ae10d6ab2da13beb596913",
    ),
    "cifar10": _Published(
        "CIFAR-10",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        10,
        1000,
        200,
        "723548c2bd59bb7111d25907ef2f4d861a8db38daca511d2e3fe0417832907db",
    ),
    "cifar100": _Published(
        "CIFAR-100",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        100,
        100,
        20,
        "703522d67980cdd88ec86bbec8e7e717310db90c1bf5ef3eefea83af86c3282c",
        test_by_class=True,
    ),
}


def load(name: Name, folder: str | Path | None = None) -> Images:
    """Load a set from ``<name>.npz``, a full published copy or the subset itself."""
    if name not in _SETS:
        raise ValueError(f"no data set {name!r}; there are {', '.join(_SETS)}")
    published = _SETS[name]
    path = require(place(folder) / f"{name}.npz", published.title, published.home, published.contents)
    images = _subset(path, published)
    if (found := content_checksum(images)) != published.checksum:
        raise ValueError(
            f"{path} does not hold {published.title} as published: its content has SHA-256 {found}. "
            f"It has to hold {published.contents}. Fetch it again from {published.home}."
        )
    return images


def content_checksum(images: Images) -> str:
    """Return the SHA-256 of shapes and values: the same for every compression and integer type."""
    digest = hashlib.sha256()
    for pixels, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        for values in (pixels, labels.astype("<i8")):
            digest.update(f"{values.dtype.str}{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def first_of_each(labels: Labels, classes: int, each: int) -> NDArray[np.intp]:
    """Return the places of the first ``each`` examples of every class, in their order."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in range(classes)]))


def _subset(path: Path, published: _Published) -> Images:
    with np.load(path, allow_pickle=False) as file:
        absent = [key for key in KEYS if key not in file.files]
        if absent:
            raise ValueError(f"{path} has no {', '.join(absent)}. It has to hold {published.contents}.")
        train, train_labels = _pair(path, file["x_train"], file["y_train"])
        test, test_labels = _pair(path, file["x_test"], file["y_test"])
    chosen = first_of_each(train_labels, published.classes, published.train_each)
    tested = first_of_each(test_labels, published.classes, published.test_each)
    if published.test_by_class:
        tested = tested[np.argsort(test_labels[tested], kind="stable")]
    return Images(train[chosen], train_labels[chosen], test[tested], test_labels[tested], published.classes)


def _pair(path: Path, pixels: NDArray[np.generic], labels: NDArray[np.generic]) -> tuple[Pixels, Labels]:
    """Return images with a channel dimension and flat labels."""
    flat = labels.reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not np.issubdtype(flat.dtype, np.integer):
        raise ValueError(
            f"{path} holds images of {pixels.dtype} {pixels.shape} and labels of {labels.dtype}; "
            "uint8 (N, H, W) or (N, H, W, C) and integers are needed"
        )
    if len(pixels) != len(flat):
        raise ValueError(f"{path} holds {len(pixels)} images and {len(flat)} labels of them")
    whole = pixels.astype(np.uint8)
    return (whole[..., np.newaxis] if whole.ndim == 3 else whole), flat.astype(np.int64)
