"""The safetensors format, with the safetensors package as the oracle in both directions."""

import hashlib
import io
import json
import os

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rescind.checkpoints.tensors import chunks, digest, layout, read
from rescind.errors import DamagedCheckpointError

DTYPES = ["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))]
DTYPES += ["float16", "float32", "float64"]

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
models = st.dictionaries(names, arrays, max_size=5)

SMALL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([1, -1], np.int64)}


def stored(tensors):
    return b"".join(chunks(tensors))


def loaded(data):
    return dict(read(io.BytesIO(data)))


def assert_same(found, tensors):
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        # Bytes, because a NaN equals nothing and has a payload.
        assert found[name].tobytes() == tensor.tobytes()


@given(models)
@example({'"quoted"\\\n\x00': np.float32([1]), "größe 重み 🦀": np.array(2.0)})
@example({"": np.zeros((0, 3), np.float16), "z": np.array([np.nan, -np.nan, np.inf, -0.0])})
@example({})
def test_the_oracle_reads_what_is_written(tensors):
    data = stored(tensors)
    assert_same(safetensors.numpy.load(data), tensors)
    assert_same(loaded(data), tensors)
    assert digest(tensors) == hashlib.sha256(data).hexdigest()
    assert data.startswith(layout(tensors))
    assert len(layout(tensors)) % 8 == 0


@given(models, st.none() | st.dictionaries(names, names, min_size=1, max_size=2))
def test_what_the_oracle_writes_is_read(tensors, remarks):
    assert_same(loaded(safetensors.numpy.save(tensors, remarks)), tensors)


@given(models, st.randoms())
def test_equal_tensors_give_equal_bytes_in_any_order(tensors, random):
    shuffled = list(tensors)
    random.shuffle(shuffled)
    others = {name: np.array(tensors[name], order=random.choice("CF")) for name in shuffled}
    assert stored(others) == stored(tensors)


def test_the_spelling_is_fixed():
    """A literal, because a change of it would rename every stored model."""
    tensors = {"b": np.array([[1.0]], np.float32), "a": np.array([True])}
    header = b'{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},'
    header += b'"b":{"dtype":"F32","shape":[1,1],"data_offsets":[1,5]}}'
    header += b" " * (-len(header) % 8)
    assert stored(tensors) == len(header).to_bytes(8, "little") + header + b"\x01" + b"\x00\x00\x80\x3f"
    assert digest({}) == hashlib.sha256(b"\x08" + bytes(7) + b"{}      ").hexdigest()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_array_in_memory_has_the_bytes_of_its_values(dtype):
    plain = np.random.default_rng(0).integers(0, 2, (5, 6, 7)).astype(dtype)
    others = [np.asfortranarray(plain), plain.astype(plain.dtype.newbyteorder(">")), plain[:, ::2], plain.T[::-1]]
    others += [np.broadcast_to(plain[:1], (3, 6, 7)), plain.view(np.memmap)]
    for other in others:
        expected = np.ascontiguousarray(other, other.dtype.newbyteorder("<"))
        assert stored({"x": other}) == stored({"x": expected})
    readonly = plain.copy()
    readonly.flags.writeable = False
    assert digest({"x": readonly}) == digest({"x": plain})


def test_arrays_larger_than_a_piece_are_whole():
    values = np.random.default_rng(0).standard_normal((700, 1000))
    for tensor in (values, values.T, values.astype(">f8")):
        pieces = [bytes(piece) for piece in chunks({"x": tensor})]
        assert max(map(len, pieces)) <= 2**20
        assert_same(loaded(b"".join(pieces)), {"x": np.ascontiguousarray(tensor, "<f8")})


def test_nothing_is_copied_where_the_array_is_plain():
    tensor = np.zeros(2**18, np.float32)
    _header, piece = chunks({"x": tensor})
    assert np.shares_memory(np.frombuffer(piece, np.uint8), tensor)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"a": np.array([object()])}, "tensor 'a' is of type object: make it a numpy array of one of bool"),
        ({"a": np.zeros(1, complex)}, "tensor 'a' is of type complex128"),
        ({"a": np.array(["x"])}, "tensor 'a' is of type <U1"),
        ({"a": np.zeros(1, "M8[s]")}, "tensor 'a' is of type datetime64"),
        ({"a": np.zeros(1, [("x", "f4")])}, "tensor 'a' is"),
        ({"a": [1.0]}, "tensor 'a' is no array but a list"),
        ({"a": np.array([2], np.uint8).view(bool)}, "tensor 'a' is bool over bytes"),
        ({1: np.zeros(1)}, "name must be a string"),
        ({"__metadata__": np.zeros(1)}, "name must be a string other than __metadata__"),
        ({"\ud800": np.zeros(1)}, "no UTF-8 form"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tensors, reason):
    with pytest.raises(ValueError, match=reason):
        digest({"fine": np.zeros(1), **tensors})


def test_a_header_beyond_the_format_is_refused(monkeypatch):
    monkeypatch.setattr("rescind.checkpoints.tensors._LONGEST_HEADER", 200)
    with pytest.raises(ValueError, match="100 tensors need a header"):
        layout({str(number): np.zeros(1) for number in range(100)})


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="U8", shape=(2,), offsets=(0, 2), **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def one(**changes):
    return file_of({"a": entry(**changes)}, b"12")


NESTED = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "has 0 bytes, too few"),
        (b"1234567", "has 7 bytes, too few"),
        (stored(SMALL)[:-1], "truncated"),
        (stored(SMALL)[:20], "header claims"),
        (stored(SMALL) + b"x", "goes on for 1 bytes"),
        ((9).to_bytes(8, "little") + b"{}      ", "header claims 9 bytes, in a file of 16"),
        ((2**64 - 1).to_bytes(8, "little") + b"{}", "header claims"),
        (bytes(8), "begin with a brace"),
        (file_of([]), "begin with a brace"),
        (file_of(b" {}"), "begin with a brace"),
        (file_of(b'{"a":'), "not JSON"),
        (file_of(b"{} {}"), "not JSON"),
        (file_of(b'{"\xff":1}'), "not JSON in UTF-8"),
        (file_of({"\ud800": entry()}, b"12"), "not JSON in UTF-8"),
        (file_of('{"a":1}'.encode("utf-16")), "begin with a brace"),
        (file_of(NESTED), "not JSON"),
        (file_of(b'{"a":' + b"9" * 5000 + b"}"), "not JSON"),
        (file_of(b'{"a":1,"a":1}'), "name twice"),
        (file_of(b'{"a":{"dtype":"U8","dtype":"U8"}}'), "name twice"),
        (file_of({"a": 1}), "tensor 'a' needs dtype, shape and data_offsets"),
        (file_of({"a": {"dtype": "U8", "shape": [0]}}), "needs dtype, shape and data_offsets"),
        (one(more=1), "nothing else"),
        (one(dtype="F8_E4M3"), "dtype other than"),
        (one(dtype=["U8"]), "dtype other than"),
        (one(dtype=None), "dtype other than"),
        (one(shape=2), "not a list of at most 64 counts"),
        (one(shape=[-2]), "not a list of at most 64 counts"),
        (one(shape=[-1, -2]), "not a list of at most 64 counts"),
        (one(shape=[2.0]), "not a list of at most 64 counts"),
        (one(shape=[True, 2]), "not a list of at most 64 counts"),
        (one(shape=["2"]), "not a list of at most 64 counts"),
        (one(shape=[2**63, 0], offsets=[0, 0]), "not a list of at most 64 counts"),
        (one(shape=[2] + [1] * 64), "not a list of at most 64 counts"),
        (one(offsets=[0]), "not two counts"),
        (one(offsets=[0, 1, 2]), "not two counts"),
        (one(offsets=[-2, 0]), "not two counts"),
        (one(offsets=[False, 2]), "not two counts"),
        (one(offsets=None), "not two counts"),
        (one(offsets=[2, 0]), "do not match its shape"),
        (one(shape=[3]), "do not match its shape"),
        (one(shape=[2**62, 8]), "do not match its shape"),
        (one(dtype="U16"), "do not match its shape"),
        (file_of({"a": entry(shape=[2**62, 0, 2**62], offsets=[0, 0])}), "no array can have the shape"),
        (file_of({"a": entry(shape=[2**50], offsets=[0, 2**50])}), "truncated"),
        (file_of({"a": entry(offsets=[1, 3])}, b"123"), "gap at byte 0"),
        (file_of({"a": entry(), "b": entry(offsets=[3, 5])}, b"12345"), "gap at byte 2"),
        (file_of({"a": entry(), "b": entry(offsets=[1, 3])}, b"123"), "overlap or leave a gap at byte 2"),
        (file_of({"a": entry(), "b": entry()}, b"12"), "overlap"),
        (file_of({"a": entry("BOOL")}, b"\x01\x02"), "neither 0 nor 1"),
        (file_of({"__metadata__": {"a": 1}}), "__metadata__ of the header"),
        (file_of({"__metadata__": []}), "__metadata__ of the header"),
    ],
)
def test_a_hostile_file_is_refused_with_the_reason(data, reason):
    with pytest.raises(DamagedCheckpointError, match=reason):
        loaded(data)


def test_a_file_that_shrinks_while_it_is_read_is_refused():
    class Shrinking(io.BytesIO):
        def readinto(self, buffer):
            self.truncate(300)
            return super().readinto(buffer)

    with pytest.raises(DamagedCheckpointError, match="ends before"):
        dict(read(Shrinking(stored({"a": np.zeros(1000)}))))


def test_a_header_claim_allocates_nothing(monkeypatch):
    """The header's limit holds even where the file really is that large."""
    monkeypatch.setattr("rescind.checkpoints.tensors._LONGEST_HEADER", 100)
    with pytest.raises(DamagedCheckpointError, match="header claims 200 bytes"):
        loaded(file_of(b"{}" + b" " * 198))


@given(models, st.data())
def test_a_changed_file_is_refused_or_well_formed(tensors, data):
    """Without the digest a change of values cannot be seen, but nothing worse than that may happen."""
    changed = bytearray(stored(tensors))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = loaded(bytes(changed))
    except DamagedCheckpointError:
        return
    assert all(isinstance(tensor, np.ndarray) for tensor in found.values())


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner)))
def test_any_json_in_place_of_a_tensor_is_refused(claim):
    for wrong in ({"a": claim}, {"a": entry(dtype=claim)}, {"a": entry(shape=claim)}, {"a": entry(offsets=claim)}):
        with pytest.raises(DamagedCheckpointError):
            loaded(file_of(wrong, b"1"))


def test_observing_sees_every_byte_once_and_short_reads_are_no_end(tmp_path):
    class Slow(io.BytesIO):
        def readinto(self, buffer):
            return super().readinto(buffer[:5])

    seen = io.BytesIO()
    data = stored(SMALL)
    assert_same(dict(read(Slow(data), seen.write)), SMALL)
    assert seen.getvalue() == data
    path = tmp_path / "file"
    path.write_bytes(data)
    with open(path, "rb") as file:
        file.seek(3, os.SEEK_SET)
        assert_same(dict(read(file)), SMALL)


def test_what_is_read_can_be_written_to():
    tensor = loaded(stored(SMALL))["weight"]
    tensor += 1
    assert tensor.flags.owndata or tensor.base is None
