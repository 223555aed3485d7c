"""Frozen features for a convex head: functions of one image and a published seed, fitted to no data.

No row depends on another image, so a feature tells a client's head nothing about the other clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Rows = NDArray[np.float64]

SEED = 20_260_229

# The numbers below were chosen once, by hand, by how well a head reads MNIST. They are public constants.
# The random convolutions: filters of 9 by 9 pixels, both signs of 8 of them, pooled over 5 by 5 cells.
_FILTERS = 8
_WIDTH = 9
_CELLS = 5
_POOLED = 2 * _FILTERS * _CELLS**2
# The cosines approximate the Gaussian kernel exp(-3 |x - y|^2) of the pooled responses, scaled to norm 1.
_SHARPNESS = 3.0
# How far the ink of a straightened digit spreads, across and down, as a share of the image's side.
_SPREAD = (0.18, 0.2)
_STRETCH = (0.5, 1.6)
# Images at a time: more are no faster, and their patches need the memory.
_BATCH = 50
# Above the rounding of a norm of 2^15 numbers and of the division by it: the exact norm stays at most 1.
_ROUNDING = 1 + 2.0**-36


def for_networks(images: Pixels) -> NDArray[np.float32]:
    """Return images (N, H, W, C) as networks see them: (N, C, H, W) in [-2, 2]."""
    return np.asarray(images.transpose(0, 3, 1, 2) * (4 / 255) - 2, dtype=np.float32)


def random_projection(images: Pixels, dimensions: int = 100) -> Rows:
    """Multiply the pixels by a Gaussian matrix."""
    pixels = images.reshape(len(images), -1) / 255
    return normalised(pixels @ _source().standard_normal((pixels.shape[1], dimensions)))


def random_convolutions(images: Pixels, features: int = _POOLED) -> Rows:
    """Return cosines of pooled, rectified responses to random filters."""
    return _in_batches(images, features, lambda pixels: pixels)


def straightened_convolutions(images: Pixels, features: int = _POOLED) -> Rows:
    """Return the random convolutions of digits that were centred, made upright and brought to one size.

    Each image by its own moments. Meant for ink on an empty ground, such as MNIST.
    """
    return _in_batches(images, features, straightened)


def straightened(pixels: Rows) -> Rows:
    """Centre, shear and stretch each image (N, H, W, C) until its first and second moments are the usual ones."""
    _, height, width, _ = pixels.shape
    ink = pixels.sum(axis=3)
    mass = ink.sum(axis=(1, 2))
    mass = np.where(mass > 0, mass, 1.0)
    down, across = np.mgrid[:height, :width].astype(np.float64)

    def mean(values: Rows) -> Rows:
        return np.asarray((ink * values).sum(axis=(1, 2)) / mass)[:, np.newaxis, np.newaxis]

    middle_down, middle_across = mean(down), mean(across)
    below, beside = down - middle_down, across - middle_across
    variance = mean(below**2)
    slant = mean(below * beside) / np.where(variance > 0, variance, 1.0)
    tall = np.clip(np.sqrt(variance) / (_SPREAD[1] * height), *_STRETCH)
    wide = np.clip(np.sqrt(mean((beside - slant * below) ** 2)) / (_SPREAD[0] * width), *_STRETCH)

    # Every new pixel asks where it came from.
    from_middle = (down - (height - 1) / 2) * tall
    return _interpolated(
        pixels, middle_down + from_middle, middle_across + slant * from_middle + (across - (width - 1) / 2) * wide
    )


def normalised(rows: Rows) -> Rows:
    """Scale rows to norm 1, from below; a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms * _ROUNDING, 1.0), dtype=np.float64)


def _source() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(SEED))


def _in_batches(images: Pixels, features: int, prepare: Callable[[Rows], Rows]) -> Rows:
    _, height, width, channels = images.shape
    if min(height, width) < _WIDTH + _CELLS - 1:
        raise ValueError(f"images of {height} by {width} pixels are too small: each side needs {_WIDTH + _CELLS - 1}")
    source = _source()
    filters = source.standard_normal((channels * _WIDTH**2, _FILTERS))
    # A filter that sums to 0 sees edges and no brightness.
    filters -= filters.mean(axis=0)
    directions = _directions(source, features)
    phases = source.uniform(0, 2 * math.pi, features)
    rows = np.empty((len(images), features))
    for start in range(0, len(images), _BATCH):
        batch = slice(start, start + _BATCH)
        pooled = _responses(prepare(images[batch] / 255), filters)
        # Cosines of random phase have mean 0 over the phases: the rows share little, and all of the norm tells.
        rows[batch] = normalised(np.cos(normalised(pooled) @ directions + phases))
    return rows


def _directions(source: np.random.Generator, features: int) -> Rows:
    """Return random directions, orthogonal in blocks: fewer of them do than of independent ones."""
    blocks = [
        np.linalg.qr(source.standard_normal((_POOLED, _POOLED))).Q * math.sqrt(2 * _SHARPNESS * _POOLED)
        for _ in range(-(-features // _POOLED))
    ]
    return np.asarray(np.concatenate(blocks, axis=1)[:, :features])


def _responses(pixels: Rows, filters: Rows) -> Rows:
    """Filter, keep the two signs apart, and take means over cells."""
    patches = np.lib.stride_tricks.sliding_window_view(pixels, (_WIDTH, _WIDTH), axis=(1, 2))
    count, height, width = patches.shape[:3]
    responses = (patches.reshape(-1, len(filters)) @ filters).reshape(count, height, width, _FILTERS)
    both = np.concatenate([np.maximum(responses, 0), np.maximum(-responses, 0)], axis=3)
    for axis, size in ((1, height), (2, width)):
        edges = np.arange(_CELLS) * size // _CELLS
        both = np.add.reduceat(both, edges, axis=axis)
    return both.reshape(count, -1)


def _interpolated(pixels: Rows, down: Rows, across: Rows) -> Rows:
    """Read images between their pixels, bilinearly; outside they are 0."""
    count, height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1), (0, 0)))
    down, across = np.clip(down + 1, 0, height + 1), np.clip(across + 1, 0, width + 1)
    row, column = np.minimum(down.astype(np.intp), height), np.minimum(across.astype(np.intp), width)
    below, beside = (down - row)[..., np.newaxis], (across - column)[..., np.newaxis]
    image = np.arange(count)[:, np.newaxis, np.newaxis]
    upper = padded[image, row, column] * (1 - beside) + padded[image, row, column + 1] * beside
    lower = padded[image, row + 1, column] * (1 - beside) + padded[image, row + 1, column + 1] * beside
    return np.asarray(upper * (1 - below) + lower * below)
