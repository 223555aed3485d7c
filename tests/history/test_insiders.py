"""Somebody with write access edits a finished history: with plain SQL, or its files. Verification notices."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.cli.examination import examine
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.errors import BrokenHistoryError, NoHistoryError
from rescind.forgetting import Revocable
from rescind.history.run import Goal
from rescind.ledger.commitments import round_root
from rescind.ledger.contract import CHECK, STAMPS, bind_secret, derive_secret
from rescind.ledger.records import PARTICIPANT, REMAINING, ErasureLevel
from rescind.methods import Last, Scratch, Sifu
from rescind.simulation import Simulation
from rescind.testing.small import simulation
from tests.builders import (
    KEY,
    SIGNER,
    entries_of,
    everybody,
    forge_entry,
    keep_objects,
    outside_secret,
    rechain,
    rounds_of,
    run_sql,
    salts_of,
)

TABLES = ("client", "client_object", "identity", "kept", "participation", "round")


@dataclass(frozen=True)
class Made:
    """A history with a finished erasure, a copy from before it, and the certificate; ``heads`` are a client's."""

    history: Path
    before: Path
    certificate: bytes
    heads: tuple[bytes, ...]


def engine() -> Simulation:
    return everybody(10)


def forgotten(history: History, backup: Callable[[], object]) -> tuple[bytes, tuple[bytes, ...]]:
    """Train, ask, copy, forget and erase; return the certificate and heads that were committed on the way."""
    federation = Revocable(history, engine())
    federation.train(Rounds(6))
    names = history.participants.all()
    keep_objects(history, {name: {"own": np.full(4, number)} for name, number in names.items()})
    heads = [history.head]
    number = history.requests.ask(["clinic-6"], Budget(5.0, 1e-5))
    backup()
    federation.forget(Last(), Rounds(4))
    heads.append(history.head)
    return sign(build_statement(history, number), [SIGNER]), tuple(heads)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("insiders")
    with History(folder / "history") as history:
        certificate, heads = forgotten(history, lambda: copied(folder / "history", folder / "before"))
    return Made(folder / "history", folder / "before", certificate, heads)


def copied(history: Path, to: Path) -> None:
    shutil.copytree(history, to)
    # Not the writer's lock, nor what SQLite keeps beside an open file: the copy is a backup's.
    with closing(sqlite3.connect(history / "ledger.sqlite")) as database, closing(sqlite3.connect(to / "x")) as copy:
        database.backup(copy)
    for beside in to.glob("ledger.sqlite*"):
        beside.unlink()
    (to / "x").chmod(0o600)
    (to / "x").rename(to / "ledger.sqlite")


EDITS = {
    "a round's number": "UPDATE round SET update_norm = update_norm / 2 WHERE branch = 1 AND round = 4",
    "a round's factor": "UPDATE round SET factor = factor / 2 WHERE branch = 1 AND round = 4",
    "a round deleted": "DELETE FROM round WHERE branch = 1 AND round = 4",
    "an entry's time": "UPDATE journal SET time = '2020-01-01T00:00:00+00:00' WHERE kind = 'request'",
    "an entry's body": """UPDATE journal SET body = replace(body, '"epsilon":5.0', '"epsilon":0.5')
        WHERE kind = 'request'""",
    "one more name in a body": """UPDATE journal SET body = '{"hidden":"clinic-6",' || substr(body, 2)
        WHERE kind = 'request'""",
    "a name twice in a body": """UPDATE journal SET body = '{"deadline":"clinic-6",' || substr(body, 2)
        WHERE kind = 'request'""",
    "a body spelled otherwise": "UPDATE journal SET body = ' ' || body WHERE kind = 'request'",
    "an entry deleted": "DELETE FROM journal WHERE sequence = 3",
    "the newest entry deleted": "DELETE FROM journal WHERE sequence = (SELECT max(sequence) FROM journal)",
    "suppression emptied": "DELETE FROM suppression",
    "suppression replaced": "UPDATE suppression SET digest = 'ab'",
    "an erased name of somebody else": "UPDATE suppression SET pseudonym = 3",
    "an erased name twice": "INSERT INTO suppression SELECT digest, 3 FROM suppression",
    "the erased name back": "INSERT INTO identity SELECT * FROM old.identity WHERE name = 'clinic-6'",
    "the erased name as another client": """INSERT INTO identity (pseudonym, name, nonce)
        SELECT 11, name, nonce FROM old.identity WHERE name = 'clinic-6'""",
    "a name changed": "UPDATE identity SET name = 'another' WHERE pseudonym = 1",
    "the erased key back": """UPDATE client SET key = (SELECT key FROM old.client AS b
        WHERE b.pseudonym = client.pseudonym) WHERE key IS NULL""",
    "erased rounds back": """INSERT INTO round SELECT * FROM old.round WHERE sequence NOT IN
        (SELECT sequence FROM round)""",
    "erased participations back": """INSERT INTO participation SELECT * FROM old.participation WHERE round NOT IN
        (SELECT round FROM participation)""",
    "erased kept models back": "INSERT INTO kept SELECT * FROM old.kept WHERE round > 0",
    "an erased object back": """INSERT INTO client_object SELECT * FROM old.client_object WHERE client NOT IN
        (SELECT client FROM client_object)""",
    "the newest model not kept": "DELETE FROM kept WHERE branch = 1 AND round = 4",
    "theta_0 not kept": "DELETE FROM kept WHERE branch = 0",
    "another model not kept": "DELETE FROM kept WHERE branch = 1 AND round = 2",
    "no model kept": "DELETE FROM kept",
    "the run's secret": "UPDATE run SET secret = (SELECT key FROM client WHERE pseudonym = 4)",
    "a key deleted": "UPDATE client SET key = NULL WHERE pseudonym = 3",
    "a key changed": "UPDATE client SET key = (SELECT key FROM client WHERE pseudonym = 4) WHERE pseudonym = 3",
    "last_round lowered": "UPDATE branch SET last_round = 3 WHERE number = 1",
    "last_round raised": "UPDATE branch SET last_round = 9 WHERE number = 0",
    "a participation deleted": "DELETE FROM participation WHERE client = 3",
    "a participation added": "INSERT INTO participation SELECT 0, 7, max(sequence) FROM round",
    "a participation in a wrong segment": "INSERT INTO participation SELECT 9, 3, max(sequence) FROM round",
    "a round of no branch": """INSERT INTO round SELECT 1, 77, round, factor, rounding, update_norm, model, salt,
        participants, gram FROM round WHERE branch = 1 AND round = 4""",
    "a round after the last": """INSERT INTO round SELECT (SELECT min(sequence) FROM journal WHERE kind = 'round'),
        1, 99, factor, rounding, update_norm, model, salt, participants, gram
        FROM round WHERE branch = 1 AND round = 4""",
    "a round under another entry": "UPDATE round SET sequence = 1 WHERE branch = 1 AND round = 4",
    "an object of nobody": "UPDATE client_object SET client = 9000 WHERE client = 3",
    "an object that is not there": "DELETE FROM client_object WHERE client = 3",
    "another object": "UPDATE client_object SET digest = (SELECT model FROM kept WHERE round = 0) WHERE client = 3",
    "a kept model of no branch": "INSERT INTO kept SELECT 77, 0, model FROM kept WHERE branch = 1 AND round = 4",
    "a branch that was not started": "INSERT INTO branch VALUES (77, 0)",
    "what is left of no branch": """INSERT INTO stretch SELECT 77, origin_branch, origin_round, common_factor, salt,
        remaining FROM stretch""",
    "what is left comes from itself": "UPDATE stretch SET origin_branch = branch",
    "a client that was not registered": "INSERT INTO client SELECT 77, key, NULL FROM client WHERE pseudonym = 3",
    "the remains of a name that is there": """UPDATE client SET name_leaf = (SELECT key FROM client
        WHERE pseudonym = 4) WHERE pseudonym = 3""",
    "the run's name": "UPDATE run SET name = 'clinic-6'",
    "another index under its name": "DROP INDEX journal_kind; CREATE INDEX journal_kind ON identity (label)",
    "a table": "CREATE TABLE shadow (name text)",
    "a view": "CREATE VIEW shadow AS SELECT name FROM identity",
    "a column": "ALTER TABLE client ADD COLUMN alias text",
    "an index": "CREATE INDEX shadow ON identity (label)",
    "an index gone": "DROP INDEX journal_kind",
}


OF_SQLITE = {
    "a trigger": """CREATE TRIGGER keep BEFORE DELETE ON identity
        BEGIN INSERT INTO kept VALUES (9, old.pseudonym, old.name); END""",
    "a column that computes": "ALTER TABLE identity ADD COLUMN shadow text GENERATED ALWAYS AS (name) VIRTUAL",
    "a constraint": """CREATE TABLE other (digest TEXT NOT NULL, pseudonym INTEGER NOT NULL,
        PRIMARY KEY (digest, pseudonym), CHECK (digest <> 'clinic-6'));
        INSERT INTO other SELECT * FROM suppression; DROP TABLE suppression;
        ALTER TABLE other RENAME TO suppression""",
    "a constraint gone": """CREATE TABLE other (digest TEXT NOT NULL, pseudonym INTEGER NOT NULL);
        INSERT INTO other SELECT * FROM suppression; DROP TABLE suppression;
        ALTER TABLE other RENAME TO suppression""",
    "the mark of the secret": "UPDATE run SET secret_check = zeroblob(32)",
    "statistics": "ANALYZE main",
    "numbers in the wrong type": "UPDATE kept SET model = 'text'",
    "an entry without a time": "UPDATE journal SET time = 'zz' WHERE sequence = (SELECT max(sequence) FROM journal)",
    "an entry without a body": "UPDATE journal SET body = 'no json' WHERE kind = 'plan'",
    "an entry of the wrong type": "UPDATE journal SET body = '[]' WHERE kind = 'request'",
}
# Of the others, those that its own statements look for.
OF_POSTGRESQL = {
    each: EDITS[each]
    for each in (
        *("a name twice in a body", "suppression emptied", "the erased name back", "erased participations back"),
        *("an erased object back", "the newest model not kept", "a participation in a wrong segment"),
        *("a round of no branch", "an object of nobody", "a branch that was not started", "the run's name"),
        *("a client that was not registered", "the remains of a name that is there", "another index under its name"),
        *("a table", "a view", "a column", "an index", "an index gone"),
    )
} | {
    "a trigger": """CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN old; END';
        CREATE TRIGGER keep BEFORE DELETE ON identity FOR EACH ROW EXECUTE FUNCTION public.keep()""",
    "a rule": "CREATE RULE keep AS ON DELETE TO identity DO ALSO NOTIFY keep",
    "a function": "CREATE FUNCTION keep() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "a default": "ALTER TABLE client ALTER COLUMN pseudonym SET DEFAULT 7",
    "a constraint": "ALTER TABLE client ADD CHECK (pseudonym > 0)",
    "another constraint under its name": """ALTER TABLE round DROP CONSTRAINT round_branch_round_key;
        ALTER TABLE round ADD CONSTRAINT round_branch_round_key UNIQUE (branch, round, salt)""",
    "an index with a column more": """DROP INDEX journal_kind;
        CREATE INDEX journal_kind ON journal (kind) INCLUDE (body)""",
    "a column that may be empty": "ALTER TABLE kept ALTER COLUMN model DROP NOT NULL",
    "another collation": 'ALTER TABLE identity ALTER COLUMN name TYPE text COLLATE "default"',
    "a policy": "CREATE POLICY keep ON identity",
    "a table below": "CREATE TABLE public.shadow () INHERITS (identity)",
    "statistics": "CREATE STATISTICS keep ON pseudonym, name FROM identity",
    "samples of a column": "ALTER TABLE identity ALTER COLUMN name SET STATISTICS 100",
}


def told(location: Path | str) -> list[str]:
    """Return what ``rescind doctor`` finds to repair in a history."""
    return [each.detail for each in examine(str(location), ()) if each.verdict == "repair" and each.what != "disk"]


def refused(history: History, made: Made, witnessed: tuple[bytes, ...] = ()) -> str:
    """Return why ``rescind verify --history`` refuses the certificate."""
    try:
        verify(made.certificate, [KEY], history=history, witnessed=witnessed)
    except HistoryMismatchError as refusal:
        return str(refusal)
    return ""


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    return copied_with_secret(made.history, made, tmp_path / "history")


def copied_with_secret(history: Path, made: Made, to: Path) -> Path:
    shutil.copy(f"{made.history}.secret", f"{to}.secret")
    return Path(shutil.copytree(history, to))


def edited(history: Path, before: Path, statement: str) -> None:
    with closing(sqlite3.connect(history / "ledger.sqlite")) as database:
        if before.name:
            database.execute(f"ATTACH '{before / 'ledger.sqlite'}' AS old")
        for each in [statement] if "TRIGGER" in statement else statement.split(";"):
            assert database.execute(each).rowcount != 0, "the edit changes nothing"
        database.commit()


def test_what_nobody_edited_is_fine(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        assert refused(history, made, made.heads) == ""
        assert told(copy) == []


def test_who_verifies_without_the_secret_is_told_what_is_not_looked_at(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        assert not any("erased name" in each for each in verify(made.certificate, [KEY], history=history).unchecked)
    Path(f"{copy}.secret").unlink()
    with History(copy, create=False) as history:
        assert any("erased name" in each for each in verify(made.certificate, [KEY], history=history).unchecked)


@pytest.mark.parametrize("content", ["ab" * 32, "not a secret", ""])
def test_who_verifies_with_a_wrong_secret_is_refused(content: str, made: Made, copy: Path) -> None:
    """Whoever can write the ledger can make the right secret look wrong, and so keep stamps from being checked."""
    Path(f"{copy}.secret").write_text(content)
    with History(copy, create=False) as history:
        assert "the stamps of its entries cannot be checked" in refused(history, made)
        (problem,) = history.integrity.stamp_problems() or ()
        assert f"{copy}.secret" in problem


@pytest.mark.parametrize("statement", (EDITS | OF_SQLITE).values(), ids=[*EDITS, *OF_SQLITE])
def test_an_edit_of_the_ledger_is_noticed(statement: str, made: Made, copy: Path) -> None:
    edited(copy, made.before, statement)
    assert told(copy)
    with History(copy, create=False) as history:
        assert refused(history, made)


def test_an_erasure_names_what_may_have_kept_a_copy(made: Made, tmp_path: Path) -> None:
    """What is found in the database beside the ledger's own goes into the certificate as out of reach."""
    before = copied_with_secret(made.before, made, tmp_path / "before")
    run_sql(
        before,
        'CREATE TABLE "\x1b[2J[/]" (name text)',
        'CREATE TRIGGER keep BEFORE DELETE ON identity BEGIN INSERT INTO "\x1b[2J[/]" VALUES (old.name); END',
    )
    with History(before, create=False) as history:
        Revocable(history, engine()).forget(Last(), Rounds(1))
        (outcome,) = history.outcomes()
        said = " ".join((*outcome.left, *history.integrity.verify()))
        assert said.count("trigger keep") == 2
        assert said.isprintable()
        assert outcome.left == build_statement(history, outcome.asked.number).predicate.erasure.unreachable


FILES = ("ledger.sqlite.bak", "ledger.sqlite-journal.old", "checkpoints/old.db", f"objects/{'ab' * 32}.safetensors/x")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_rescind_did_not_make_is_named(name: str, made: Made, copy: Path) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_bytes(b"clinic-6")
    (copy / name).chmod(0o600)
    assert any(f"{name.removesuffix('/x')}; move" in each for each in told(copy))
    with History(copy, create=False) as history:
        assert "files that rescind did not make" in refused(history, made)


@pytest.mark.parametrize("store", ["checkpoints", "objects"])
def test_a_file_in_place_of_a_folder_is_named(store: str, made: Made, copy: Path) -> None:
    shutil.rmtree(copy / store, ignore_errors=True)
    (copy / store).write_bytes(b"clinic-6")
    (copy / store).chmod(0o600)
    assert any(f"may hold erased values: {store}; move" in each for each in told(copy))
    with History(copy, create=False) as history:
        assert "files that rescind did not make" in refused(history, made)


def test_an_erasure_names_files_that_rescind_did_not_make(made: Made, tmp_path: Path) -> None:
    before = copied_with_secret(made.before, made, tmp_path / "before")
    for number in range(7):
        (before / f"{number}\x1b[2J").write_bytes(b"")
    with History(before, create=False) as history:
        Revocable(history, engine()).forget(Last(), Rounds(1))
        (outcome,) = history.outcomes()
        (left,) = outcome.left
    assert r"0\x1b[2J, 1\x1b[2J" in left
    assert "4\\x1b[2J and 2 more" in left


def test_a_run_with_two_secrets_is_none(made: Made, copy: Path) -> None:
    edited(copy, made.before, "INSERT INTO run SELECT schema_version + 1, name, secret, secret_check FROM run")
    assert told(copy)
    with pytest.raises(NoHistoryError, match="2 rows"):
        History(copy, create=False)


def returned(copy: Path, before: Path, folder: str) -> None:
    for each in (before / folder).iterdir():
        shutil.copy(each, copy / folder)


def flipped(copy: Path, _: Path) -> None:
    model = min((copy / "checkpoints").iterdir())
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)


def swapped(copy: Path, _: Path) -> None:
    one, two, *_ = sorted((copy / "checkpoints").iterdir())
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def halved(copy: Path, _: Path) -> None:
    ((stored,),) = run_sql(copy, "SELECT remaining FROM stretch")
    remaining = np.frombuffer(stored, REMAINING).copy()
    remaining["sensitivity"] /= 2
    run_sql(copy, ("UPDATE stretch SET remaining = ?", remaining.tobytes()))


def undone(copy: Path, before: Path) -> None:
    """Put back all that the erasure took: name, key, rounds, kept models, object and files."""
    for name in (
        *("the erased name back", "the erased key back", "erased rounds back", "erased participations back"),
        *("erased kept models back", "an erased object back"),
    ):
        edited(copy, before, EDITS[name])
    returned(copy, before, "checkpoints")
    returned(copy, before, "objects")


@pytest.mark.parametrize(
    "edit",
    [
        *(flipped, swapped, halved, undone),
        *(partial(returned, folder="checkpoints"), partial(returned, folder="objects")),
        lambda copy, _: min((copy / "checkpoints").iterdir()).unlink(),
        lambda copy, _: min((copy / "objects").iterdir()).unlink(),
    ],
    ids=["flipped", "swapped", "halved", "undone", "models back", "objects back", "model lost", "object lost"],
)
def test_an_edit_of_files_or_values_is_noticed(edit: Callable[..., None], made: Made, copy: Path) -> None:
    edit(copy, made.before)
    assert told(copy)
    with History(copy, create=False) as history:
        assert refused(history, made)


def appended(history: Path, kind: str, body: dict[str, Any], root: bytes = b"", *, stamped: bool = True) -> None:
    with History(history, create=False) as opened:
        secret = outside_secret(opened, STAMPS) if stamped else bytes(32)
    forge_entry(history, kind, body, root, secret)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("withdrawal", {"request": 9}),
        ("extension", {"request": 9, "deadline": "2027-01-01T00:00:00+00:00", "reason": "none"}),
        ("label", {"labels": []}),
        ("doubt lifted", {"reason": "nothing"}),
        ("readmission", {"clients": [7], "reason": "nothing"}),
        ("erasure", None),
    ],
)
def test_nobody_adds_an_entry_without_the_secret(
    kind: str, body: dict[str, Any] | None, made: Made, copy: Path
) -> None:
    with History(copy, create=False) as history:
        body = body or dict(entries_of(history, kind)[0].body)
    appended(copy, kind, body, stamped=False)
    assert "added without the secret" in " ".join(told(copy))
    with History(copy, create=False) as history:
        assert "added without the secret" in refused(history, made)
        head = history.head
        for act in (
            lambda: Revocable(history, engine()).train(Rounds(1)),
            lambda: history.requests.ask(["clinic-5"], Budget(5.0, 1e-5)),
            *([history.finish_erasures] if kind == "erasure" else []),
        ):
            with pytest.raises(BrokenHistoryError, match="added without the secret"):
                act()
        assert history.head == head


def hundredth(history: Path) -> None:
    """Make everybody's distances a hundredth of what they were."""
    for sequence, stored, gram in run_sql(history, "SELECT sequence, participants, gram FROM round"):
        smaller = np.frombuffer(stored, PARTICIPANT).copy()
        smaller["distance"] /= 100
        written = (smaller.tobytes(), (np.frombuffer(gram) / 1e4).tobytes(), sequence)
        run_sql(history, ("UPDATE round SET participants = ?, gram = ? WHERE sequence = ?", *written))


@pytest.mark.parametrize(
    "edit",
    [
        hundredth,
        *(
            partial(edited, before=Path(), statement=each)
            for each in (
                "DELETE FROM participation WHERE client = 7",
                "DELETE FROM participation WHERE client = 7 AND round < (SELECT max(round) FROM participation)",
                """UPDATE journal SET body = replace(body, '"epsilon":5.0', '"epsilon":9.0')
                    WHERE kind = 'request'""",
                "UPDATE kept SET model = (SELECT model FROM kept WHERE round = 6) WHERE round = 3",
            )
        ),
    ],
    ids=["smaller numbers", "never took part", "took part once", "a larger epsilon", "another model kept"],
)
def test_nobody_is_forgotten_by_what_was_not_recorded(
    edit: Callable[[Path], None], made: Made, tmp_path: Path
) -> None:
    """Erasing would destroy what shows that the numbers behind the noise had been changed."""
    before = copied_with_secret(made.before, made, tmp_path / "before")
    edit(before)
    with History(before, create=False) as history:
        head = history.head
        with pytest.raises(BrokenHistoryError, match="somebody changed the ledger"):
            Revocable(history, engine()).forget(Last(), Rounds(1))
        assert history.head == head


def test_nothing_is_left_of_rounds_that_were_changed_before_their_erasure(made: Made, tmp_path: Path) -> None:
    """What an erasure leaves is computed from the rounds, and later bounds start from it."""
    before = copied_with_secret(made.before, made, tmp_path / "before")
    with History(before, create=False) as history:
        federation = Revocable(history, engine())
        federation.forget(Last(), Rounds(1), level=ErasureLevel.OUTPUT)
        hundredth(before)
        head = history.head
        with pytest.raises(BrokenHistoryError, match=r"the numbers of model 0\.1 are not those"):
            history.erase(history.plan_erasure(ErasureLevel.PURGE))
        assert history.head == head


def test_no_object_outlasts_its_client_under_another_pseudonym(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation = Revocable(history, simulation(8, secret_noise=True))
        federation.train(Rounds(3))
        keep_objects(history, {"clinic-1": {"own": np.arange(4.0)}})
        statement = """UPDATE client_object SET client = 9000
            WHERE client = (SELECT pseudonym FROM identity WHERE name = 'clinic-1')"""
        edited(tmp_path / "history", Path(), statement)
        history.requests.ask(["clinic-1"], Budget(8.0, 1e-2))
        head = history.head
        with pytest.raises(BrokenHistoryError, match="an object of client 9000"):
            federation.forget(Last(), Rounds(1), level=ErasureLevel.OUTPUT)
        assert history.head == head


ANOTHER_LIST = "UPDATE suppression SET digest = substr(digest, 9) || substr(digest, 1, 8)"


@pytest.mark.parametrize(
    "statement", ["DELETE FROM suppression", ANOTHER_LIST, "UPDATE suppression SET pseudonym = 3"]
)
def test_nobody_trains_with_another_list_of_erased_names(statement: str, made: Made, copy: Path) -> None:
    """Who was forgotten would take part again as somebody new, and the next erasure commit to the other list."""
    with History(copy, create=False) as history:
        number = history.requests.ask(["clinic-5"], Budget(5.0, 1e-5))
        edited(copy, made.before, statement)
        head, federation = history.head, Revocable(history, engine())
        for act in (
            lambda: federation.train(Rounds(9)),
            lambda: federation.forget(Scratch(), Rounds(1)),
            lambda: history.participants.readmit("clinic-6", "a new contract"),
        ):
            with pytest.raises(BrokenHistoryError, match="list by which erased names are recognised"):
                act()
        assert (history.head, number) == (head, 2)


def test_no_erasure_commits_to_another_list_of_erased_names(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        history.requests.ask(["clinic-5"], Budget(5.0, 1e-5))
        watching = Revocable(
            history,
            engine(),
            watch=lambda *_: edited(copy, made.before, ANOTHER_LIST),
            scored=False,
        )
        with pytest.raises(BrokenHistoryError, match="list by which erased names are recognised"):
            watching.forget(Scratch(), Rounds(1))
        assert any("list by which erased names are recognised" in each for each in history.integrity.verify())


def test_a_path_that_leads_back_to_itself_is_refused(made: Made, copy: Path) -> None:
    edited(copy, made.before, EDITS["what is left comes from itself"])
    with History(copy, create=False) as history, pytest.raises(BrokenHistoryError, match="before branch 1"):
        history.lineage()


def test_another_secret_with_its_check_is_noticed(made: Made, copy: Path) -> None:
    """Whoever can write both the ledger and the secret file can make them fit, but not the stamps of old entries."""
    outside = secrets.token_bytes(32)
    Path(f"{copy}.secret").write_text(outside.hex())
    ((run,),) = run_sql(copy, "SELECT secret FROM run")
    run_sql(copy, ("UPDATE run SET secret_check = ?", derive_secret(bind_secret(outside, run), CHECK)))
    assert "entry 1 was added without the secret" in told(copy)
    with History(copy, create=False) as history:
        assert "added without the secret" in refused(history, made)


def test_numbers_that_a_later_entry_commits_to_are_noticed(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        (round_,) = rounds_of(history, 1, 4, 4)
        smaller = round_.participants.copy()
        smaller["distance"] /= 1e4
        root = round_root(replace(round_, participants=smaller), salts_of(history, round_.clients))
    run_sql(copy, ("UPDATE round SET participants = ? WHERE branch = 1 AND round = 4", smaller.tobytes()))
    appended(copy, "round", {"branch": 1, "round": 4}, root)
    assert told(copy)
    with History(copy, create=False) as history:
        assert "once more" in refused(history, made)


@pytest.mark.parametrize("kind", ["run", "branch", "retrained", "erased"])
def test_what_is_said_once_more_is_noticed(kind: str, made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        *_, last = entries_of(history, kind)
    appended(copy, kind, dict(last.body))
    with History(copy, create=False) as history:
        assert "once more" in refused(history, made)


def test_an_erasure_of_whoever_did_not_ask_is_noticed(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        (plan,) = entries_of(history, "erasure")
    appended(copy, "erasure", {**plan.body, "clients": [1]})
    with History(copy, create=False) as history:
        assert any("about other clients" in each for each in history.integrity.verify())


def test_a_readmission_is_no_problem_and_one_of_somebody_who_was_not_forgotten_is(made: Made, copy: Path) -> None:
    with History(copy, create=False) as history:
        # From the beginning: only who is forgotten exactly is readmitted.
        history.requests.ask(["clinic-5"], Budget(5.0, 1e-5))
        Revocable(history, engine()).forget(Scratch(), Rounds(1))
        history.participants.readmit("clinic-6", "a new contract")
        assert history.integrity.verify() == told(copy) == []
        other = min(set(range(1, 11)) - history.timeline.forgotten)
    appended(copy, "readmission", {"clients": [other], "reason": "none"})
    assert any(f"readmits client {other}, who was not forgotten by then" in each for each in told(copy))
    with History(copy, create=False) as history, pytest.raises(BrokenHistoryError, match="who was not forgotten"):
        Revocable(history, engine()).train(Rounds(9))


def test_two_erased_names_in_one_row_are_noticed(made: Made, copy: Path) -> None:
    edited(copy, made.before, "UPDATE suppression SET digest = digest || ',' || digest")
    with History(copy, create=False) as history:
        assert any("has not the 1" in each for each in history.integrity.verify())


def test_a_recomputed_chain_needs_a_witness(made: Made, copy: Path) -> None:
    # What is derived is sealed with the head, and missed by nobody.
    edited(copy, made.before, EDITS["an entry's body"])
    edited(copy, made.before, "DELETE FROM bounds")
    rechain(copy)
    assert told(copy) == []
    with History(copy, create=False) as history:
        assert "witnessed head" in history.integrity.verify(made.heads)[0]
        # A certificate is a witness, too.
        assert "witnessed head" in refused(history, made)


def test_going_back_to_a_backup_needs_a_witness(made: Made, copy: Path, tmp_path: Path) -> None:
    """A backup from before the erasure, which the certificate knows of, and one from after it, which it does not."""
    copied_with_secret(made.before, made, tmp_path / "before")
    assert told(tmp_path / "before") == []
    with History(tmp_path / "before", create=False) as history:
        assert "witnessed head" in refused(history, made)
        assert "witnessed head" in history.integrity.verify(made.heads)[0]
    with History(copy, create=False) as history:
        Revocable(history, engine()).train(Rounds(5))
        witnessed = (*made.heads, history.head)
        assert refused(history, made, witnessed) == ""
    with History(made.history, create=False) as back:
        assert refused(back, made) == ""
        assert "witnessed head" in refused(back, made, witnessed)


@pytest.fixture(scope="module")
def served(postgresql: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Made, str]]:
    """The same on PostgreSQL: what was made, and the name of its database."""
    folder, name = tmp_path_factory.mktemp("insiders"), f"insiders_{secrets.token_hex(8)}"
    address = database(postgresql, name)

    def backup() -> None:
        with psycopg.connect(address) as connection:
            connection.execute("CREATE SCHEMA old")
            for table in TABLES:
                connection.execute(
                    sql.SQL("CREATE TABLE old.{0} AS TABLE rescind_main.{0}").format(sql.Identifier(table))
                )

    administer(postgresql, f"CREATE DATABASE {name}")
    with History(address, checkpoints=str(folder), secret=f"{folder}.secret") as history:
        certificate, heads = forgotten(history, backup)
    yield Made(folder, folder, certificate, heads), name
    administer(postgresql, f"DROP DATABASE {name} WITH (FORCE)")


def database(address: str, name: str) -> str:
    return make_url(address).set(database=name).render_as_string(hide_password=False)


def administer(address: str, statement: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("statement", ["", *OF_POSTGRESQL.values()], ids=["none", *OF_POSTGRESQL])
def test_an_edit_on_postgresql_is_noticed(
    statement: str, served: tuple[Made, str], postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, original = served
    name = f"{original}_edited"
    administer(postgresql, f"CREATE DATABASE {name} TEMPLATE {original}")
    address = database(postgresql, name)
    monkeypatch.setenv("RESCIND_CHECKPOINTS", str(made.history))
    monkeypatch.setenv("RESCIND_SECRET", f"{made.history}.secret")
    try:
        with psycopg.connect(address) as connection:
            connection.execute(f"SET search_path TO rescind_main; {statement}".encode())
        assert bool(told(address)) is bool(statement)
        with History(
            address, checkpoints=str(made.history), create=False, secret=f"{made.history}.secret"
        ) as history:
            assert bool(refused(history, made)) is bool(statement)
    finally:
        administer(postgresql, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("capacity", [1, 4, 5])
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("goal", [None, Goal(Budget(5.0, 1e-5), 0.5)])
def test_an_honest_history_keeps_what_has_to_be_kept(goal: Goal | None, public: bool, capacity: int) -> None:
    """Restarts from anywhere, erasures of both levels and training on between them: nothing is missed."""
    run = everybody(6, public_schedule=public)
    with History.in_memory() as history:
        federation = Revocable(history, run, capacity=capacity, goal=goal, scored=False)
        for left, (method, level) in enumerate(
            [
                (Sifu(), ErasureLevel.OUTPUT),
                (Last(), ErasureLevel.PURGE),
                (Scratch(), ErasureLevel.OUTPUT),
                (Sifu(), ErasureLevel.PURGE),
            ]
        ):
            for rounds in (3, 6, 7):
                federation.train(Rounds(rounds))
                assert history.integrity.verify() == []
            history.requests.ask([f"clinic-{left}"], Budget(5.0, 1e-5))
            federation.forget(method, Rounds(2), level=level)
            assert history.integrity.verify() == []
