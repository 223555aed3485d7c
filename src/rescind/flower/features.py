"""Features of a client's rows by a published body, on torch: each row's from that row alone, kept for the next run.

A ridge head is exact to the last bit only if nobody's features depend on another row. So the body is in evaluation
mode, and rows go through it one by one, or in batches of one shape.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rescind.checkpoints.tensors import StoredTensor, chunks, digest, read, read_remarks
from rescind.errors import DamagedCheckpointError
from rescind.private_files import open_private, warn_if_packed

_BODY, _ROWS, _FEATURES = "rescind.body", "rows", "features"


def digest_body(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a body's weights, as the server's ``PublishedBody`` names it.

    Args:
        module: the body, with its weights.

    Returns:
        64 hexadecimal digits; of names, types, shapes and numbers, whatever device they are on.
    """
    return digest({name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()})


def extract_features(
    module: torch.nn.Module,
    rows: Sequence[torch.Tensor] | torch.Tensor,
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
            each.
    """
    if not len(rows) or batch < 1:
        raise ValueError(f"there are {len(rows)} rows, in batches of {batch}; there has to be one at least")
    body = f"{digest_body(module)}, {batch} at once"
    names = [hashlib.sha256(_bytes(row)).digest() for row in rows]
    known = {} if cache is None else _read(Path(cache), body)
    missing = {name: at for at, name in enumerate(names) if name not in known}
    known |= zip(missing, _extract(module, [rows[at] for at in missing.values()], batch), strict=True)
    features = np.stack([known[name] for name in names])
    if cache is not None:
        _write(Path(cache), body, names, features)
    return features


def _bytes(row: torch.Tensor) -> bytes:
    own = row.detach().cpu().contiguous()
    return f"{own.dtype} {tuple(own.shape)} ".encode() + own.numpy().tobytes()


def _extract(module: torch.nn.Module, rows: Sequence[torch.Tensor], batch: int) -> Iterator[NDArray[np.float32]]:
    module.eval()
    for start in range(0, len(rows), batch):
        chosen = list(rows[start : start + batch])
        filled = torch.stack(chosen + [torch.zeros_like(chosen[0])] * (batch - len(chosen)))
        with torch.no_grad():
            made = module(filled)
        if made.ndim != 2 or len(made) != batch or not torch.isfinite(made[: len(chosen)]).all():
            raise ValueError(
                f"the body gives {tuple(made.shape)} for {batch} rows; it has to give one finite vector for each: "
                "take off its last layer, and average over positions"
            )
        vectors = made[: len(chosen)].detach().cpu().numpy().astype(np.float64)
        for vector in vectors:
            # A row of zeros stays one.
            yield (vector / max(float(np.linalg.norm(vector)), 1e-30)).astype(np.float32)


def _read(file: Path, body: str) -> dict[bytes, NDArray[np.float32]]:
    """Return the features that a file keeps, by the row's SHA-256; none of another body, or of a damaged file."""
    if not file.exists():
        warn_if_packed(file)
        return {}
    try:
        with file.open("rb") as kept:
            if read_remarks(kept).get(_BODY) != body:
                return {}
            kept.seek(0)
            tensors = dict(read(kept))
    except DamagedCheckpointError:
        return {}
    rows, features = tensors.get(_ROWS), tensors.get(_FEATURES)
    if rows is None or features is None or rows.shape != (len(features), 32) or features.dtype != np.float32:
        return {}
    return dict(zip(map(bytes, rows), features, strict=True))


def _write(file: Path, body: str, names: Sequence[bytes], features: NDArray[np.float32]) -> None:
    """Write a file in the place of the one that is there, for nobody else to read."""
    tensors: dict[str, StoredTensor] = {
        _ROWS: np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32),
        _FEATURES: features,
    }
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
    with open(unfinished, "wb", opener=open_private) as kept:
        for chunk in chunks(tensors, {_BODY: body}):
            kept.write(chunk)
        kept.flush()
        os.fsync(kept.fileno())
    unfinished.replace(file)
