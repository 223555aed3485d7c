"""What is particular to the two databases: files, versions, processes that die, bytes that have to be gone."""

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import uuid
from contextlib import closing, contextmanager

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError

from rescind.core.edges import ModelId
from rescind.errors import (
    HistoryError,
    IncompleteHistoryError,
    LockedError,
    NoHistoryError,
    SchemaVersionError,
    StillReadError,
)
from rescind.ledger import databases, schema
from rescind.ledger.commitments import broken_links
from rescind.ledger.records import Span
from rescind.ledger.schema import SCHEMA_VERSION
from rescind.ledger.sql import SqlLedger
from tests.builders import server
from tests.history.ledger_suite import NOW, a_round, a_stretch, digest, group, readable


class InAFile:
    """A place for a run in SQLite, and what a test needs to tamper with it."""

    def __init__(self, folder):
        self.path, self.secret = folder / "run.db", folder / "secret"
        opened = f"SqlLedger.sqlite(Path({str(self.path)!r}), Path({str(self.secret)!r}))"
        self.source = f"from pathlib import Path; ledger = {opened}"

    def open(self, create=False):
        return SqlLedger.sqlite(self.path, self.secret, create=create)

    @contextmanager
    def by_hand(self):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            yield connection.execute

    def holds(self, canary):
        files = [self.path, *self.path.parent.glob("run.db-*"), *self.path.parent.glob("run.db.*")]
        return any(canary in file.read_bytes() for file in files)


class OnAServer:
    """A place for a run in PostgreSQL, and what a test needs to tamper with it."""

    def __init__(self, address, folder):
        self.address, self.run, self.secret = address, f"test_{uuid.uuid4().hex}", folder / "secret"
        opened = f"SqlLedger.postgresql({address!r}, {self.run!r}, Path({str(self.secret)!r}))"
        self.source = f"from pathlib import Path; ledger = {opened}"

    def open(self, create=False):
        return SqlLedger.postgresql(self.address, self.run, self.secret, create=create)

    @contextmanager
    def by_hand(self):
        engine = create_engine(make_url(self.address).set(drivername="postgresql+psycopg"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f'SET search_path TO "rescind_{self.run}"')
            yield connection.exec_driver_sql
        engine.dispose()

    def end_session_of(self, ledger):
        (pid,) = ledger._writer.exec_driver_sql("SELECT pg_backend_pid()").one()
        ledger._writer.rollback()
        with self.by_hand() as execute:
            execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))

    def holds(self, canary):
        found = """
            WITH files AS (
                SELECT 'base/' || folder || '/' || pg_ls_dir('base/' || folder) AS name
                FROM pg_ls_dir('base') AS folder
            )
            SELECT count(*) FROM files
            WHERE position(%s::bytea IN pg_read_binary_file(name, 0, 1000000000, true)) > 0
        """
        with self.by_hand() as execute:
            execute("CHECKPOINT")
            return execute(found, (canary,)).scalar() > 0


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request, tmp_path):
    return (
        InAFile(tmp_path) if request.param == "sqlite" else OnAServer(request.getfixturevalue("postgresql"), tmp_path)
    )


@pytest.fixture
def on_server(postgresql, tmp_path):
    return OnAServer(postgresql, tmp_path)


@pytest.fixture
def in_file(tmp_path):
    return InAFile(tmp_path)


@contextmanager
def another_process(home, code):
    """Run code with ``ledger`` open in a process of its own, once it has said that it is ready."""
    lines = ["import sys", "from rescind.ledger.sql import SqlLedger", home.source, code]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


# Creation and opening


def test_all_files_are_private_whatever_the_umask(in_file):
    before = os.umask(0)
    try:
        with closing(in_file.open(create=True)) as ledger, ledger.writing():
            ledger.append("kind", {}, NOW)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in in_file.path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["secret", "run.db", "run.db-wal", "run.db-shm", "run.db.lock"], 0o600)


def test_the_file_is_as_durable_and_forgetful_as_promised(in_file):
    with closing(in_file.open(create=True)) as ledger, ledger._connected() as connection:
        asked = ("journal_mode", "synchronous", "secure_delete")
        assert [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked] == ["wal", 2, 1]


def test_commits_to_the_server_are_durable(on_server):
    with closing(on_server.open(create=True)) as ledger, ledger._connected() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


@pytest.mark.parametrize(("version", "advice"), [(SCHEMA_VERSION + 1, "newer rescind"), (1, "rescind that made it")])
def test_another_schema_is_refused_with_advice(home, version, advice):
    home.open(create=True).close()
    with home.by_hand() as execute:
        execute(f"UPDATE run SET schema_version = {version}")  # noqa: S608
    with pytest.raises(SchemaVersionError, match=rf"schema {version}.*{advice}"):
        home.open()


def test_another_schema_is_told_even_when_its_tables_differ(home):
    home.open(create=True).close()
    with home.by_hand() as execute:
        execute("UPDATE run SET schema_version = 77")
        execute("DROP TABLE stretch")
    with pytest.raises(SchemaVersionError):
        home.open()


@pytest.mark.parametrize("damage", ["DROP TABLE journal", "DROP TABLE run", "DELETE FROM run"])
def test_half_a_history_is_refused(home, damage):
    home.open(create=True).close()
    with home.by_hand() as execute:
        execute(damage)
    with pytest.raises(IncompleteHistoryError, match=rf"{damage.split()[-1]}.*create it again"):
        home.open()


def test_nothing_is_no_history(home):
    with pytest.raises(NoHistoryError, match="no such"):
        home.open()
    with pytest.raises(NoHistoryError):
        home.open()


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"x", b"SQLite format 3\0" + bytes(200)])
def test_a_file_of_something_else_is_neither_opened_nor_overwritten(in_file, content):
    in_file.path.write_bytes(content)
    with pytest.raises(NoHistoryError, match="not a database"):
        in_file.open()
    with pytest.raises(FileExistsError, match="something else"):
        in_file.open(create=True)
    assert in_file.path.read_bytes() == content


def test_a_folder_is_no_history(in_file):
    in_file.path.mkdir()
    with pytest.raises(NoHistoryError):
        in_file.open()


@pytest.mark.parametrize("table", ["theirs (x int)", "run (x int)"])
def test_a_database_of_something_else_is_refused_and_left_alone(home, table):
    if isinstance(home, OnAServer):
        with home.by_hand() as execute:
            execute(f'CREATE SCHEMA "rescind_{home.run}"')
    with home.by_hand() as execute:
        execute(f"CREATE TABLE {table}")
    before = home.path.read_bytes() if isinstance(home, InAFile) else b""
    with pytest.raises(NoHistoryError, match="something else"):
        home.open()
    assert (home.path.read_bytes() if isinstance(home, InAFile) else b"") == before
    with pytest.raises(FileExistsError, match="tables"):
        home.open(create=True)


def test_a_history_is_not_made_twice(home):
    with closing(home.open(create=True)) as ledger:
        ledger.append("kind", {}, NOW)
        with pytest.raises(FileExistsError, match="a history"):
            home.open(create=True)
        assert len(list(ledger.entries())) == 1


def test_a_creation_that_is_cut_off_leaves_nothing_and_can_be_done_again(home, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(schema, "insert", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            home.open(create=True)
    with pytest.raises(IncompleteHistoryError if isinstance(home, InAFile) else NoHistoryError):
        home.open()
    with closing(home.open(create=True)) as ledger:
        assert list(ledger.entries()) == []


def test_a_schema_that_an_administrator_made_is_filled(on_server):
    with on_server.by_hand() as execute:
        execute(f'CREATE SCHEMA "rescind_{on_server.run}"')
    with pytest.raises(IncompleteHistoryError):
        on_server.open()
    on_server.open(create=True).close()
    on_server.open().close()


def test_a_copy_that_sqlites_tools_made_is_a_history(in_file, tmp_path):
    with closing(in_file.open(create=True)) as ledger:
        ledger.append("kind", {}, NOW)
        copy = tmp_path / "copy.db"
        with in_file.by_hand() as execute:
            execute("VACUUM INTO ?", (str(copy),))
        with closing(SqlLedger.sqlite(copy, None)) as copied, copied._connected() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert copied.head() == ledger.head()


@pytest.mark.parametrize("name", ["a b?c#d%20e.db", ":memory:", "file:x?mode=memory", "é病.db"])
def test_paths_are_taken_as_they_are(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    SqlLedger.sqlite(type(tmp_path)(name), tmp_path / "secret", create=True).close()
    assert {file.name for file in tmp_path.iterdir()} == {name, "secret"}


def test_a_closed_ledger_says_so(home):
    ledger = home.open(create=True)
    ledger.close()
    for use in (ledger.head, ledger.compact, lambda: ledger.append("kind", {}, NOW), lambda: ledger.erase_rounds([])):
        with pytest.raises(ValueError, match="closed"):
            use()


# Addresses


@pytest.mark.parametrize("run", ["", "A", "a-b", "a" * 51, "ü", 'x"; DROP SCHEMA public; --', "a\n"])
def test_a_run_name_that_could_be_anything_else_is_refused(postgresql, run):
    with pytest.raises(ValueError, match="not a valid name for a run"):
        SqlLedger.postgresql(postgresql, run, None, create=True)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_schemes_are_taken(on_server, scheme):
    on_server.address = re.sub(r"^[^:]+", scheme, on_server.address)
    on_server.open(create=True).close()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:hunter2@127.0.0.1:1/db",
        "postgresql://user@127.0.0.1:1/db?password=hunter2",
        "mysql://user:hunter2@127.0.0.1/db",
        "postgresql://user:hunter2@127.0.0.1:port/db",
        "hunter2",
    ],
)
def test_passwords_stay_out_of_messages(address):
    with pytest.raises((HistoryError, ValueError)) as caught:
        SqlLedger.postgresql(address, "x", None)
    errors, error = [], caught.value
    while error is not None:
        errors.append(f"{error} {error!r}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "hunter2" not in " ".join(errors)


def test_values_stay_out_of_messages(home):
    with closing(home.open(create=True)) as ledger:
        with home.by_hand() as execute:
            execute("DROP TABLE suppression")
        with pytest.raises(DBAPIError) as caught:
            ledger.register(["confidential"], NOW)
        assert "confidential" not in str(caught.value)


def test_an_encoding_that_lacks_letters_is_refused(postgresql, tmp_path):
    name = f"latin_{uuid.uuid4().hex}"
    engine = create_engine(make_url(postgresql).set(drivername="postgresql+psycopg"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            address = make_url(postgresql).set(database=name).render_as_string(hide_password=False)
            with pytest.raises(ValueError, match=r"LATIN1.*UTF8"):
                SqlLedger.postgresql(address, "x", tmp_path / "secret", create=True)
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
    engine.dispose()


# Several at once

APPENDING = """
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    ledger.append("kind", {"number": number}, "now")
    ledger.register([f"{number}", sys.argv[0] + str(number % 7)], "now")
ledger.close()
"""


def test_two_processes_append_at_once_and_both_land(home):
    with closing(home.open(create=True)) as ledger:
        with another_process(home, APPENDING) as first, another_process(home, APPENDING) as second:
            for process in (first, second):
                process.stdin.write(b"go\n")
                process.stdin.flush()
            assert (first.wait(60), second.wait(60)) == (0, 0)
        spans = [(entry.body["first"], entry.body["last"]) for entry in ledger.entries("registration")]
        assert [number for first, last in spans for number in range(first, last + 1)] == list(range(1, 48))
        assert [entry.sequence for entry in ledger.entries()] == list(range(1, 81 + len(spans)))
        assert broken_links(ledger.entries()) == []
        assert sorted(ledger.identities().values()) == list(range(1, 48))


def test_threads_share_a_ledger(home):
    with closing(home.open(create=True)) as ledger, ledger.writing():
        ledger.start_branch(0, digest("m"), {}, NOW)

        def work():
            for number in range(10):
                ledger.append("kind", {"number": number}, NOW)
                ledger.erase_rounds([Span(0, number + 1, number + 1)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(1, 6):
            ledger.commit_round(a_round(ModelId(0, number), []), NOW)
        for thread in threads:
            thread.join()
        assert [entry.sequence for entry in ledger.entries()] == list(range(1, 47))
        assert broken_links(ledger.entries()) == []


HOLDING = """
with ledger.writing():
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_holder_is_named_and_its_death_frees_the_run(home):
    with closing(home.open(create=True)) as ledger:
        with another_process(home, HOLDING) as process:
            with (
                pytest.raises(LockedError, match=rf"{re.escape(os.uname().nodename)}\b.*") as caught,
                ledger.writing(),
            ):
                pass
            assert re.search(rf"\b{process.pid}\b", caught.value.holder)
            with pytest.raises(LockedError):
                ledger.start_branch(0, digest("m"), {}, NOW)
            assert ledger.append("request", {}, NOW).sequence == 1
            process.send_signal(signal.SIGKILL)
            process.wait()
            _held_soon(ledger)
        assert [entry.kind for entry in ledger.entries()] == ["request", "branch"]


def _held_soon(ledger):
    """Start a branch once the lock is free: PostgreSQL notices a moment later that a client has died."""
    for _ in range(200):
        try:
            ledger.start_branch(0, digest("m"), {}, NOW)
        except LockedError:
            threading.Event().wait(0.05)
        else:
            return
    pytest.fail("the run is still held by a dead process")


def test_a_writer_that_lost_its_connection_does_not_go_on_without_its_lock(on_server):
    with closing(on_server.open(create=True)) as ledger:
        with ledger.writing():
            ledger.start_branch(0, digest("m"), {}, NOW)
            on_server.end_session_of(ledger)
            with pytest.raises(DBAPIError):
                ledger.commit_round(a_round(ModelId(0, 1), []), NOW)
            for _ in range(2):
                with pytest.raises(HistoryError, match="lost"):
                    ledger.commit_round(a_round(ModelId(0, 1), []), NOW)
        assert ledger.last_round(0) == 0
        with ledger.writing():
            on_server.end_session_of(ledger)
        ledger.commit_round(a_round(ModelId(0, 1), []), NOW)
        assert ledger.last_round(0) == 1


def test_a_lock_file_that_says_nothing_yet_is_still_a_lock(in_file):
    with closing(in_file.open(create=True)) as ledger, ledger.writing():
        lock = in_file.path.with_name("run.db.lock")
        said = json.loads(lock.read_text())
        assert said["process"] == os.getpid()
        assert set(said) == {"process", "host", "user", "since", "command"}
        for content in ("", "{", "[]", "{}", "null", "[" * 4000):
            lock.write_text(content)
            with pytest.raises(LockedError, match="another process"), ledger.writing():
                pass


FORKING = """
import os, signal
with ledger.writing():
    lasting = os.fork()
    if not lasting:
        os.close(1)
        signal.alarm(60)
        signal.pause()
    ending = os.fork()
    if not ending:
        sys.exit()
    os.waitpid(ending, 0)
    print("ready", flush=True)
    sys.stdin.readline()
print("done", flush=True)
sys.stdin.readline()
os.kill(lasting, signal.SIGKILL)
"""


def test_what_a_writer_forks_neither_ends_its_lock_nor_keeps_it(in_file):
    with closing(in_file.open(create=True)) as ledger, another_process(in_file, FORKING) as process:
        with pytest.raises(LockedError, match=f"process {process.pid} on"), ledger.writing():
            pass
        process.stdin.write(b"\n")
        process.stdin.flush()
        try:
            assert process.stdout.readline() == b"done\n"
            with ledger.writing():
                pass
        finally:
            process.communicate(b"\n")


def test_a_link_to_the_database_in_another_folder_leads_to_the_same_lock(in_file, tmp_path):
    link = tmp_path / "elsewhere" / "run.db"
    link.parent.mkdir()
    with closing(in_file.open(create=True)) as ledger, ledger.writing():
        link.symlink_to(in_file.path)
        with (
            closing(SqlLedger.sqlite(link, in_file.secret)) as other,
            pytest.raises(LockedError, match=f"process {os.getpid()} on"),
            other.writing(),
        ):
            pass


@pytest.mark.parametrize("step", ["_insert_round", "_release"])
def test_a_round_that_fails_midway_leaves_nothing(home, monkeypatch, step):
    with closing(home.open(create=True)) as ledger:
        ledger.register(["ann", "bob"], NOW)
        ledger.start_branch(0, digest("m"), {}, NOW)
        before = readable(ledger)
        with monkeypatch.context() as patch:
            patch.setattr(SqlLedger, step, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ledger.commit_round(a_round(ModelId(0, 1), [1, 2]), NOW, (), {1: digest("u")})
        assert readable(ledger) == before
        ledger.commit_round(a_round(ModelId(0, 1), [1, 2]), NOW)


KILLED = """
from tests.history.ledger_suite import a_round, digest, NOW, ModelId
ledger.register(["ann", "bob"], NOW)
ledger.start_branch(0, digest("m"), {}, NOW)
def wait(*_):
    print("ready", flush=True)
    sys.stdin.readline()
SqlLedger._release = wait
ledger.commit_round(a_round(ModelId(0, 1), [1, 2]), NOW)
"""


def test_a_round_whose_process_is_killed_midway_leaves_nothing(home):
    home.open(create=True).close()
    with another_process(home, KILLED) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with closing(home.open()) as ledger:
        assert (ledger.last_round(0), list(ledger.rounds(Span(0, 0, 9)))) == (0, [])
        assert [entry.kind for entry in ledger.entries()] == ["registration", "branch"]
        assert ledger.rounds_of(group(1, 2)) == []


def test_a_reader_sees_one_state_while_another_erases(home):
    with closing(home.open(create=True)) as ledger, closing(home.open()) as other:
        ledger.start_branch(0, digest("m"), {}, NOW)
        for number in range(1, 41):
            ledger.commit_round(a_round(ModelId(0, number), []), NOW)
        reading = other.rounds(Span(0, 1, 40))
        next(reading)
        ledger.erase_rounds([Span(0, 1, 40)])
        assert len(list(reading)) == 39
        assert list(other.rounds(Span(0, 1, 40))) == []


# Erased bytes


def test_a_snapshot_is_of_one_moment(home):
    reader, writer = home.open(create=True), home.open()
    writer.append("before", {}, NOW)
    with reader.snapshot():
        entries = list(reader.entries())
        writer.append("after", {}, NOW)
        writer.register(["ann"], NOW)
        assert list(reader.entries()) == entries
        assert reader.identities() == {}
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.extend(reader.entries()))
        thread.start()
        thread.join()
        assert len(elsewhere) == 3
    assert len(list(reader.entries())) == 3
    assert reader.identities() == {"ann": 1}
    reader.close()
    writer.close()


def test_statistics_copy_no_values(on_server):
    with closing(on_server.open(create=True)) as ledger:
        ledger.register([f"name {number}" for number in range(300)], NOW)
        ledger.start_branch(0, digest("m"), {}, NOW)
        ledger.commit_round(a_round(ModelId(0, 1), range(1, 300)), NOW)
    with on_server.by_hand() as execute:
        execute("ANALYZE")
        copied = "SELECT count(*) FROM pg_stats WHERE schemaname = 'rescind_' || %s"
        assert execute(copied, (on_server.run,)).scalar() == 0
        stored = """
            SELECT count(*), min(attstorage), max(attstorage) FROM pg_attribute
            WHERE attrelid::regclass::text IN ('round', 'stretch') AND atttypid = 'bytea'::regtype
        """
        assert tuple(execute(stored).one()) == (6, "e", "e")


def test_what_is_erased_is_in_no_row(home):
    with closing(home.open(create=True)) as ledger:
        ledger.register(["ann", "bob"], NOW)
        ledger.start_branch(0, digest("start"), {}, NOW)
        for number in range(1, 5):
            ledger.commit_round(a_round(ModelId(0, number), [1, 2]), NOW)
        ledger.keep_objects({client: digest("object", client) for client in (1, 2)}, ModelId(0, 4), NOW)
        ledger.erase_objects(group(2))
        ledger.erase_rounds([Span(0, 0, 3)], a_stretch(1, ModelId(0, 0), [1, 2]))
        ledger.erase_rounds([], superseded=[1])
        ledger.erase_identities(group(2))
    left = {"round": 1, "participation": 2, "kept": 1, "client_object": 1, "stretch": 0, "identity": 1, "client": 2}
    with home.by_hand() as execute:
        counts = {table: execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in left}  # noqa: S608
    assert counts == left


def test_erased_values_are_in_no_byte_of_the_store(home):
    with closing(home.open(create=True)) as ledger:
        names = ["canary-of-a-name-" + uuid.uuid4().hex, *(f"name {number}" for number in range(2, 400))]
        ledger.register(names, NOW)
        with ledger.writing():
            ledger.start_branch(0, digest("start"), {}, NOW)
            # One short enough to lie in its row, one that is stored out of line, and one with a matrix.
            given = [
                a_round(ModelId(0, 1), [1, 2, 3], seed=1),
                a_round(ModelId(0, 2), range(1, 400), seed=2),
                a_round(ModelId(0, 3), range(1, 60), gram=True, seed=3),
            ]
            for each in given:
                ledger.commit_round(each, NOW)
            ledger.keep_objects({1: digest("object")}, ModelId(0, 3), NOW)
            replaced, left = (
                a_stretch(1, ModelId(0, 0), range(1, 50)),
                a_stretch(1, ModelId(0, 0), range(1, 50), seed=5),
            )
            ledger.erase_rounds([], replaced)
            canaries = {
                "name": names[0].encode(),
                "key": ledger.keys(group(1))[1],
                "numbers": given[0].participants[0:1].tobytes()[8:],
                "many numbers": given[1].participants[20:21].tobytes()[8:],
                "matrix": given[2].gram[7, 7:10].tobytes(),
                "model": bytes.fromhex(given[1].model),
                "object": bytes.fromhex(digest("object")),
                "stretch": replaced.remaining["sensitivity"][5:6].tobytes(),
            }
            assert {name: home.holds(canary) for name, canary in canaries.items()} == dict.fromkeys(canaries, True)
            ledger.erase_rounds([Span(0, 1, 3)], left)
            ledger.erase_identities(group(1))
            ledger.erase_objects(group(1))
            ledger.erase_keys(group(1))
            ledger.compact()
        assert {name: home.holds(canary) for name, canary in canaries.items()} == dict.fromkeys(canaries, False)
        assert home.holds(b"name 399")
        assert home.holds(left.remaining["sensitivity"][5:6].tobytes())


def test_compacting_says_when_a_reader_is_in_the_way(home, monkeypatch):
    monkeypatch.setattr(databases, "_LOCK_TIMEOUT", 0.2)
    with closing(home.open(create=True)) as ledger, closing(home.open()) as other:
        for number in range(3):
            ledger.append("kind", {"number": number}, NOW)
        reading = other.entries()
        next(reading)
        ledger.append("kind", {}, NOW)
        with pytest.raises(StillReadError, match="when nobody reads"):
            ledger.compact()
        reading.close()
        ledger.compact()


def test_compacting_is_for_the_writer(home):
    with closing(home.open(create=True)) as ledger, closing(home.open()) as other, ledger.writing():
        with pytest.raises(LockedError):
            other.compact()
        ledger.compact()


def test_compacting_says_what_a_server_keeps(on_server):
    role = f"role_{uuid.uuid4().hex}"
    with on_server.by_hand() as execute:
        execute(f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
        execute(f"GRANT CREATE ON DATABASE {make_url(on_server.address).database} TO {role}")
    as_superuser = on_server.address
    url = make_url(on_server.address).set(username=role, password="p")  # noqa: S106
    on_server.address = url.render_as_string(hide_password=False)
    with closing(on_server.open(create=True)) as ledger:
        said = " ".join(ledger.compact())
    assert "CHECKPOINT" in said
    assert "pg_wal" in said
    assert "Backups" in said
    assert "replica" not in said
    assert "archive" not in said
    assert "log files" not in said
    on_server.address = as_superuser
    with on_server.by_hand() as execute:
        execute(f"ALTER ROLE {role} SET log_statement TO 'mod'")
        execute("SELECT pg_create_physical_replication_slot(%s)", (role,))
    try:
        on_server.address = url.render_as_string(hide_password=False)
        with closing(on_server.open()) as ledger:
            said = " ".join(ledger.compact())
        assert "log files" in said
        assert "slot" in said
    finally:
        on_server.address = as_superuser
        with on_server.by_hand() as execute:
            execute("SELECT pg_drop_replication_slot(%s)", (role,))
    with closing(on_server.open()) as ledger:
        assert "CHECKPOINT" not in " ".join(ledger.compact())


def test_who_lacks_a_grant_is_told_which_and_not_to_delete_anything(on_server):
    role, as_owner = f"role_{uuid.uuid4().hex}", on_server.address
    with closing(on_server.open(create=True)), on_server.by_hand() as execute:
        execute(f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
        url = make_url(as_owner).set(username=role, password="p")  # noqa: S106
    for grant in (
        f"USAGE ON SCHEMA rescind_{on_server.run}",
        f"SELECT ON ALL TABLES IN SCHEMA rescind_{on_server.run}",
    ):
        on_server.address = url.render_as_string(hide_password=False)
        with pytest.raises(HistoryError, match=f"GRANT {grant} TO {role}") as refused:
            on_server.open()
        assert "delete" not in str(refused.value)
        on_server.address = as_owner
        with on_server.by_hand() as execute:
            execute(f"GRANT {grant} TO {role}")
    on_server.address = url.render_as_string(hide_password=False)
    on_server.open().close()


LOGGED = {
    "log_statement": {"log_statement": "mod"},
    "log_min_duration_statement": {"log_min_duration_statement": "0"},
    "log_min_duration_sample": {"log_min_duration_sample": "0", "log_statement_sample_rate": "1"},
    "log_transaction_sample_rate": {"log_transaction_sample_rate": "1"},
    "auto_explain": {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0"},
}
NOT_LOGGED = (
    {},
    {"log_statement": "mod", "log_parameter_max_length": "0"},
    {"log_min_duration_sample": "0", "log_statement_sample_rate": "0"},
    {"session_preload_libraries": "auto_explain"},
)


@pytest.fixture(scope="module")
def logging_server():
    with server({"wal_level": "logical", "shared_preload_libraries": "pg_stat_statements"}) as address:
        yield address


def logged(address, folder, settings):
    """Register somebody under these settings; return what is said before and after erasing, and what is logged."""
    home, role, name = OnAServer(address, folder), f"role_{uuid.uuid4().hex}", f"canary-{uuid.uuid4().hex}"
    with home.by_hand() as execute:
        execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
        for setting, value in settings.items():
            execute(f"ALTER ROLE {role} SET {setting} TO '{value}'")
    home.address = make_url(address).set(username=role).render_as_string()
    with closing(home.open(create=True)) as ledger:
        ledger.register([name], NOW)
        before, after = ledger.copies(), ledger.compact()
    home.address = address
    with home.by_hand() as execute:
        return before, after, name in execute("SELECT pg_read_file('server.log')").scalar()


@pytest.mark.parametrize("setting", LOGGED)
def test_a_server_that_logs_names_is_found_before_anything_is_erased(logging_server, tmp_path, setting):
    before, after, there = logged(logging_server, tmp_path, LOGGED[setting])
    assert there
    (said,) = [each for each in before if "log files" in each]
    assert f"({setting})" in said
    assert said in after


@pytest.mark.parametrize("settings", NOT_LOGGED, ids=str)
def test_a_server_that_logs_no_names_is_not_accused(logging_server, tmp_path, settings):
    before, after, there = logged(logging_server, tmp_path, settings)
    assert not there
    assert "log files" not in " ".join([*before, *after])


def test_pgaudit_is_known_by_its_settings(logging_server, tmp_path):
    said, *_ = logged(logging_server, tmp_path, {"pgaudit.log": "write", "pgaudit.log_parameter": "on"})
    assert "(pgaudit)" in " ".join(said)
    said, *_ = logged(logging_server, tmp_path, {"pgaudit.log": "write", "pgaudit.log_parameter": "off"})
    assert "pgaudit" not in " ".join(said)


def test_statements_that_a_server_remembers_hold_no_values(logging_server, tmp_path):
    home, name = OnAServer(logging_server, tmp_path), f"canary-{uuid.uuid4().hex}"
    with home.by_hand() as execute:
        execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
    with closing(home.open(create=True)) as ledger:
        ledger.register([name], NOW)
        ledger.label({name: name}, NOW)
        ledger.erase_identities(group(1))
    with home.by_hand() as execute:
        texts = " ".join(execute("SELECT query FROM public.pg_stat_statements").scalars())
    assert "INSERT INTO identity" in texts
    assert name not in texts


def test_rows_that_are_sent_elsewhere_are_named(logging_server, tmp_path):
    home = OnAServer(logging_server, tmp_path)
    with closing(home.open(create=True)) as ledger, home.by_hand() as execute:
        assert "publications" not in " ".join(ledger.copies())
        execute(f"CREATE PUBLICATION {home.run} FOR TABLE identity")
        assert "0 logical replication slots and 1 publications" in " ".join(ledger.copies())
        execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (home.run[:60],))
        try:
            assert "1 logical replication slots and 1 publications" in " ".join(ledger.compact())
        finally:
            execute("SELECT pg_drop_replication_slot(%s)", (home.run[:60],))


# Plans


def test_look_ups_follow_the_indices(in_file):
    with closing(in_file.open(create=True)), in_file.by_hand() as execute:
        listed = "IN (SELECT value FROM json_each('[]'))"
        queries = {
            f"journal WHERE kind {listed} AND kind <> 'round'": "journal_kind",
            f"participation WHERE segment {listed} AND client {listed}": "segment=? AND client=?",
        }
        for query, expected in queries.items():
            rows = execute(f"EXPLAIN QUERY PLAN SELECT * FROM {query}")  # noqa: S608
            plan = " ".join(str(row) for row in rows)
            assert expected in plan
