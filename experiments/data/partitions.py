"""Which client has which training example: every example at most once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


def one_class(labels: Labels, clients: int, each: int, seed: int) -> list[Indices]:
    """Return every client examples of a single class.

    Neighbours share a class: of 100 clients and 10 classes, clients 0 to 9 have class 0.
    """
    _check(labels, clients, each)
    stock = _stock(labels, _source(seed))
    classes = [client * len(stock) // clients for client in range(clients)]
    for label, left in enumerate(stock):
        wanted = classes.count(label) * each
        if wanted > len(left):
            raise ValueError(
                f"class {label} has {len(left)} examples, its clients need {wanted}: take fewer clients or fewer each"
            )
    return [_take(stock, label, each) for label in classes]


def dirichlet(labels: Labels, clients: int, concentration: float, each: int, seed: int) -> list[Indices]:
    """Return every client class proportions drawn from Dirichlet(concentration).

    The share of a class that has run out goes to the others, in the client's own proportions.
    """
    _check(labels, clients, each)
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration is {concentration!r}; it has to be a finite number above 0")
    source = _source(seed)
    stock = _stock(labels, source)

    def mixed() -> Indices:
        proportions = source.dirichlet(np.full(len(stock), concentration))
        counts = _counts(proportions, np.array([len(left) for left in stock]), each, source)
        return np.concatenate([_take(stock, label, int(count)) for label, count in enumerate(counts)])

    return [mixed() for _ in range(clients)]


def iid(labels: Labels, clients: int, each: int, seed: int) -> list[Indices]:
    """Return every client a uniform sample."""
    _check(labels, clients, each)
    order = _source(seed).permutation(len(labels)).astype(np.int64)
    return [order[client * each : (client + 1) * each] for client in range(clients)]


def _source(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _check(labels: Labels, clients: int, each: int) -> None:
    if clients < 1 or each < 1:
        raise ValueError(f"{clients} clients of {each} examples: both numbers have to be at least 1")
    if clients * each > len(labels):
        raise ValueError(
            f"{clients} clients of {each} examples need {clients * each}, there are {len(labels)}: take fewer"
        )


def _stock(labels: Labels, source: np.random.Generator) -> list[Indices]:
    """Return the examples of each class in random order."""
    classes = int(labels.max()) + 1
    return [source.permutation(np.flatnonzero(labels == label)).astype(np.int64) for label in range(classes)]


def _take(stock: list[Indices], label: int, count: int) -> Indices:
    taken, stock[label] = stock[label][:count], stock[label][count:]
    return taken


def _counts(
    proportions: NDArray[np.float64], left: NDArray[np.int64], each: int, source: np.random.Generator
) -> NDArray[np.int64]:
    """Draw how many of each class, never more than are left."""
    counts = np.zeros(len(left), dtype=np.int64)
    while (missing := each - int(counts.sum())) > 0:
        open_ = counts < left
        shares = np.where(open_, proportions, 0.0)
        # A tiny concentration can round the share of every class that is left to 0.
        shares = shares / shares.sum() if shares.sum() > 0 else open_ / open_.sum()
        counts = np.minimum(counts + source.multinomial(missing, shares), left)
    return counts
