"""One set of promises for every place, and what each place adds: modes, killed writers, versions, uploads."""

import hashlib
import os
import secrets
import signal
import stat
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import boto3
import fsspec
import numpy as np
import pytest
import s3fs
from aiobotocore.session import AioSession
from fsspec.registry import _registry

from rescind.checkpoints import tensors as format_
from rescind.checkpoints.store import MemoryStore
from rescind.errors import (
    DamagedCheckpointError,
    HistoryError,
    MissingCheckpointError,
    UnsafePermissionsError,
)
from rescind.history.locations import open_store

MODEL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([np.nan, -1])}
OTHER = {"weight": np.ones(3)}
DIGEST = format_.digest(MODEL)
ABSENT = "0" * 64
# Above the size from which an upload has parts.
LARGE = {name: np.full(12 * 2**17, value, np.float64) for value, name in enumerate("ab")}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(scope="session")
def sessions():
    """What takes the most time, made once: the descriptions of the service."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
        return boto3.Session(region_name="us-east-1"), AioSession()


@pytest.fixture
def options(endpoint, sessions):
    return {"client_kwargs": {"endpoint_url": endpoint}, "session": sessions[1]}


@pytest.fixture
def s3(endpoint, sessions):
    """An independent view of the service, and a new bucket in it."""
    client = sessions[0].client("s3", endpoint_url=endpoint)
    client.bucket = f"bucket-{secrets.token_hex(8)}"
    client.create_bucket(Bucket=client.bucket)
    yield client
    client.close()


@pytest.fixture
def bucket(s3, options):
    return open_store(f"s3://{s3.bucket}/models", storage_options=options)


@pytest.fixture
def folder(tmp_path):
    return open_store(tmp_path / "models")


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture(params=["folder", "memory", "bucket"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["folder", "bucket"])
def shared(request):
    """A store at a place that others can reach too."""
    return request.getfixturevalue(request.param)


def assert_same(found, tensors):
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert np.array_equal(found[name], tensor, equal_nan=True)


def replace(store, digest, data):
    """Put other bytes under a digest, past the store."""
    name = f"{digest}.safetensors"
    if isinstance(store, MemoryStore):
        store._files[name] = data
    elif hasattr(store, "_folder"):
        (store._folder / name).write_bytes(data)
    else:
        store._fs.pipe_file(store._path(name), data)


def versions(s3):
    found = s3.list_object_versions(Bucket=s3.bucket)
    return found.get("Versions", []), found.get("DeleteMarkers", [])


def uploads(s3):
    return s3.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])


class Changing(dict):
    """Tensors of which the last is another one when it is asked for again."""

    def __init__(self, tensors, change):
        super().__init__(tensors)
        self._asked = 0
        self._change = change

    def __getitem__(self, name):
        if name == max(self):
            self._asked += 1
            return self._change(self._asked, super().__getitem__(name))
        return super().__getitem__(name)


def accesses(store):
    """How often a put asks for a tensor: header and bytes, and in a bucket the same for the name, and the size."""
    return 5 if store.address.startswith("s3") else 2


class TestEveryPlace:
    def test_what_is_put_is_loaded(self, store):
        assert store.put(MODEL) == DIGEST
        assert_same(store.load(DIGEST), MODEL)
        assert [name for name, _ in store.stream(DIGEST)] == ["bias", "weight"]

    def test_a_new_store_is_empty(self, store):
        assert store.digests() == set()
        assert ABSENT not in store
        assert store.remove_unfinished() == 0
        assert store.kept_versions() == ()
        store.delete(ABSENT)
        store.remove()

    def test_digests_tell_what_is_stored(self, store):
        assert DIGEST not in store
        digests = {store.put(MODEL), store.put(OTHER), store.put({})}
        assert store.digests() == digests
        assert all(digest in store for digest in digests)
        assert store.load(format_.digest({})) == {}

    def test_a_second_store_at_the_place_sees_every_change_at_once(self, shared, options):
        store, needed = shared, options if shared.address.startswith("s3") else None
        second = open_store(store.address, storage_options=needed)
        assert second.digests() == set()
        store.put(MODEL)
        assert second.digests() == {DIGEST}
        assert DIGEST in second
        assert_same(second.load(DIGEST), MODEL)
        store.delete(DIGEST)
        assert second.digests() == set()
        assert DIGEST not in second

    def test_putting_again_changes_nothing(self, store):
        assert store.put(MODEL) == store.put(dict(reversed(MODEL.items())))
        assert store.digests() == {DIGEST}
        assert_same(store.load(DIGEST), MODEL)
        assert store.remove_unfinished() == 0

    def test_deleting_is_idempotent(self, store):
        store.put(MODEL)
        store.put(OTHER)
        store.delete(DIGEST)
        store.delete(DIGEST)
        assert DIGEST not in store
        assert store.digests() == {format_.digest(OTHER)}
        assert store.kept_versions() == ()
        with pytest.raises(MissingCheckpointError, match=DIGEST):
            store.load(DIGEST)

    def test_removing_leaves_nothing_and_the_store_can_be_used_again(self, store):
        store.put(MODEL)
        store.put(OTHER)
        store.remove()
        assert store.digests() == set()
        store.remove()
        assert store.put(MODEL) == DIGEST
        assert store.digests() == {DIGEST}

    def test_a_missing_checkpoint_is_named(self, store):
        with pytest.raises(MissingCheckpointError, match=ABSENT):
            store.load(ABSENT)
        with pytest.raises(MissingCheckpointError, match=ABSENT):
            next(store.stream(ABSENT))

    def test_a_name_says_what_a_file_is_and_whoever_reads_it_has_to_check(self, store):
        store.put_named("a" * 64, MODEL)
        assert_same(store.load_named("a" * 64), MODEL)
        store.put_named("a" * 64, {"other": np.zeros(3)})
        assert_same(store.load_named("a" * 64), {"other": np.zeros(3)})
        assert store.digests() == {"a" * 64}
        with pytest.raises(DamagedCheckpointError):
            store.load("a" * 64)
        store.delete("a" * 64)
        with pytest.raises(MissingCheckpointError):
            store.load_named("a" * 64)
        for refused in (lambda: store.put_named("a name", MODEL), lambda: store.load_named("../" + "0" * 61)):
            with pytest.raises(ValueError, match="64 lowercase hexadecimal digits"):
                refused()

    @pytest.mark.parametrize("digest", ["", "ab", "A" * 64, "0" * 63 + "\n", "0" * 64 + "\n", "../" + "0" * 61, 7])
    def test_only_digests_are_names(self, store, digest):
        for use in (store.load, store.stream, store.delete):
            with pytest.raises(ValueError, match="64 lowercase hexadecimal digits"):
                use(digest)
        assert digest not in store

    def test_another_model_under_the_name_is_found_out(self, store):
        store.put(MODEL)
        replace(store, DIGEST, b"".join(format_.chunks(OTHER)))
        with pytest.raises(DamagedCheckpointError, match=f"checkpoint {DIGEST} .* have the digest"):
            store.load(DIGEST)
        seen = store.stream(DIGEST)
        assert next(seen)[0] == "weight"
        with pytest.raises(DamagedCheckpointError):
            next(seen)

    def test_a_damaged_header_is_named_too(self, store):
        store.put(MODEL)
        replace(store, DIGEST, b"12345678")
        with pytest.raises(DamagedCheckpointError, match=f"checkpoint {DIGEST} .* header claims"):
            store.load(DIGEST)

    def test_a_file_of_another_size_is_written_again(self, store):
        store.put(MODEL)
        replace(store, DIGEST, b"short")
        assert store.put(MODEL) == DIGEST
        assert_same(store.load(DIGEST), MODEL)

    def test_two_readers_do_not_disturb_each_other(self, store):
        store.put(MODEL)
        pairs = list(zip(store.stream(DIGEST), store.stream(DIGEST), strict=True))
        assert_same(dict(first for first, _ in pairs), MODEL)
        assert_same(dict(second for _, second in pairs), MODEL)

    def test_a_model_larger_than_a_part_is_stored(self, store):
        assert_same(store.load(store.put(LARGE)), LARGE)
        assert store.remove_unfinished() == 0

    @pytest.mark.parametrize("model", [MODEL, LARGE], ids=["small", "large"])
    def test_a_failing_writer_leaves_nothing(self, store, model):
        def fail(asked, tensor):
            if asked == last:
                raise RuntimeError("the tensor is gone")
            return tensor

        last = accesses(store)
        with pytest.raises(RuntimeError, match="the tensor is gone"):
            store.put(Changing(model, fail))
        assert store.digests() == set()
        assert store.remove_unfinished() == 0

    @pytest.mark.parametrize("model", [MODEL, LARGE], ids=["small", "large"])
    def test_a_tensor_that_changes_meanwhile_never_gives_a_wrong_file(self, store, model):
        last = accesses(store)
        changing = Changing(model, lambda asked, tensor: tensor + (asked >= last))
        # A bucket needs the name before the bytes, the other places name the bytes that they have.
        if last > 2:
            with pytest.raises(HistoryError, match="changed while it was being stored"):
                store.put(changing)
            assert store.digests() == set()
        else:
            digest = store.put(changing)
            assert store.digests() == {digest}
            assert_same(store.load(digest), {name: model[name] + (name == max(model)) for name in model})
        assert store.remove_unfinished() == 0

    def test_a_tensor_that_cannot_be_stored_is_named(self, store):
        with pytest.raises(ValueError, match="tensor 'x' is of type object"):
            store.put({"x": np.array([None])})
        assert store.digests() == set()
        assert store.remove_unfinished() == 0

    def test_foreign_files_are_not_touched(self, shared):
        store = shared
        store.put(MODEL)
        names = ["notes.txt", f"{DIGEST}.safetensors.copy", "x.safetensors", DIGEST]
        fs = getattr(store, "_fs", None) or fsspec.filesystem("file")
        root = str(store._folder) if hasattr(store, "_folder") else store._path("").rstrip("/")
        for name in names:
            fs.pipe_file(f"{root}/{name}", b"foreign")
        fs.makedirs(f"{root}/below", exist_ok=True)
        fs.pipe_file(f"{root}/below/{DIGEST}.safetensors", b"foreign")
        assert store.digests() == {DIGEST}
        store.remove()
        assert store.digests() == set()
        found = {path.rpartition(f"{root}/")[2] for path in fs.find(root)}
        assert found == {*names, f"below/{DIGEST}.safetensors"}
        fs.rm(root, recursive=True)

    def test_many_threads_put_the_same_model(self, store):
        threads = [threading.Thread(target=store.put, args=(MODEL,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.digests() == {DIGEST}
        assert_same(store.load(DIGEST), MODEL)
        assert store.remove_unfinished() == 0


class TestFolder:
    @pytest.mark.parametrize("mask", [0, 0o777])
    def test_modes_do_not_depend_on_the_mask(self, tmp_path, mask):
        tmp_path.chmod(0o755)
        before = os.umask(mask)
        try:
            open_store(tmp_path / "new" / "models").put(MODEL)
        finally:
            os.umask(before)
        for folder in (tmp_path / "new", tmp_path / "new" / "models"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (file,) = (tmp_path / "new" / "models").iterdir()
        assert file.name == f"{DIGEST}.safetensors"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755

    def test_a_file_is_private_from_its_first_byte(self, folder, tmp_path):
        modes = []

        def look(_asked, tensor):
            modes.extend(stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "models").iterdir())
            return tensor

        before = os.umask(0)
        try:
            folder.put(Changing(MODEL, look))
        finally:
            os.umask(before)
        assert set(modes) == {0o600}

    @pytest.mark.parametrize("mode", [0o750, 0o701, 0o755, 0o777])
    def test_an_open_folder_is_refused_with_the_command(self, tmp_path, mode):
        path = tmp_path / "my models"
        store = open_store(path)
        path.mkdir()
        path.chmod(mode)
        for use in (lambda: open_store(path), lambda: store.put(MODEL)):
            with pytest.raises(UnsafePermissionsError, match=f"mode {mode:o}.*run chmod 700 '{path}'"):
                use()
        assert list(path.iterdir()) == []
        path.chmod(0o700)
        assert open_store(path).put(MODEL) == DIGEST

    def test_a_stored_file_is_not_written_again_unless_it_is_damaged(self, folder, tmp_path):
        folder.put(MODEL)
        path = tmp_path / "models" / f"{DIGEST}.safetensors"
        before = path.stat()
        folder.put(MODEL)
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        data = path.read_bytes()
        for damaged in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1], data + b"x"):
            path.write_bytes(damaged)
            folder.put(MODEL)
            assert path.read_bytes() == data

    def test_the_file_is_on_disk_before_it_has_its_name_and_the_folder_after(self, folder, monkeypatch):
        calls = []
        fsync, rename = os.fsync, os.replace

        def syncing(descriptor):
            calls.append("fsync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
            fsync(descriptor)

        def renaming(old, new):
            calls.append("replace file")
            rename(old, new)

        monkeypatch.setattr(os, "fsync", syncing)
        monkeypatch.setattr(os, "replace", renaming)
        folder.put(MODEL)
        assert calls == ["fsync folder", "fsync file", "replace file", "fsync folder"]
        calls.clear()
        folder.delete(DIGEST)
        assert calls == ["fsync folder"]

    def test_every_flipped_bit_is_detected(self, folder, tmp_path):
        folder.put(MODEL)
        path = tmp_path / "models" / f"{DIGEST}.safetensors"
        data = path.read_bytes()
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            path.write_bytes(flipped)
            with pytest.raises(DamagedCheckpointError):
                folder.load(DIGEST)
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(DamagedCheckpointError):
                folder.load(DIGEST)

    def test_a_symbolic_link_is_no_checkpoint(self, folder, tmp_path):
        folder.put(MODEL)
        path = tmp_path / "models" / f"{DIGEST}.safetensors"
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        assert DIGEST not in folder
        assert folder.digests() == set()
        with pytest.raises(MissingCheckpointError):
            folder.load(DIGEST)
        folder.put(MODEL)
        assert not path.is_symlink()
        assert DIGEST in folder

    def test_addresses_of_folders(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for address in ("models", Path("models"), str(tmp_path / "models"), f"file://{tmp_path}/models"):
            assert open_store(address).address == str(tmp_path / "models")
        store = open_store("models")
        monkeypatch.chdir("/")
        store.put(MODEL)
        assert (tmp_path / "models").is_dir()
        store.remove()
        assert not (tmp_path / "models").exists()

    def test_memory_beyond_the_input_is_a_piece_for_putting_and_a_tensor_for_streaming(self, folder):
        size = 2**23
        values = np.random.default_rng(0).integers(0, 256, (4, 2048, size // 2048), dtype=np.uint8)
        model = dict(zip("abcd", values, strict=True)) | {"t": values[0].T}
        tracemalloc.start()
        try:
            digest = folder.put(model)
            assert tracemalloc.get_traced_memory()[1] < 2**22
            tracemalloc.reset_peak()
            for _name, tensor in folder.stream(digest):
                assert tensor.nbytes == size
                del tensor
            assert tracemalloc.get_traced_memory()[1] < size + 2**22
        finally:
            tracemalloc.stop()


# The writer stops where it is told to, tells so, and waits to be killed.
WRITER = """
import os, sys, time
import numpy as np
from rescind.checkpoints.store import MemoryStore
from rescind.history.locations import open_store

address, endpoint, place = sys.argv[1:]
options = {"client_kwargs": {"endpoint_url": endpoint}} if endpoint else None
store = open_store(address, storage_options=options)
store.put({"first": np.ones(3)})

def stop(*_arguments):
    print("stopped", flush=True)
    time.sleep(600)

class Stopping(dict):
    asked = 0
    def __getitem__(self, name):
        self.asked += name == "b"
        # The last time that it is asked for is when the first half is written.
        if place == "middle" and self.asked == (5 if endpoint else 2):
            stop()
        return super().__getitem__(name)

if place == "replace":
    os.replace = stop
if place == "random":
    print("stopped", flush=True)
    for number in range(10**9):
        store.put({"a": np.full(10**5, float(number))})
store.put(Stopping({name: np.ones(2**22) for name in "ab"}))
"""


def killed_writer(address, endpoint, place, wait=lambda: None):
    command = [sys.executable, "-c", WRITER, str(address), endpoint, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "stopped\n"
            wait()
        finally:
            os.kill(writer.pid, signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL


class TestKilledWriters:
    @pytest.mark.parametrize("place", ["middle", "replace"])
    def test_a_folder_has_complete_files_only(self, folder, tmp_path, place):
        killed_writer(tmp_path / "models", "", place)
        assert folder.digests() == {format_.digest({"first": np.ones(3)})}
        assert len(list((tmp_path / "models").iterdir())) == 2
        assert folder.remove_unfinished() == 1
        assert len(list((tmp_path / "models").iterdir())) == 1

    def test_at_any_moment(self, folder, tmp_path):
        def wait():
            while len(list((tmp_path / "models").iterdir())) < 5:
                pass

        killed_writer(tmp_path / "models", "", "random", wait)
        digests = folder.digests()
        assert len(digests) >= 4
        for digest in digests:
            folder.load(digest)
        assert folder.remove_unfinished() <= 1
        assert len(list((tmp_path / "models").iterdir())) == len(digests)

    def test_removing_the_store_takes_the_rest_along(self, folder, tmp_path):
        killed_writer(tmp_path / "models", "", "middle")
        folder.remove()
        assert not (tmp_path / "models").exists()

    def test_a_bucket_has_complete_objects_only(self, bucket, s3, endpoint):
        s3.create_multipart_upload(Bucket=s3.bucket, Key="elsewhere/big")
        killed_writer(f"s3://{s3.bucket}/models", endpoint, "middle")
        assert bucket.digests() == {format_.digest({"first": np.ones(3)})}
        assert len(uploads(s3)) == 2
        assert bucket.remove_unfinished() == 1
        assert [upload["Key"] for upload in uploads(s3)] == ["elsewhere/big"]


class TestBucket:
    @pytest.fixture(params=["Enabled", "Suspended"])
    def versioned(self, request, bucket, s3):
        s3.put_bucket_versioning(Bucket=s3.bucket, VersioningConfiguration={"Status": "Enabled"})
        bucket.put(OTHER)
        bucket.put(MODEL)
        replace(bucket, DIGEST, b"damaged")
        s3.put_bucket_versioning(Bucket=s3.bucket, VersioningConfiguration={"Status": request.param})
        return bucket

    def test_deleting_takes_all_versions(self, versioned, s3):
        status = s3.get_bucket_versioning(Bucket=s3.bucket)["Status"].lower()
        (kept,) = versioned.kept_versions()
        assert kept.startswith(f"s3://{s3.bucket}/models/{DIGEST}.safetensors version ")
        assert kept.endswith(f"bytes, versioning {status}")
        versioned.delete(DIGEST)
        assert versioned.kept_versions() == ()
        found, markers = versions(s3)
        assert [version["Key"] for version in found] == [f"models/{format_.digest(OTHER)}.safetensors"]
        assert markers == []

    @pytest.mark.parametrize("erase", [lambda store: store.delete(DIGEST), lambda store: store.remove()])
    def test_what_others_deleted_is_told_and_can_be_erased(self, bucket, s3, erase):
        s3.put_bucket_versioning(Bucket=s3.bucket, VersioningConfiguration={"Status": "Enabled"})
        bucket.put(MODEL)
        s3.put_object(Bucket=s3.bucket, Key="models/notes", Body=b"1")
        s3.put_object(Bucket=s3.bucket, Key="models/notes", Body=b"2")
        s3.delete_object(Bucket=s3.bucket, Key=f"models/{DIGEST}.safetensors")
        assert bucket.digests() == set()
        (kept,) = bucket.kept_versions()
        assert DIGEST in kept
        assert kept.endswith("bytes, versioning enabled")
        erase(bucket)
        assert bucket.kept_versions() == ()
        found, markers = versions(s3)
        assert {version["Key"] for version in found} == {"models/notes"}
        assert markers == []

    def test_a_version_under_a_legal_hold_is_hidden_and_told(self, s3, options):
        name = f"locked-{secrets.token_hex(8)}"
        s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        store = open_store(f"s3://{name}", storage_options=options)
        digests = {store.put(MODEL), store.put(OTHER)}
        key = f"{DIGEST}.safetensors"
        s3.put_object_legal_hold(Bucket=name, Key=key, LegalHold={"Status": "ON"})
        for _ in range(2):
            for digest in digests:
                store.delete(digest)
            assert store.digests() == set()
            assert DIGEST not in store
            (kept,) = store.kept_versions()
            assert f"s3://{name}/{key}" in kept
        (version,) = s3.list_object_versions(Bucket=name, Prefix=key)["Versions"]
        s3.put_object_legal_hold(Bucket=name, Key=key, VersionId=version["VersionId"], LegalHold={"Status": "OFF"})
        store.remove()
        assert store.kept_versions() == ()
        assert not {"Versions", "DeleteMarkers"} & s3.list_object_versions(Bucket=name).keys()

    @pytest.mark.parametrize("error", [PermissionError("Access Denied"), OSError(38, "Not implemented")])
    def test_versions_that_may_not_be_listed_are_told_as_unknown(self, versioned, monkeypatch, error):
        real = s3fs.S3FileSystem.call_s3

        def call(fs, method, **options):
            if method == "list_object_versions":
                raise error
            return real(fs, method, **options)

        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", call)
        versioned.delete(DIGEST)
        assert DIGEST not in versioned
        (said,) = versioned.kept_versions()
        assert "is not known" in said
        assert str(error) in said
        versioned.remove()
        assert versioned.digests() == set()

    def test_other_errors_are_not_swallowed(self, versioned, monkeypatch):
        def call(fs, method, **_options):
            if method == "list_object_versions":
                raise OSError(5, "broken")
            return {}

        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", call)
        for use in (versioned.kept_versions, versioned.remove, lambda: versioned.delete(DIGEST)):
            with pytest.raises(OSError, match="broken"):
                use()

    def test_an_object_that_may_not_be_deleted_is_an_error(self, bucket, monkeypatch):
        errors = {"Errors": [{"Key": f"models/{DIGEST}.safetensors", "Code": "AccessDenied"}]}
        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", lambda *_arguments, **_options: errors)
        with pytest.raises(HistoryError, match=f"refuses to delete models/{DIGEST}.safetensors"):
            bucket.delete(DIGEST)

    def test_listings_of_many_pages_are_read_to_the_end(self, versioned, s3, monkeypatch):
        real = s3fs.S3FileSystem.call_s3
        pages = []

        def call(fs, method, *arguments, **options):
            if method.startswith("list_object"):
                pages.append(method)
                options["MaxKeys"] = 1
            return real(fs, method, *arguments, **options)

        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", call)
        monkeypatch.setattr("rescind.checkpoints.bucket._MOST_KEYS", 1)
        third = versioned.put({"third": np.ones(1)})
        assert versioned.digests() == {DIGEST, format_.digest(OTHER), third}
        assert pages == ["list_objects_v2"] * 3
        assert len(versioned.kept_versions()) == len([each for each in versions(s3)[0] if not each["IsLatest"]]) > 0
        versioned.remove()
        assert versions(s3) == ([], [])

    def test_uploads_of_many_pages_are_all_aborted(self, bucket, monkeypatch):
        keys = [f"models/{number:064x}.safetensors" for number in range(3)]
        aborted = []

        def call(fs, method, **options):
            if method == "abort_multipart_upload":
                aborted.append((options["Key"], options["UploadId"]))
                if len(aborted) == 2:
                    raise FileNotFoundError("the upload was completed meanwhile")
                return {}
            assert method == "list_multipart_uploads"
            assert options["Prefix"] == "models/"
            start = keys.index(options["KeyMarker"]) + 1 if "KeyMarker" in options else 0
            assert options.get("UploadIdMarker") == (f"id {keys[start - 1]}" if start else None)
            page = {"Uploads": [{"Key": keys[start], "UploadId": f"id {keys[start]}"}], "IsTruncated": start < 2}
            if start < 2:
                page |= {"NextKeyMarker": keys[start], "NextUploadIdMarker": f"id {keys[start]}"}
            return page

        monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", call)
        assert bucket.remove_unfinished() == 3
        assert aborted == [(key, f"id {key}") for key in keys]

    def test_an_object_is_not_written_again(self, bucket, s3):
        bucket.put(MODEL)
        key = f"models/{DIGEST}.safetensors"
        before = s3.head_object(Bucket=s3.bucket, Key=key)
        bucket.put(MODEL)
        assert s3.head_object(Bucket=s3.bucket, Key=key)["LastModified"] == before["LastModified"]
        assert hashlib.sha256(s3.get_object(Bucket=s3.bucket, Key=key)["Body"].read()).hexdigest() == DIGEST

    @pytest.mark.parametrize("address", ["s3://{}", "s3://{}/", "s3://{}/a/b/", "s3a://{}/a"])
    def test_addresses_of_buckets(self, s3, options, address):
        unwanted = {"version_aware": True, "use_listings_cache": True}
        store = open_store(address.format(s3.bucket), storage_options=options | unwanted)
        store.put(MODEL)
        prefix = address.partition("{}")[2].strip("/")
        (found,) = s3.list_objects_v2(Bucket=s3.bucket)["Contents"]
        assert found["Key"] == f"{prefix}/{DIGEST}.safetensors".lstrip("/")
        assert store.digests() == {DIGEST}

    def test_options_come_from_the_configuration_of_fsspec(self, s3, endpoint, monkeypatch):
        monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": endpoint})
        assert open_store(f"s3://{s3.bucket}/x").put(MODEL) == DIGEST

    def test_a_bucket_that_does_not_exist_is_told_by_its_name(self, options):
        store = open_store("s3://no-such-bucket", storage_options=options)
        for use in (store.digests, store.remove, store.remove_unfinished, lambda: store.put(MODEL)):
            with pytest.raises(HistoryError, match=r"there is no bucket 'no-such-bucket' .*: create it, or correct"):
                use()

    def test_without_s3fs_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "s3fs", None)
        monkeypatch.delitem(_registry, "s3", raising=False)
        with pytest.raises(HistoryError, match="pip install s3fs"):
            open_store("s3://bucket/models")


@pytest.mark.parametrize("address", ["gs://bucket", "simplecache::s3://bucket", "https://example.org/models"])
def test_other_places_are_refused(address):
    with pytest.raises(ValueError, match="use a folder or s3://bucket/prefix"):
        open_store(address)


def test_options_without_a_use_are_refused(tmp_path):
    with pytest.raises(ValueError, match="storage_options are for s3"):
        open_store(tmp_path, storage_options={"key": "nobody"})


def test_no_code_is_ever_unpickled():
    for module in (format_, sys.modules[open_store.__module__]):
        text = Path(module.__file__).read_text(encoding="utf-8")
        assert "pickle" not in text
