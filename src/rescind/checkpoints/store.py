"""Models under the SHA-256 of their bytes: in a folder, in memory, or in an S3 bucket.

A checkpoint is private. What is read is verified, what is half written is never visible, and deleting means every
copy that can be reached; the copies that cannot are listed. ``bucket`` has the third place.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from rescind.checkpoints.tensors import SeekableFile, StoredTensor, chunks, read
from rescind.errors import DamagedCheckpointError, MissingCheckpointError
from rescind.private_files import check_private, name_when_full, open_private, sync
from rescind.texts import is_digest

SUFFIX = ".safetensors"
UNFINISHED = ".unfinished-"


class CheckpointStore(ABC):
    """Models by digest in one place, whose ``address`` says where."""

    address: str

    def put(self, tensors: Mapping[str, StoredTensor]) -> str:
        """Store a model and give its digest; when this returns, the model is complete and durable.

        A model that is there already is not written again. In a folder it is read first and replaced if it is
        damaged; in a bucket only its size is compared, because reading it costs as much as storing it and the
        service checks its own bytes.
        """
        return self._put(tensors, None)

    def put_named(self, name: str, tensors: Mapping[str, StoredTensor]) -> None:
        """Store tensors under a name of 64 hexadecimal digits that says what they are, in place of their digest."""
        self._put(tensors, _check_digest(name))

    def load_named(self, name: str) -> dict[str, StoredTensor]:
        """Return what ``put_named`` stored, or somebody else: whoever asks has to check it."""
        return dict(self._stream(_check_digest(name), named=True))

    def load(self, digest: str) -> dict[str, StoredTensor]:
        """Return a model whose bytes are those of its digest."""
        return dict(self.stream(digest))

    def stream(self, digest: str) -> Iterator[tuple[str, StoredTensor]]:
        """Return a model's tensors one at a time, for models that do not fit into memory.

        The digest can be compared only after the last tensor. Until the iteration has ended without an error, what
        it gave may be wrong: do nothing with it that cannot be undone.
        """
        return self._stream(_check_digest(digest))

    def _stream(self, digest: str, *, named: bool = False) -> Iterator[tuple[str, StoredTensor]]:
        hasher = hashlib.sha256()
        try:
            with self._open(digest + SUFFIX) as file:
                yield from read(file) if named else read(file, hasher.update)
        except FileNotFoundError as error:
            raise MissingCheckpointError(f"checkpoint {digest} is not in {self.address}") from error
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(f"checkpoint {digest} in {self.address} is damaged: {error}") from error
        if not named and hasher.hexdigest() != digest:
            raise DamagedCheckpointError(
                f"checkpoint {digest} in {self.address} is damaged: its bytes have the digest {hasher.hexdigest()}"
            )

    def delete(self, digest: str) -> None:
        """Erase a model, with all its versions where the place keeps versions; one that is not there is no error.

        Versions that must not be deleted remain, hidden, and are told by ``kept_versions``.
        """
        self._delete({_check_digest(digest) + SUFFIX})

    def digests(self) -> set[str]:
        """Return the digests of the models that are stored completely."""
        return {name.removesuffix(SUFFIX) for name in self._names()}

    def stored_bytes(self) -> int:
        """Return how many bytes the models take that are stored completely."""
        return sum(self._size(name) or 0 for name in self._names())

    def __contains__(self, digest: object) -> bool:
        return is_digest(digest) and self._size(f"{digest}{SUFFIX}") is not None

    def remove_unfinished(self) -> int:
        """Erase what killed writers left, and tell how many pieces: temporary files, or uploads never completed.

        A writer that is still at work loses its piece too and fails, so call it while nobody writes.
        """
        return 0

    def remove(self) -> None:
        """Erase everything of this store; files that it did not make stay, and a folder that holds some."""
        self._delete(self._names())
        self.remove_unfinished()

    def kept_versions(self) -> tuple[str, ...]:
        """Name the versions of deleted or replaced models that the place still holds, or that it will not tell.

        Empty means that there are none. Snapshots, replicas and backups of a disk or a bucket are not seen.
        """
        return ()

    @abstractmethod
    def _put(self, tensors: Mapping[str, StoredTensor], name: str | None) -> str:
        """Store a model, under its digest unless it is given a name, and give its digest."""

    @abstractmethod
    def _open(self, name: str) -> AbstractContextManager[SeekableFile]:
        """Open a file; ``FileNotFoundError`` if it is not there."""

    @abstractmethod
    def _size(self, name: str) -> int | None:
        """Return a file's size, nothing if it is not there."""

    @abstractmethod
    def _names(self) -> set[str]:
        """Name the files that are complete."""

    @abstractmethod
    def _delete(self, names: set[str]) -> None:
        """Delete files; those that are not there do not matter."""


class FolderStore(CheckpointStore):
    """A folder that only its owner can enter."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder
        if folder.exists():
            check_private(self._folder)

    def _put(self, tensors: Mapping[str, StoredTensor], name: str | None) -> str:
        self._prepare()
        temporary = self._folder / (UNFINISHED + secrets.token_hex(16))
        hasher = hashlib.sha256()
        try:
            with name_when_full(self._folder), open(temporary, "xb", opener=open_private) as file:
                # One pass: the name is that of the bytes in the file, even if a tensor changes meanwhile.
                for chunk in chunks(tensors):
                    hasher.update(chunk)
                    file.write(chunk)
                final = self._folder / ((name or hasher.hexdigest()) + SUFFIX)
                if not self._holds(final, tensors):
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)
        # Also for a file that was there: whoever wrote it may not have come this far.
        sync(self._folder)
        return hasher.hexdigest()

    def _open(self, name: str) -> AbstractContextManager[SeekableFile]:
        if self._size(name) is None:
            raise FileNotFoundError(name)
        check_private(self._folder / name)
        return open(self._folder / name, "rb")

    def _size(self, name: str) -> int | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(self._folder / name)
            # Deleting a symbolic link would erase nothing, so none is taken for a file.
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        return None

    def _names(self) -> set[str]:
        return {name for name in self._files() if is_finished(name)}

    def _delete(self, names: set[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        if self._folder.exists():
            sync(self._folder)

    def remove_unfinished(self) -> int:
        names = {name for name in self._files() if name.startswith(UNFINISHED)}
        self._delete(names)
        return len(names)

    def remove(self) -> None:
        super().remove()
        # A folder that cannot go (other files, a mount) holds nothing of this store any more.
        with suppress(OSError):
            self._folder.rmdir()

    def _files(self) -> list[str]:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        return []

    def _holds(self, path: Path, tensors: Mapping[str, StoredTensor]) -> bool:
        if self._size(path.name) is None:
            return False
        # Comparing is several times as fast as hashing the file, and as good.
        with open(path, "rb") as file:
            return all(file.read(len(chunk)) == bytes(chunk) for chunk in chunks(tensors)) and not file.read(1)

    def _prepare(self) -> None:
        missing = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir(0o700)
                folder.chmod(0o700)
                sync(folder.parent)
        check_private(self._folder)


class MemoryStore(CheckpointStore):
    """The memory of this process."""

    address = "memory"

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def _put(self, tensors: Mapping[str, StoredTensor], name: str | None) -> str:
        data = b"".join(chunks(tensors))
        digest = hashlib.sha256(data).hexdigest()
        self._files[(name or digest) + SUFFIX] = data
        return digest

    def _open(self, name: str) -> AbstractContextManager[SeekableFile]:
        if name not in self._files:
            raise FileNotFoundError(name)
        return io.BytesIO(self._files[name])

    def _size(self, name: str) -> int | None:
        return len(self._files[name]) if name in self._files else None

    def _names(self) -> set[str]:
        return set(self._files)

    def _delete(self, names: set[str]) -> None:
        for name in names:
            self._files.pop(name, None)


def is_finished(name: str) -> bool:
    """Return whether a name is that of a complete file."""
    return name.endswith(SUFFIX) and is_digest(name.removesuffix(SUFFIX))


def _check_digest(digest: str) -> str:
    if not is_digest(digest):
        raise ValueError(f"a digest has 64 lowercase hexadecimal digits, got {digest!r}")
    return digest
