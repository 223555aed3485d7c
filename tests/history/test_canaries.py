"""A client whose every number can be recognised is searched for in every byte that is left of the history."""

from __future__ import annotations

import base64
import io
import secrets
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import numpy as np
import psycopg
import pytest

from rescind.checkpoints import tensors
from rescind.checkpoints.tensors import digest
from rescind.core.aggregation import Aggregator
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.planning import Candidate
from rescind.core.rounds import Replies, RoundResult
from rescind.core.sensitivity import client_deltas
from rescind.core.summary import Node, Request
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.ledger.records import ErasureLevel
from tests.builders import FACTS, entries_of, keep_objects, kept_bounds, rounds_of, salts_of, server

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
LEAVER, OTHERS = "canary-hospital", ["second-hospital", "third-hospital", "fourth-hospital"]
LABEL = "Clinic of the Canaries"
SIZE = 6
RESTART = ModelId(0, 2)
Search = Callable[[], bytes]


class Federation:
    """Four clients with random updates: every number of theirs is 8 bytes that occur nowhere else by chance."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.stream = np.random.default_rng(11)
        self.weights: list[np.ndarray] = []
        self.models: list[np.ndarray] = [np.zeros(SIZE)]
        self.own: dict[str, dict[str, np.ndarray]] = {}
        self.measured = []

    def train(self, rounds: int) -> None:
        names = (LEAVER, *OTHERS)
        with self.history.recording(FACTS, {"theta": self.models[0]}) as recorder:
            for _ in range(rounds):
                before = self.models[-1]
                trained = before + self.stream.normal(size=(4, SIZE))
                self.weights.append(self.stream.uniform(10, 20, size=4))
                aggregator = Aggregator(self.weights[-1], gram=True)
                after = aggregator.add(before, list(trained))
                self.measured.append(aggregator.result())
                replies = Replies(names, self.weights[-1], (1,) * 4, {}, batch=0)
                recorder.record(RoundResult(replies, {"theta": after}, self.measured[-1], 1e-12))
                self.models.append(after)
        self.own = {name: {"own": self.stream.normal(size=SIZE)} for name in names}
        keep_objects(self.history, self.own)
        self.history.participants.label({LEAVER: LABEL})

    def canaries(self, first: int, last: int) -> dict[str, bytes]:
        """Return the leaver's numbers in some rounds, and what follows from them alone."""
        found = {}
        for at in range(first - 1, last):
            gram = self.measured[at].gram
            assert gram is not None
            numbers = {
                "weight": [self.weights[at][0]],
                "distance": [self.measured[at].distances[0]],
                "gram": [*gram[0], *gram[:, 0]],
                "model": self.models[at + 1],
                "norm": [self.measured[at].update_norm],
            }
            (stored,) = rounds_of(self.history, 0, at + 1, at + 1)
            found[f"salt of round {at + 1}"] = stored.salt
            for kind, values in numbers.items():
                for index, value in enumerate(values):
                    found[f"{kind} {index} of round {at + 1}"] = struct.pack("<d", value)
            # A digest confirms a guess: it must not stay in any writing either.
            name = digest({"theta": self.models[at + 1]})
            found[f"model digest of round {at + 1}"] = bytes.fromhex(name)
            found[f"model file of round {at + 1}"] = name.encode()
        return found

    def object(self) -> dict[str, bytes]:
        """Return what is kept of the leaver beside its rounds."""
        name = digest(self.own[LEAVER])
        numbers = {f"object {at}": struct.pack("<d", value) for at, value in enumerate(self.own[LEAVER]["own"])}
        return {**numbers, "object digest": bytes.fromhex(name), "object file": name.encode()}

    def derived(self) -> dict[str, bytes]:
        """Return the leaver's Psi at the newest model, which the ledger keeps for whoever records next."""
        _, _, content = kept_bounds(self.history).partition(b"\n")
        arrays = dict(tensors.read(io.BytesIO(content)))
        (client,) = self.history.participants.find([LEAVER])
        (at,) = np.flatnonzero(arrays["tracker.clients"] == client)
        return {"Psi": struct.pack("<d", arrays["tracker.psi"][at])}

    def identity(self) -> dict[str, bytes]:
        (client,) = self.history.participants.find([LEAVER])
        key = salts_of(self.history, [client])[client]
        return {"name": LEAVER.encode(), "label": LABEL.encode(), "key": key}


def forgotten(federation: Federation, level: ErasureLevel) -> None:
    """Restart from round 2 with noise and erase."""
    history = federation.history
    request = Request(history.participants.find([LEAVER]), Budget(5.0, 1e-3))
    number = history.requests.file(request, NOON + timedelta(days=30))
    chosen = Candidate(Node(2, 0, 2), 1.0, Mode.INSTANCE, (), request.mu, 3.0)
    history.requests.record_plan(RecordedPlan((number,), chosen, public_plan=False))
    noised = {"theta": federation.models[2] + np.random.default_rng(5).normal(size=SIZE)}
    with history.recording(FACTS, {"theta": federation.models[0]}) as recorder:
        recorder.restart(RESTART, noised, requests=(number,), sigma=1.0, noise_rounding=1e-5, unit_roundoff=2.0**-53)
        recorder.erase(history.plan_erasure(level))


def bytes_under(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\n".join([*(path.name.encode() for path in files), *(path.read_bytes() for path in files)])


class Bucket:
    """A new bucket behind a real S3 interface."""

    def __init__(self, endpoint: str) -> None:
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        self.name = f"canaries-{secrets.token_hex(8)}"
        self.client.create_bucket(Bucket=self.name)

    def contents(self) -> bytes:
        """Return every version of every object."""
        found = self.client.list_object_versions(Bucket=self.name).get("Versions", [])
        get = self.client.get_object
        return b"\n".join(
            each["Key"].encode() + get(Bucket=self.name, Key=each["Key"], VersionId=each["VersionId"])["Body"].read()
            for each in found
        )


def postgresql_bytes(address: str) -> bytes:
    """Return every byte of the server's tables, indexes and catalogues, as they are on disk."""
    files = """
        SELECT pg_read_binary_file('base/' || folder || '/' || file, 0, 1000000000, true)
        FROM pg_ls_dir('base') AS folder, pg_ls_dir('base/' || folder) AS file
    """
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        return b"\n".join(row[0] for row in connection.execute(files) if row[0] is not None)


@pytest.fixture(params=["sqlite and folder", "postgresql and bucket"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Federation, Search]]:
    """Return a federation with a history, and a function that reads every byte of its stores."""
    if request.param == "sqlite and folder":
        folder = tmp_path / "history"
        with History(folder) as history:
            yield Federation(history), lambda: bytes_under(folder)
        return
    for variable, value in {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": (endpoint := request.getfixturevalue("endpoint")),
    }.items():
        monkeypatch.setenv(variable, value)
    bucket = Bucket(endpoint)
    # A server of its own: another test's history would be searched too.
    location = {"checkpoints": f"s3://{bucket.name}", "run": "canary", "secret": tmp_path / "secret"}
    with server() as address, History(address, **location) as history:
        yield Federation(history), lambda: bucket.contents() + postgresql_bytes(address)


def present(canaries: dict[str, bytes], everything: bytes) -> set[str]:
    # Databases write numbers from either end, and texts of bytes and numbers in digits.
    return {name for name, value in canaries.items() if any(each in everything for each in spellings(value))}


def spellings(value: bytes) -> Iterator[bytes]:
    yield from (value, value[::-1], value.hex().encode(), base64.b64encode(value))
    if len(value) == 8:
        yield repr(struct.unpack("<d", value)[0]).encode()


def test_what_is_searched_for_is_there_before(stores: tuple[Federation, Search]) -> None:
    federation, search = stores
    federation.train(4)
    canaries = federation.canaries(1, 4) | federation.object() | federation.identity() | federation.derived()
    assert present(canaries, search()) == set(canaries)


def test_purge_leaves_no_byte(stores: tuple[Federation, Search], caplog: pytest.LogCaptureFixture) -> None:
    federation, search = stores
    with caplog.at_level("INFO"):
        federation.train(4)
        canaries = federation.canaries(1, 4) | federation.object() | federation.identity() | federation.derived()
        forgotten(federation, ErasureLevel.PURGE)
    # All but what the bucket's own server logs: the names of objects, see docs/erasure.md.
    logged = "\n".join(each.getMessage() for each in caplog.records if each.name != "werkzeug")
    assert present(canaries, search() + logged.encode()) == set()
    assert federation.history.integrity.verify() == []
    (begun,), (log,) = (entries_of(federation.history, kind) for kind in ("erasure", "erased"))
    assert (begun.body["models"], begun.body["updates"], log.body["rounds"]) == (4, 1, 4)


def test_output_leaves_the_prefix_alone(stores: tuple[Federation, Search]) -> None:
    """It promises the name, the client's object, and all that came after the restart; the rest is still there."""
    federation, search = stores
    federation.train(4)
    before, after, identity = federation.canaries(1, 2), federation.canaries(3, 4), federation.identity()
    after |= federation.derived() | federation.object()
    forgotten(federation, ErasureLevel.OUTPUT)
    everything = search()
    assert present(after, everything) == set()
    assert present({name: identity[name] for name in ("name", "label")}, everything) == set()
    assert present(before, everything) == set(before)


# The attack: from what is left, and never from the leaver's own rows.


def deltas_from_gram(history: History, leaver: int) -> dict[ModelId, float]:
    """G p = 0: the leaver's row is minus the weighted sum of the others', so its distance follows."""
    found = {}
    for number in range(2):
        for round_ in rounds_of(history, number, 1, 9):
            (at,) = np.flatnonzero(round_.clients == leaver)
            others = np.arange(len(round_.clients)) != at
            weights = round_.participants["weight"]
            if round_.gram is not None:
                row = -(weights[others] @ round_.gram[np.ix_(others, others)]) / weights[at]
                distance = np.sqrt(-(row @ weights[others]) / weights[at])
                found[round_.model_id] = weights[at] / weights[others].sum() * distance
    return found


@pytest.mark.parametrize("level", list(ErasureLevel))
def test_a_reconstruction_succeeds_after_output_and_fails_after_purge(tmp_path: Path, level: ErasureLevel) -> None:
    with History(tmp_path / "history") as history:
        federation = Federation(history)
        federation.train(4)
        (leaver,) = history.participants.find([LEAVER])
        truth = {each.model_id: client_deltas(each.edge(FACTS.training))[0] for each in rounds_of(history, 0, 1, 2)}
        forgotten(federation, level)
        recovered = deltas_from_gram(history, leaver)
        if level is ErasureLevel.PURGE:
            assert recovered == {}
            assert [entry.kind for entry in entries_of(history)].count("round") == 4
            assert rounds_of(history, 0, 1, 9) == []
            assert history.objects.digests() == {digest(federation.own[name]) for name in OTHERS}
        else:
            assert recovered == pytest.approx(truth, rel=1e-6)
