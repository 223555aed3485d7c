"""Features of a client's rows by a published body, on torch: each row's from that row alone, kept for the next run.

A ridge head is exact to the last bit only if nobody's features depend on another row. So the body is in evaluation
mode, and rows go through it one by one, or in batches of one shape.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescind.checkpoints.tensors import SeekableFile, StoredTensor, chunks, digest, read, read_remarks
from rescind.errors import DamagedCheckpointError
from rescind.private_files import open_private, warn_if_packed

_BODY, _ROWS, _FEATURES = "rescind.body", "rows", "features"


def digest_body(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a body's weights, as the server's ``PublishedBody`` names it.

    Args:
        module: the body, with its weights.

    Returns:
        64 hexadecimal digits; of names, types, shapes and numbers, whatever device they are on, and not of the code
        that computes with them.
    """
    weights = {name: tensor for name, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor)}
    return digest({name: _numbers(tensor) for name, tensor in weights.items()})


def extract_features(
    module: torch.nn.Module,
    rows: Sequence[torch.Tensor] | torch.Tensor | NDArray[Any],
    *,
    batch: int = 1,
    cache: str | os.PathLike[str] | None = None,
) -> NDArray[np.float32]:
    """Return what a body makes of each row, scaled to length 1, for ``train_head``.

    >>> features = rescind.flower.extract_features(body, images, cache="features.safetensors")     # doctest: +SKIP

    Args:
        module: the body, which gives one vector for each row; it is put into evaluation mode.
        rows: the rows as the body takes them, all of one shape.
        batch: how many go through the body at once; the last batch is filled up with zeros. With more than 1 the last
            bits of a row's features may depend on where it stands.
        cache: a file in which to keep the features of these rows, and of no others: a row that is gone next time is
            forgotten there, too. What another body made is made anew.

    Returns:
        the features, (n, width).

    Raises:
        ValueError: there are no rows, ``batch`` is below 1, or the body gives something else than a finite vector for
            each, or another one for the same row.
    """
    if not len(rows) or batch < 1:
        raise ValueError(f"there are {len(rows)} rows, in batches of {batch}; there has to be one at least")
    tensors = [torch.as_tensor(row) for row in rows]
    names = [hashlib.sha256(_describe(row)).digest() for row in tensors]
    if cache is None:
        return _complete(module, tensors, names, batch, {})
    # Its weights do not say what a network computes with them.
    body = f"{digest_body(module)} {hashlib.sha256(repr(module).encode()).hexdigest()} {batch}"
    file = Path(cache)
    if not file.exists():
        warn_if_packed(file)
    # In place: another file beside it would outlive a process that is cut off. One that is cut off here is damaged.
    with open(file, "a+b", opener=open_private) as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        features = _complete(module, tensors, names, batch, _read(kept, body))
        kept.seek(0)
        kept.truncate()
        stored: dict[str, StoredTensor] = {
            _ROWS: np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32),
            _FEATURES: features,
        }
        for chunk in chunks(stored, {_BODY: body}):
            kept.write(chunk)
        kept.flush()
        os.fsync(kept.fileno())
    return features


def _complete(
    module: torch.nn.Module,
    rows: Sequence[torch.Tensor],
    names: Sequence[bytes],
    batch: int,
    known: Mapping[bytes, NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Return the features of all rows; those that are not known yet are made."""
    missing = {name: at for at, name in enumerate(names) if name not in known}
    made = dict(zip(missing, _extract(module, [rows[at] for at in missing.values()], batch), strict=True))
    if known and {vector.shape for vector in made.values()} - {vector.shape for vector in known.values()}:
        return _complete(module, rows, names, batch, {})
    return np.stack([made[name] if name in made else known[name] for name in names])


def _numbers(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers; of a type that numpy lacks, such as bfloat16, their bytes."""
    own = tensor.detach().cpu().contiguous()
    try:
        return own.numpy()
    except TypeError:
        return own.reshape(-1).view(torch.uint8).numpy()


def _describe(row: torch.Tensor) -> bytes:
    return f"{row.dtype} {tuple(row.shape)} ".encode() + _numbers(row).tobytes()


def _extract(module: torch.nn.Module, rows: Sequence[torch.Tensor], batch: int) -> Iterator[NDArray[np.float32]]:
    module.eval()
    for start in range(0, len(rows), batch):
        chosen = rows[start : start + batch]
        vectors = _made(module, chosen, batch)
        # Once: a body that draws at random, or reads one row by another, is none.
        if not start and not np.allclose(_made(module, chosen[:1], batch)[0], vectors[0], rtol=1e-3, atol=1e-6):
            raise ValueError(
                "the body gives another vector for the same row: it draws at random, or reads one row by the others"
            )
        yield from vectors


def _made(module: torch.nn.Module, rows: Sequence[torch.Tensor], batch: int) -> NDArray[np.float32]:
    """Return the vectors of rows of which as many as needed are added, of length 1; one of zeros stays one."""
    with torch.no_grad():
        made = module(torch.stack([*rows, *[torch.zeros_like(rows[0])] * (batch - len(rows))]))
    fit = isinstance(made, torch.Tensor) and made.ndim == 2 and len(made) == batch
    if not fit or not torch.isfinite(made[: len(rows)]).all():
        shape = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
        raise ValueError(
            f"the body gives {shape} for {batch} rows; it has to give one finite vector for each: take off its last "
            "layer, and average over positions"
        )
    vectors = made[: len(rows)].detach().cpu().to(torch.float64).numpy()
    scaled: NDArray[np.float64] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return scaled.astype(np.float32)


def _read(kept: SeekableFile, body: str) -> dict[bytes, NDArray[np.float32]]:
    """Return the features that a file keeps, by the row's SHA-256; none of another body, or of a damaged file."""
    try:
        if not kept.seek(0, os.SEEK_END) or read_remarks(kept).get(_BODY) != body:
            return {}
        tensors = dict(read(kept))
    except DamagedCheckpointError:
        return {}
    rows, features = tensors.get(_ROWS), tensors.get(_FEATURES)
    if rows is None or features is None or features.ndim != 2 or features.dtype != np.float32:
        return {}
    if rows.shape != (len(features), 32) or not np.isfinite(features).all():
        return {}
    return dict(zip(map(bytes, rows), features, strict=True))
