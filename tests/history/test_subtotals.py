"""Sums that are kept, added up in a tree: what is read, what is left behind, and what is taken for a subtotal."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescind import Budget, History, LocalTraining, Revocable, SquaredL2
from rescind.checkpoints.store import CheckpointStore, MemoryStore
from rescind.core.ridge import RidgeSums, add_up_ridge
from rescind.engines.heads import LEAST_ROWS
from rescind.history.subtotals import Node, Subtotals, find_files, grow_tree, pack, unpack
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.unattended import forget_unattended
from tests.builders import objects_of

FEATURES, OUTPUTS, CLIENTS = 5, 2, 70
LOSS = SquaredL2(0.01, 1.0, most_rows=100, most_clients=100)


def federation(clients: int = CLIENTS) -> Federation:
    def shard(at: int) -> Shard:
        rng = np.random.default_rng(at)
        rows = rng.normal(size=(LEAST_ROWS, FEATURES))
        return Shard(rows / np.linalg.norm(rows, axis=1, keepdims=True), rng.integers(0, OUTPUTS, LEAST_ROWS))

    return Federation({f"client-{at:02}": shard(at) for at in range(clients)}, shard(99), OUTPUTS)


def solve(history: History, clients: int = CLIENTS) -> None:
    engine = Simulation(federation(clients), SoftmaxHead(FEATURES, OUTPUTS), LocalTraining.solved(LOSS), secret=b"s")
    Revocable(history, engine, scored=False).solve()


def forget(history: History, *names: str) -> None:
    history.requests.ask(names, Budget(1.0, 1e-5))
    forget_unattended(history)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        solve(opened)
        yield opened


def nodes(history: History) -> list[Node]:
    return [node for top in grow_tree(objects_of(history)) for node in top.walk()]


def test_where_no_client_has_to_be_there_none_is_missed(history: History, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "flwr"):
        forget(history, "client-03")
    assert "that are not there" not in caplog.text


def single(value: int) -> RidgeSums:
    return RidgeSums(value, 8, np.full(3, value), np.full((1, 2), -value))


def read(store: CheckpointStore, objects: dict[int, str], wanted: Collection[int]) -> tuple[dict[int, int], int, int]:
    """Return the rows that were read by client, their sum, and in how many parts they came."""
    subtotals = Subtotals(store, lambda: b"a secret")
    parts = list(subtotals.read(grow_tree(objects), wanted, (), lambda _, file: unpack(store.load(file))))
    total = add_up_ridge(sums for _, sums in parts)
    rows = {client: count for own, _ in parts for client, count in own.items()}
    assert total is None or int(total.features[0]) == -int(total.targets[0, 0]) == total.rows
    return rows, total.rows if total else 0, len(parts)


@given(
    clients=st.sets(st.integers(1, 5_000), min_size=1, max_size=60),
    changes=st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["leaves", "joins", "is left out"])), max_size=6),
)
def test_whoever_comes_and_goes_the_parts_add_up_to_those_who_are_wanted(
    clients: set[int], changes: list[tuple[int, str]]
) -> None:
    store = MemoryStore()
    objects = {client: store.put(pack(single(client))) for client in clients}
    for at, change in [(0, ""), *changes]:
        chosen = sorted(objects)[at % len(objects)]
        if change == "leaves" and len(objects) > 1:
            del objects[chosen]
        elif change == "joins":
            objects[chosen + 1] = store.put(pack(single(chosen + 1)))
        wanted = set(objects) - ({chosen} if change == "is left out" else set())
        assert read(store, objects, wanted)[:2] == ({client: client for client in wanted}, sum(wanted))
    for file in store.digests() - find_files(objects):
        store.delete(file)
    assert read(store, objects, set(objects))[0] == {client: client for client in objects}


def test_who_leaves_costs_one_path() -> None:
    store = MemoryStore()
    objects = {client: store.put(pack(single(client))) for client in range(1, 513)}
    assert read(store, objects, objects)[2] == 2
    assert read(store, objects, set(objects) - {100})[2] <= 7 * 3 + 1
    assert read(store, objects, set(objects) - set(range(1, 513, 60)))[2] <= 7 * 3 * 9


def test_nothing_of_who_left_is_in_any_file(history: History) -> None:
    everybody = set(objects_of(history).values())
    assert history.objects.digests() == history.sums.files() > everybody
    (leaver,) = history.participants.find(["client-30"])
    holding = {node.file for node in nodes(history) if leaver in node.clients}
    assert len(holding) == 3
    forget(history, "client-30")
    assert history.objects.digests() <= history.sums.files()
    assert history.objects.digests().isdisjoint(holding)
    # Those that are missing are made anew.
    forget(history, "client-31")
    solve_anew = {f"client-{at:02}" for at in range(CLIENTS)} - {"client-30", "client-31"}
    assert set(history.sums.digests()) == solve_anew
    assert history.integrity.verify() == []


def test_sums_that_are_sent_again_leave_none_of_the_old_behind(history: History) -> None:
    before = history.sums.files()
    (client,) = history.participants.find(["client-03"])
    history.sums.ask_again([client])
    with history.recording(history.timeline.run.facts, history.model(history.newest)) as recorder:
        recorder.keep_sums({"client-03": recorder.sums.store(single_of(history))}, {})
    assert not history.objects.digests() & (before - history.sums.files())
    assert before - history.sums.files()


def test_whoever_chooses_an_l2_term_writes_nothing(history: History) -> None:
    (client,) = history.participants.find(["client-03"])
    for node in nodes(history):
        if client in node.clients and node.below:
            history.objects.delete(node.file)
    before = history.objects.digests()
    history.sums.choose_l2(list(history.sums.digests()), replace(LOSS, l2_choices=(0.01, 1.0)))
    assert history.objects.digests() == before


def single_of(history: History) -> RidgeSums:
    (_, sums), *_ = history.sums.read(["client-04"])
    return sums


@pytest.mark.parametrize("change", ["flips a bit", "puts another subtotal there", "takes it away"])
def test_only_what_was_written_is_taken_for_a_subtotal(history: History, tmp_path: Path, change: str) -> None:
    expected = model_without("client-60")
    # Of those who stay.
    one, other = (
        tmp_path / "history" / "objects" / f"{node.file}.safetensors"
        for node in nodes(history)
        if len(node.clients) == 8 and node.clients[0] in (8, 16)
    )
    if change == "flips a bit":
        content = bytearray(one.read_bytes())
        content[-9] ^= 1
        one.write_bytes(content)
    elif change == "puts another subtotal there":
        shutil.copy(other, one)
    else:
        one.unlink()
    assert ("was changed" in " ".join(history.integrity.verify())) == (change != "takes it away")
    forget(history, "client-60")
    assert {name: tensor.tobytes() for name, tensor in history.model(history.newest).items()} == expected


def model_without(name: str) -> dict[str, bytes]:
    everybody = federation()
    left = Federation({own: rows for own, rows in everybody.shards.items() if own != name}, everybody.test, OUTPUTS)
    engine = Simulation(left, SoftmaxHead(FEATURES, OUTPUTS), LocalTraining.solved(LOSS), secret=b"s")
    with History.in_memory() as never:
        Revocable(never, engine, scored=False).solve()
        return {own: tensor.tobytes() for own, tensor in never.model(never.newest).items()}


def test_a_subtotal_that_comes_back_from_a_backup_is_nobodys_file(history: History, tmp_path: Path) -> None:
    folder = tmp_path / "history" / "objects"
    shutil.copytree(folder, tmp_path / "backup")
    forget(history, "client-30")
    gone = {path.name for path in (tmp_path / "backup").iterdir()} - {path.name for path in folder.iterdir()}
    subtotal = next(name for name in gone if (tmp_path / "backup" / name).stat().st_size > 400)
    shutil.copy2(tmp_path / "backup" / subtotal, folder)
    assert "nothing refers to 1 files" in " ".join(history.integrity.verify())
    forget(history, "client-31")
    assert not (folder / subtotal).exists()
