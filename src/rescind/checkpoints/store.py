"""Models under the SHA-256 of their bytes: in a folder, in memory, or in an S3 bucket.

A checkpoint is private. What is read is verified, what is half written is never visible, and deleting means every
copy that can be reached; the copies that cannot are listed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rescind.checkpoints.bucket import BucketStorage
from rescind.checkpoints.storage import SUFFIX, FolderStorage, MemoryStorage, Storage
from rescind.checkpoints.tensors import StoredTensor, read
from rescind.errors import DamagedCheckpointError, MissingCheckpointError
from rescind.texts import is_digest


class CheckpointStore:
    """Models by digest in one place: a folder's path, ``memory://name`` or ``s3://bucket/prefix``.

    Keys and endpoint of S3 come from where s3fs looks (environment, fsspec's configuration) or from
    ``storage_options``. Other places are refused, because how to erase there is not known.
    """

    def __init__(self, address: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        self._place = _storage_at(address, storage_options or {})

    @property
    def address(self) -> str:
        """Where the models are."""
        return self._place.address

    def put(self, tensors: Mapping[str, StoredTensor]) -> str:
        """Store a model and give its digest; when this returns, the model is complete and durable.

        A model that is there already is not written again. In a folder it is read first and replaced if it is
        damaged; in a bucket only its size is compared, because reading it costs as much as storing it and the
        service checks its own bytes.
        """
        return self._place.put(tensors)

    def load(self, digest: str) -> dict[str, StoredTensor]:
        """Return a model whose bytes are those of its digest."""
        return dict(self.stream(digest))

    def stream(self, digest: str) -> Iterator[tuple[str, StoredTensor]]:
        """Return a model's tensors one at a time, for models that do not fit into memory.

        The digest can be compared only after the last tensor. Until the iteration has ended without an error, what
        it gave may be wrong: do nothing with it that cannot be undone.
        """
        return self._stream(_check_digest(digest))

    def _stream(self, digest: str) -> Iterator[tuple[str, StoredTensor]]:
        hasher = hashlib.sha256()
        try:
            with self._place.open(digest + SUFFIX) as file:
                yield from read(file, hasher.update)
        except FileNotFoundError as error:
            raise MissingCheckpointError(f"checkpoint {digest} is not in {self._place.address}") from error
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(
                f"checkpoint {digest} in {self._place.address} is damaged: {error}"
            ) from error
        if hasher.hexdigest() != digest:
            raise DamagedCheckpointError(
                f"checkpoint {digest} in {self._place.address} is damaged: its bytes have the digest "
                f"{hasher.hexdigest()}"
            )

    def delete(self, digest: str) -> None:
        """Erase a model, with all its versions where the place keeps versions; one that is not there is no error.

        Versions that must not be deleted remain, hidden, and are told by ``kept_versions``.
        """
        self._place.delete({_check_digest(digest) + SUFFIX})

    def digests(self) -> set[str]:
        """Return the digests of the models that are stored completely."""
        return {name.removesuffix(SUFFIX) for name in self._place.names()}

    def stored_bytes(self) -> int:
        """Return how many bytes the models take that are stored completely."""
        return sum(self._place.size(name) or 0 for name in self._place.names())

    def __contains__(self, digest: object) -> bool:
        return is_digest(digest) and self._place.size(f"{digest}{SUFFIX}") is not None

    def remove_unfinished(self) -> int:
        """Erase what killed writers left, and tell how many pieces: temporary files, or uploads never completed.

        A writer that is still at work loses its piece too and fails, so call it while nobody writes.
        """
        return self._place.remove_unfinished()

    def remove(self) -> None:
        """Erase everything of this store; files that it did not make stay, and a folder that holds some."""
        self._place.remove()

    def kept_versions(self) -> tuple[str, ...]:
        """Name the versions of deleted or replaced models that the place still holds, or that it will not tell.

        Empty means that there are none. Snapshots, replicas and backups of a disk or a bucket are not seen.
        """
        return self._place.kept_versions()


def _storage_at(address: str | os.PathLike[str], options: Mapping[str, Any]) -> Storage:
    text = os.fspath(address)
    protocol, separator, rest = text.partition("://")
    if isinstance(address, str) and separator and protocol in ("s3", "s3a"):
        return BucketStorage(text, options)
    if options:
        raise ValueError(f"storage_options are for s3:// addresses, not for {text}")
    if isinstance(address, os.PathLike) or not separator:
        return FolderStorage(Path(os.path.abspath(text)))
    if protocol == "file":
        return FolderStorage(Path(os.path.abspath(rest)))
    if protocol == "memory":
        return MemoryStorage(rest.strip("/"))
    raise ValueError(f"{text} is no place for checkpoints: use a folder, memory://name or s3://bucket/prefix")


def _check_digest(digest: str) -> str:
    if not is_digest(digest):
        raise ValueError(f"a digest has 64 lowercase hexadecimal digits, got {digest!r}")
    return digest
