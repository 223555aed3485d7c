"""CIFAR-10 from one file, or downloaded, and each client's share of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEYS = ("x_train", "y_train", "x_test", "y_test")
SEED = 20_260_229


def share(
    path: str, partition: int, partitions: int, part: str = "train"
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one client's images, in the file's order, and what they show; no image is in two shares."""
    contents = f"It has to hold {', '.join(KEYS)}: uint8 images (n, 32, 32, 3), and what the n images show"
    # In a deployment the file is a client's own, and no other will do.
    if partitions > 1 and not Path(path).expanduser().is_file():
        return _download(partition, partitions, part)
    with np.load(Path(path).expanduser(), allow_pickle=False) as file:
        missing = [key for key in KEYS if key not in file.files]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}. {contents}")
        images, labels = file[f"x_{part}"], file[f"y_{part}"].astype(np.int64)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(labels))
    own = np.sort(order[partition::partitions])
    return images[own], labels[own]


def _download(partition: int, partitions: int, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from flwr_datasets import FederatedDataset

    dataset = FederatedDataset(dataset="uoft-cs/cifar10", partitioners={part: partitions})
    own = dataset.load_partition(partition, part).with_format("numpy")
    return own["img"][:], own["label"][:]
