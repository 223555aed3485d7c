"""CelebA, from the user's own copy: a client is one person, the question is whether they smile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.data._files import place, require

SIDE = 32

_HOME = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
_IMAGES = "img_align_celeba"
_IDENTITIES = "identity_CelebA.txt"
_ATTRIBUTES = "list_attr_celeba.txt"
_PARTITION = "list_eval_partition.txt"
_LABEL = "Smiling"
_TEST = 2


@dataclass(frozen=True, slots=True)
class Client:
    """One person: images (N, 32, 32, 3) and whether they smile (1) or not (0)."""

    identity: int
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Faces:
    """Clients in the order of their identity, and the official test images of other people."""

    clients: tuple[Client, ...]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def load(at_least: int, folder: str | Path | None = None, people: int | None = None) -> Faces:
    """Load the folder ``celeba`` in the official layout; a client has ``at_least`` so many images.

    Clients are the people without a test image (training and validation part), or the first ``people`` of them.
    """
    if at_least < 1:
        raise ValueError(f"at_least is {at_least}; a client needs at least 1 image")
    root = place(folder) / "celeba"
    for name in (_IDENTITIES, _ATTRIBUTES, _PARTITION, _IMAGES):
        _require(root / name)
    identity = _numbers(root / _IDENTITIES)
    partition = _numbers(root / _PARTITION)
    smiles = _smiles(root / _ATTRIBUTES)
    for listed, path in ((partition, _PARTITION), (smiles, _ATTRIBUTES)):
        if listed.keys() != identity.keys():
            raise ValueError(f"{root / path} and {root / _IDENTITIES} list different images: fetch both from {_HOME}")

    tested = sorted(image for image, part in partition.items() if part == _TEST)
    strangers = {identity[image] for image in tested}
    images: dict[int, list[str]] = defaultdict(list)
    for image in sorted(identity):
        if identity[image] not in strangers:
            images[identity[image]].append(image)

    def labels(names: Sequence[str]) -> NDArray[np.int64]:
        return np.array([smiles[name] for name in names], dtype=np.int64)

    chosen = [(person, names) for person, names in sorted(images.items()) if len(names) >= at_least]
    if people is not None and people > len(chosen):
        raise ValueError(f"{root} has {len(chosen)} people with {at_least} images or more, not {people}")
    return Faces(
        tuple(Client(person, _read(root / _IMAGES, names), labels(names)) for person, names in chosen[:people]),
        _read(root / _IMAGES, tested),
        labels(tested),
    )


def _require(path: Path) -> Path:
    return require(
        path,
        "CelebA",
        _HOME,
        f"the official {path.name}; beside it lie {_IMAGES} with the aligned images, "
        f"{_IDENTITIES}, {_ATTRIBUTES} and {_PARTITION} (its terms forbid passing it on, so there is no checksum)",
    )


def _numbers(path: Path) -> dict[str, int]:
    """Read lines such as ``000001.jpg 2880``."""
    pairs = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{path} has a line that is not an image and a number: fetch it again from {_HOME}")
    return {image: int(number) for image, number in pairs}


def _smiles(path: Path) -> dict[str, int]:
    """Read the label from the count, the names of the attributes, and a row of -1 and 1 for each image."""
    count, names, *rows = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    if _LABEL not in names or [str(len(rows))] != count or any(len(row) != len(names) + 1 for row in rows):
        raise ValueError(f"{path} is not a count, names with {_LABEL}, and its rows: fetch it again from {_HOME}")
    # A row begins with the image, which has no name above it.
    column = names.index(_LABEL) + 1
    return {row[0]: int(row[column] == "1") for row in rows}


def _read(folder: Path, names: Sequence[str]) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("CelebA's images are JPEG files: install Pillow to read them") from error
    images = np.empty((len(names), SIDE, SIDE, 3), dtype=np.uint8)
    for target, name in zip(images, names, strict=True):
        with Image.open(_require(folder / name)) as image:
            target[:] = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return images
