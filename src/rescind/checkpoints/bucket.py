"""Models in an S3 bucket: uploads that are whole or not there, and versions that are deleted or told."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import fsspec

from rescind.checkpoints.store import SUFFIX, CheckpointStore, is_finished
from rescind.checkpoints.tensors import SeekableFile, StoredTensor, chunks, digest, layout
from rescind.errors import HistoryError

# What is read ahead or gathered for a part; S3 takes parts from 5 MiB and at most 10,000 of them.
_PART = 2**24
_MOST_PARTS = 9_000
# S3's own limit for one request.
_MOST_KEYS = 1000
_ALL_VERSIONS = ("list_object_versions", "Versions", "DeleteMarkers")
_MARKERS = ("ContinuationToken", "KeyMarker", "VersionIdMarker", "UploadIdMarker")


class BucketStore(CheckpointStore):
    """What lies directly under a prefix of a bucket."""

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        # Every answer comes from the service: neither listings nor another user's connection are kept.
        fixed = {"skip_instance_cache": True, "use_listings_cache": False}
        try:
            self._fs = fsspec.filesystem("s3", **{**options, **fixed})
        except ImportError as error:
            raise HistoryError(f"{address} needs s3fs: pip install s3fs") from error
        self.address = address
        self._bucket, key, _ = self._fs.split_path(address)
        self._prefix = key.strip("/") + "/" if key.strip("/") else ""

    def _put(self, tensors: Mapping[str, StoredTensor], name: str | None) -> str:
        expected = digest(tensors)
        key = (name or expected) + SUFFIX
        size = len(layout(tensors)) + sum(tensor.nbytes for tensor in tensors.values())
        # A file that was given its name may hold anything.
        if name is None and self._size(key) == size:
            return expected
        hasher = hashlib.sha256()
        file = self._fs.open(self._path(key), "wb", block_size=max(_PART, size // _MOST_PARTS))
        try:
            for chunk in chunks(tensors):
                hasher.update(chunk)
                file.write(chunk)
            if hasher.hexdigest() != expected:
                raise HistoryError("a tensor changed while it was being stored: give the store a copy")
            with self._explained():
                file.close()
        except BaseException:
            with suppress(Exception):
                file.discard()
            # Otherwise the file would be completed as it is when it is collected.
            file.closed = True
            raise
        return expected

    def _open(self, name: str) -> AbstractContextManager[SeekableFile]:
        opened: AbstractContextManager[SeekableFile] = self._fs.open(self._path(name), "rb", block_size=_PART)
        return opened

    def _size(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return int(self._call("head_object", Key=self._prefix + name)["ContentLength"])
        return None

    def _names(self) -> set[str]:
        return {self._name(item) for item in self._list("list_objects_v2", "Contents")}

    def _delete(self, names: set[str]) -> None:
        refused = self._delete_keys([{"Key": self._prefix + name} for name in sorted(names)])
        if refused:
            raise HistoryError(f"{self.address} refuses to delete {', '.join(sorted(refused))}: check its policy")
        try:
            start = next(iter(names)) if len(names) == 1 else ""
            listed = self._list(*_ALL_VERSIONS, start=start)
            versions = [version for version in listed if self._name(version) in names]
            refused = self._delete_keys([version for version in versions if "Size" in version])
            # The rest are the marks of deletion: without its mark, a version that stayed would be visible again.
            self._delete_keys(
                [version for version in versions if "Size" not in version and version["Key"] not in refused]
            )
        except OSError as error:
            _raise_unless_refused(error)

    def remove_unfinished(self) -> int:
        uploads = self._list("list_multipart_uploads", "Uploads")
        for upload in uploads:
            # One that was completed or aborted meanwhile is gone as well.
            with suppress(FileNotFoundError):
                self._call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])
        return len(uploads)

    def remove(self) -> None:
        names = self._names()
        try:
            names |= {self._name(version) for version in self._list(*_ALL_VERSIONS)}
        except OSError as error:
            _raise_unless_refused(error)
        self._delete(names)
        self.remove_unfinished()

    def kept_versions(self) -> tuple[str, ...]:
        try:
            status = self._call("get_bucket_versioning").get("Status", "never enabled")
            versions = self._list("list_object_versions", "Versions")
        except OSError as error:
            _raise_unless_refused(error)
            return (f"{self.address}: what its versioning keeps is not known, as the service says: {error}",)
        return tuple(
            f"s3://{self._bucket}/{version['Key']} version {version['VersionId']}, {version['Size']} bytes, "
            f"versioning {status.lower()}"
            for version in versions
            if not version["IsLatest"]
        )

    def _delete_keys(self, items: list[dict[str, Any]]) -> set[str]:
        """Delete objects or versions, and return the keys of those that the service keeps."""
        targets = [{name: item[name] for name in ("Key", "VersionId") if name in item} for item in items]
        refused = set()
        for start in range(0, len(targets), _MOST_KEYS):
            batch = {"Objects": targets[start : start + _MOST_KEYS], "Quiet": True}
            refused |= {error["Key"] for error in self._call("delete_objects", Delete=batch).get("Errors", [])}
        return refused

    def _list(self, method: str, *fields: str, start: str = "") -> list[dict[str, Any]]:
        """Return all entries of a listing that concern checkpoints of this store; s3fs gives the first page only."""
        items: list[dict[str, Any]] = []
        options: dict[str, Any] = {"Prefix": self._prefix + start, "Delimiter": "/"}
        more = True
        while more:
            page = self._call(method, **options)
            for field in fields:
                items += [item for item in page.get(field, []) if is_finished(self._name(item))]
            options |= {name: page["Next" + name] for name in _MARKERS if page.get("Next" + name)}
            more = page.get("IsTruncated", False)
        return items

    def _call(self, method: str, **options: Any) -> dict[str, Any]:
        with self._explained():
            answer: dict[str, Any] = self._fs.call_s3(method, Bucket=self._bucket, **options)
        return answer

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            # s3fs has the same error for an object and for the whole bucket; the service's own is its cause.
            told = getattr(error.__cause__, "response", {})
            if told.get("Error", {}).get("Code") != "NoSuchBucket":
                raise
            raise HistoryError(
                f"there is no bucket {self._bucket!r} for {self.address}: create it, or correct the address"
            ) from error

    def _name(self, item: Mapping[str, Any]) -> str:
        return str(item["Key"]).removeprefix(self._prefix)

    def _path(self, name: str) -> str:
        return f"{self._bucket}/{self._prefix}{name}"


def _raise_unless_refused(error: OSError) -> None:
    if not isinstance(error, PermissionError) and error.errno != errno.ENOSYS:
        raise error
