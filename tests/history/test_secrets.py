"""What the ledger commits to and keeps secret: who has all of it that is left learns no erased number and no name."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from rescind.cli import app
from rescind.cli.examination import examine
from rescind.cli.shared import open_history
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.errors import BrokenHistoryError, ForgottenClientError, HistoryError, UnknownClientError
from rescind.history.history import History
from rescind.history.participants import blind_name
from rescind.ledger.commitments import name_leaf, round_root
from rescind.ledger.contract import RETURNING, derive_secret, name_digest
from rescind.ledger.records import ErasureLevel, RoundRecord
from tests.builders import (
    FACTS,
    START,
    entries_of,
    federation,
    name,
    name_leaf_of,
    outside_secret,
    register,
    restarted,
    rounds_of,
    run_sql,
    salts_of,
    stretches_of,
    train,
)


def test_no_root_of_an_erased_round_opens_with_what_is_left(history: History) -> None:
    """Rounds that the leaver missed used to open with the others' keys, and theirs gave its own numbers away."""
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 2, range(6))
        train(recorder, clients, 2, range(1, 6))
        train(recorder, clients, 1, range(6))
    known = rounds_of(history, 0, 1, 5)
    restarted(history, [name(0)], ModelId(0, 4))
    history.erase(history.plan_erasure())
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 2, range(1, 6))
    roots = {entry.model_id: entry.root for entry in entries_of(history, "round")}
    there = [*rounds_of(history, 1, 1, 9), *stretches_of(history).values()]
    salts = {b"", bytes(32), *(each.salt for each in there)}
    missed = 0
    for round_ in known:
        keys = salts_of(history, round_.clients)
        missed += len(keys) == len(round_.clients)
        with_keys = _with_keys(round_, keys)
        assert all(round_root(replace(with_keys, salt=salt), keys) != roots[round_.model_id] for salt in salts)
    assert missed == 2
    # What the server computed is a leaf of its own, which needs no key.
    assert not {each.salt for each in known} & salts


def _moved(client: int, to: int) -> str:
    return f"UPDATE identity SET pseudonym = {to} WHERE pseudonym = {client}"  # noqa: S608


REGISTERED = "the names of clients 1 to 6 are not those that were registered"
# What somebody at the database does to the table of identities, and what is said of it.
EDITS = {
    "two names swapped": ([_moved(1, -1), _moved(2, 1), _moved(-1, 2)], REGISTERED),
    "a name changed": (["UPDATE identity SET name = 'nobody' WHERE pseudonym = 2"], REGISTERED),
    "a nonce changed": (["UPDATE identity SET nonce = zeroblob(32) WHERE pseudonym = 5"], REGISTERED),
    "a name deleted": (["DELETE FROM identity WHERE pseudonym = 2"], REGISTERED),
    "a label moved": (
        ["UPDATE identity SET label = CASE pseudonym WHEN 3 THEN 'north' END"],
        "what people call client 1 is not what was recorded",
    ),
    "the commitment changed": (
        ["UPDATE journal SET root = zeroblob(32) WHERE kind = 'registration'"],
        "entry 3 does not follow",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_names_are_those_that_were_registered(history: History, tmp_path: Path, edit: str) -> None:
    """Two swapped rows made the run forget another client, under the certificate of the one who had asked."""
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 2, range(6))
    history.participants.label({name(0): "north"})
    assert history.integrity.verify() == []
    number = history.requests.ask([name(4)], Budget(5.0, 1e-3))
    history.requests.withdraw(number)
    statements, told = EDITS[edit]
    run_sql(tmp_path / "history", *statements)
    assert any(told in problem for problem in history.integrity.verify())
    before = history.head
    with pytest.raises(BrokenHistoryError, match=f"{told}.*restore it from a backup"):
        history.requests.ask(["north" if "label" in edit else name(0)], Budget(5.0, 1e-3))
    assert history.head == before


def test_a_client_that_nobody_registered_cannot_be_forgotten(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    run_sql(tmp_path / "history", "INSERT INTO identity VALUES (99, 'new', NULL, zeroblob(32))")
    assert "client 99 was never registered" in history.integrity.verify()
    with pytest.raises(BrokenHistoryError, match="client 99 was never registered"):
        history.requests.ask(["new"], Budget(5.0, 1e-3))


def test_a_name_that_goes_without_an_erasure_is_missed(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    leaf = name_leaf_of(history, 2).hex()
    kept = f"UPDATE client SET name_leaf = x'{leaf}' WHERE pseudonym = 2"  # noqa: S608
    run_sql(tmp_path / "history", kept, "DELETE FROM identity WHERE pseudonym = 2")
    assert history.integrity.verify() == ["the name of client 2 is gone, and no erasure says so"]


def test_names_that_were_swapped_after_the_request_are_not_erased(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    restarted(history, [name(0)], ModelId(0, 3))
    plan = history.plan_erasure()
    run_sql(tmp_path / "history", *EDITS["two names swapped"][0])
    with pytest.raises(BrokenHistoryError, match=REGISTERED):
        history.erase(plan)
    assert len(history.participants.all()) == 6


def test_an_erased_name_is_hidden_and_the_others_still_verify(history: History) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    (leaver,) = history.participants.find([name(0)])
    before = name_leaf_of(history, leaver)
    restarted(history, [name(0)], ModelId(0, 3))
    history.erase(history.plan_erasure(ErasureLevel.OUTPUT))
    assert history.integrity.verify() == []
    assert name_leaf_of(history, leaver) == before
    # The key is still there, and does not open it: what hid the name lay beside it.
    (key,) = salts_of(history, [leaver]).values()
    assert before not in (name_leaf(each, leaver, name(0)) for each in (key, b"", bytes(32)))
    assert history.requests.ask([name(1)], Budget(5.0, 1e-3))


def everything(folder: Path) -> set[bytes]:
    """Return every value in the tables, as whoever copies the folder has them."""
    tables = run_sql(folder, "SELECT name FROM sqlite_master WHERE type = 'table'")
    rows = [row for (table,) in tables for row in run_sql(folder, f"SELECT * FROM {table}")]  # noqa: S608
    values = {value for row in rows for value in row if isinstance(value, bytes | str)}
    return {each.encode() if isinstance(each, str) else each for each in values}


def test_an_erased_name_cannot_be_guessed_with_the_ledger_alone(history: History, tmp_path: Path) -> None:
    """A hundred thousand guesses took 1.4 seconds while the secret of the digests lay beside them."""
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    receipt = history.participants.receipt(name(0))
    restarted(history, [name(0)], ModelId(0, 3))
    plan = history.plan_erasure()
    history.erase(plan)
    (asked,) = history.timeline.requests
    there = everything(tmp_path / "history")
    listed = next(
        each
        for each in there
        if len(each) == 64 and name_digest(outside_secret(history, RETURNING), name(0)).hex().encode() == each
    )
    keys = [each for each in there if len(each) == 32]
    assert len(keys) > 10
    for key in [*keys, *(derive_secret(each, purpose) for each in keys for purpose in (RETURNING, "receipts"))]:
        assert name_digest(key, name(0)).hex().encode() != listed
        guessed = blind_name(hmac.digest(key, name(0).encode(), "sha256"), name(0))
        assert guessed not in asked.forgotten
    # Whoever has the file as well can.
    assert history.participants.remaining([name(0), name(1)]) == [name(1)]
    assert blind_name(bytes.fromhex(history.participants.receipt(name(0))), name(0)) in asked.forgotten
    assert history.participants.receipt(name(0)) == receipt
    assert any("secret file" in each and "guess" in each for each in plan.stays)


def test_the_secret_lies_beside_the_folder_and_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with History(tmp_path / "history") as history:
            receipt = history.participants.receipt("ann")
    finally:
        os.umask(before)
    file = tmp_path / "history.secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["history", "history.secret"]
    content = file.read_bytes()
    assert not any(
        content.strip() in each or bytes.fromhex(content.decode()) in each
        for each in everything(tmp_path / "history")
    )
    with History(tmp_path / "history", secret=file) as history:
        assert history.participants.receipt("ann") == receipt
    assert file.read_bytes() == content


def test_places_in_the_home_folder_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = "~/secrets/own"
    monkeypatch.setenv("RESCIND_SECRET", own)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets").mkdir()
    assert CliRunner().invoke(app, ["init", "~/history"]).exit_code == 0
    with History("~/history", secret=own, checkpoints="~/models") as history:
        assert history.location == str(tmp_path / "history")
        history.models.put({"a": np.ones(3)})
    assert CliRunner().invoke(app, ["request", "list", "~/history"]).exit_code == 0
    assert sorted(made.name for made in tmp_path.iterdir()) == ["history", "models", "secrets"]


KILLED = """
import os, sys
from rescind import History
link = os.link
os.link = lambda *names: (link(*names), os._exit(9))
History(sys.argv[1])
"""


def test_a_writer_that_is_killed_leaves_no_second_name_of_the_secret(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "history")], check=False)
    assert killed.returncode == 9
    file = tmp_path / "history.secret"
    assert file.stat().st_nlink == 2
    # Another history's secret that is being written.
    other = tmp_path / ".history.secret.other"
    other.write_bytes(b"")
    with History(tmp_path / "history") as history:
        assert history.participants.receipt("ann")
    assert file.stat().st_nlink == 1
    assert {each.name for each in tmp_path.iterdir()} == {"history", file.name, other.name}


def test_a_misspelt_name_is_told_without_the_secret_too(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    (tmp_path / "history.secret").unlink()
    with History(tmp_path / "history") as opened, pytest.raises(UnknownClientError) as said:
        opened.participants.find([f"{name(0)}x"])
    assert f"did you mean {name(0)!r}" in str(said.value)
    assert "Whether it was forgotten cannot be told" in str(said.value)
    assert "history.secret" in str(said.value)


@pytest.mark.parametrize("loss", ["gone", "another history's", "no secret", "too long", "open to others", "a folder"])
def test_without_its_secret_a_history_is_read_and_nothing_else(history: History, tmp_path: Path, loss: str) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    restarted(history, [name(0)], ModelId(0, 3))
    history.close()
    file, whole = tmp_path / "history.secret", (tmp_path / "history.secret").read_bytes()
    if loss == "another history's":
        History(tmp_path / "other").close()
        (tmp_path / "other.secret").replace(file)
    elif loss == "open to others":
        file.chmod(0o640)
    elif loss in ("gone", "a folder"):
        file.unlink()
        if loss == "a folder":
            file.mkdir()
    else:
        file.write_bytes(b"hunter2" if loss == "no secret" else whole + whole)
    with History(tmp_path / "history") as opened:
        wrong = loss in ("another history's", "no secret", "too long")
        assert ["the stamps of its entries cannot be checked" in each for each in opened.integrity.verify()] == [
            True
        ] * wrong
        head = opened.head
        for refused in (
            lambda: opened.recording(FACTS, START).__enter__(),
            lambda: opened.requests.ask([name(1)], Budget(5.0, 1e-3)),
            lambda: opened.erase(opened.plan_erasure()),
            lambda: opened.participants.receipt(name(1)),
            lambda: register(opened, "new"),
        ):
            with pytest.raises(HistoryError, match=f"{file}.*(backup|put the right file|chmod 600)"):
                refused()
        assert opened.head == head
        told = {each.what: each for each in examine(str(tmp_path / "history"), [])}
        assert told["secret"].verdict == "repair"
    file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
    file.write_bytes(whole)
    file.chmod(0o600)
    with History(tmp_path / "history") as opened:
        opened.erase(opened.plan_erasure())
        assert opened.integrity.verify() == []
        with opened.recording(FACTS, START) as recorder, pytest.raises(ForgottenClientError):
            train(recorder, federation(1), 1, range(6))
    assert {each.what: each.verdict for each in examine(str(tmp_path / "history"), [])}["secret"] == "fine"  # noqa: S105


def test_a_history_on_a_server_is_told_where_its_secret_lies(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"checkpoints": str(tmp_path / "models"), "run": f"secret_{secrets.token_hex(8)}"}
    with pytest.raises(HistoryError, match=r"needs a file for its secret.*RESCIND_SECRET"):
        History(postgresql, **place)
    with pytest.raises(HistoryError, match="cannot be made"):
        History(postgresql, **place, secret=tmp_path / "nowhere" / "secret")
    with History(postgresql, **place, secret=tmp_path / "secret") as history:
        receipt = history.participants.receipt("ann")
    # A signer reads, and has no use for it.
    with History(postgresql, **place) as history:
        assert history.participants.all() == {}
        with pytest.raises(HistoryError, match=r"not named.*RESCIND_SECRET"):
            history.participants.receipt("ann")
    monkeypatch.setenv("RESCIND_SECRET", str(tmp_path / "secret"))
    monkeypatch.setenv("RESCIND_CHECKPOINTS", place["checkpoints"])
    monkeypatch.setenv("RESCIND_RUN", place["run"])
    with open_history(postgresql) as history:
        assert history.participants.receipt("ann") == receipt


def test_what_a_server_sends_elsewhere_is_said_before_anything_is_erased(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"secret_{secrets.token_hex(8)}"
    for variable, value in {"CHECKPOINTS": tmp_path / "models", "RUN": run, "SECRET": tmp_path / "secret"}.items():
        monkeypatch.setenv(f"RESCIND_{variable}", str(value))
    with open_history(postgresql, create=True) as history, history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f'CREATE PUBLICATION {run} FOR TABLE "rescind_{run}".identity')
    result = CliRunner().invoke(app, ["erase", postgresql, "--dry-run"])
    assert "Out of reach: 0 logical replication slots and 1 publications" in result.output
    told = {each.what: each for each in examine(postgresql, [])}
    assert (told["server"].verdict, told["secret"].detail.split(",")[0]) == ("note", str(tmp_path / "secret"))


def _with_keys(round_: RoundRecord, keys: dict[int, bytes]) -> RoundRecord:
    there = np.isin(round_.clients, list(keys))
    return round_ if there.all() else replace(round_, participants=round_.participants[there], gram=None)
