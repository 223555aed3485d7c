"""Where models can lie: in a folder or in memory; ``bucket`` has the third place."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import fsspec

from rescind.checkpoints.tensors import SeekableFile, StoredTensor, chunks
from rescind.private_files import check_private, open_private, sync
from rescind.texts import is_digest

SUFFIX = ".safetensors"
UNFINISHED = ".unfinished-"


class Storage(ABC):
    """Files in one place; their names are checked already."""

    address: str

    @abstractmethod
    def put(self, tensors: Mapping[str, StoredTensor]) -> str:
        """Store a model and give its digest."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[SeekableFile]:
        """Open a file; ``FileNotFoundError`` if it is not there."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return a file's size, nothing if it is not there."""

    @abstractmethod
    def names(self) -> set[str]:
        """Name the files that are complete."""

    @abstractmethod
    def delete(self, names: set[str]) -> None:
        """Delete files; those that are not there do not matter."""

    def remove_unfinished(self) -> int:
        """Delete what killed writers left, and tell how many pieces."""
        return 0

    def remove(self) -> None:
        """Delete everything."""
        self.delete(self.names())
        self.remove_unfinished()

    def kept_versions(self) -> tuple[str, ...]:
        """Name what is still held of deleted files."""
        return ()


class FolderStorage(Storage):
    """A folder that only its owner can enter."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder
        if folder.exists():
            check_private(self._folder)

    def put(self, tensors: Mapping[str, StoredTensor]) -> str:
        self._prepare()
        temporary = self._folder / (UNFINISHED + secrets.token_hex(16))
        hasher = hashlib.sha256()
        try:
            with open(temporary, "xb", opener=open_private) as file:
                # One pass: the name is that of the bytes in the file, even if a tensor changes meanwhile.
                for chunk in chunks(tensors):
                    hasher.update(chunk)
                    file.write(chunk)
                final = self._folder / (hasher.hexdigest() + SUFFIX)
                if not self._holds(final, tensors):
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)
        # Also for a file that was there: whoever wrote it may not have come this far.
        sync(self._folder)
        return hasher.hexdigest()

    def open(self, name: str) -> AbstractContextManager[SeekableFile]:
        if self.size(name) is None:
            raise FileNotFoundError(name)
        check_private(self._folder / name)
        return open(self._folder / name, "rb")

    def size(self, name: str) -> int | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(self._folder / name)
            # Deleting a symbolic link would erase nothing, so none is taken for a file.
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        return None

    def names(self) -> set[str]:
        return {name for name in self._files() if is_finished(name)}

    def delete(self, names: set[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        if self._folder.exists():
            sync(self._folder)

    def remove_unfinished(self) -> int:
        names = {name for name in self._files() if name.startswith(UNFINISHED)}
        self.delete(names)
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
        if self.size(path.name) is None:
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


class MemoryStorage(Storage):
    """The memory of this process, by a name."""

    def __init__(self, name: str) -> None:
        self.address = f"memory://{name}"
        self._fs = fsspec.filesystem("memory")
        self._root = f"/{name}"

    def put(self, tensors: Mapping[str, StoredTensor]) -> str:
        data = b"".join(chunks(tensors))
        name = hashlib.sha256(data).hexdigest()
        self._fs.pipe_file(self._path(name + SUFFIX), data)
        return name

    def open(self, name: str) -> AbstractContextManager[SeekableFile]:
        # fsspec gives all readers of a file in memory the same position.
        return io.BytesIO(self._fs.cat_file(self._path(name)))

    def size(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return int(self._fs.info(self._path(name))["size"])
        return None

    def names(self) -> set[str]:
        names = (path.rpartition("/")[2] for path in self._fs.find(self._root, maxdepth=1))
        return {name for name in names if is_finished(name)}

    def delete(self, names: set[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def is_finished(name: str) -> bool:
    """Return whether a name is that of a complete file."""
    return name.endswith(SUFFIX) and is_digest(name.removesuffix(SUFFIX))
