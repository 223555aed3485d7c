"""The desk against whoever means harm, and against what breaks around it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import Request

from rescind import Exact, History, Revocable, Rounds, Scratch
from rescind.certificates.approvals import state_approval
from rescind.certificates.envelope import LONGEST, read_statement, sign
from rescind.certificates.keys import load_signer
from rescind.certificates.predicate import Statement, name_type
from rescind.desk.board import Reader
from rescind.desk.guard import Guard
from rescind.desk.logins import Role, add_login, find_login, read_logins
from rescind.history.participants import blind_name
from tests.builders import BUDGET, append_entry, said
from tests.desk.conftest import Office, engine, wait_for

PHRASE = "correct horse battery"


@pytest.fixture
def officer(office: Office, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a key for signing."""
    monkeypatch.setenv("RESCIND_PASSPHRASE", PHRASE)
    assert said("key", "new", office.folder / "officer.key").exit_code == 0
    return office.folder / "officer.key"


def request_of(**headers: str) -> Request:
    """Return a request of this site's own page."""
    told = {"origin": "http://here", "host": "here"} | headers
    return Request({"type": "http", "headers": [(name.encode(), value.encode()) for name, value in told.items()]})


def sign_in(guard: Guard, token: str) -> str:
    session = guard.sign_in(request_of(), token)
    assert session is not None
    return session


# What is shown, whatever else is wrong


def look_often(office: Office, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("rescind.desk.board._EVERY", 0.02)
    monkeypatch.setattr("rescind.desk.board._SPARE", 0.0)
    office.desk.reader.start()
    return office.desk.reader


def test_the_desk_reads_on_once_a_damaged_database_is_restored(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, ledger = look_often(office, monkeypatch), office.folder / "history" / "ledger.sqlite"
    whole = ledger.read_bytes()
    with caplog.at_level("WARNING", "rescind"):
        ledger.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        wait_for(lambda: reader.problem)
        sleep(0.2)
    # Once, not at every look.
    assert len(caplog.records) <= 2
    ledger.write_bytes(whole)
    wait_for(lambda: not reader.problem)
    reader.stop()


def test_a_long_look_is_soon_followed_by_another(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    moment, rests = [1000.0], list[float]()
    monkeypatch.setattr("rescind.desk.board.monotonic", lambda: moment[0])

    class Ended:
        def wait(self, rest: float) -> bool:
            rests.append(rest)
            moment[0] += rest
            assert reader.problem == ""
            return len(rests) > 3

    def examine(_: object) -> list[Any]:
        moment[0] += 60
        return []

    monkeypatch.setattr("rescind.desk.board.examine_history", examine)
    monkeypatch.setattr("rescind.desk.board._HEALTH_EVERY", 0.0)
    reader = Reader(office.open)
    reader._ended = Ended()  # type: ignore[assignment]
    reader.refresh()
    reader._go_on()
    assert max(rests) < 300


def test_a_file_of_accuracies_that_is_no_such_file_is_said(office: Office) -> None:
    reader, file = office.desk.reader, office.folder / "accuracies.jsonl"
    reader.accuracies = file
    file.write_text("[" * 100_000)
    reader.refresh()
    assert "recursion" in reader.problem
    file.unlink()
    reader.refresh()
    assert reader.problem == ""


# The folder with certificates, into which others write


@pytest.fixture
def certified(office: Office, officer: Path) -> Path:
    """Return the certificate of request 1."""
    file = office.folder / "certificates" / "certificate.json"
    assert said("certify", office.folder / "history", 1, "--key", officer, "-o", file).exit_code == 0
    office.desk.reader.refresh()
    return file


@pytest.mark.parametrize("kind", ["a link to nowhere", "a link to itself", "a pipe", "a folder", "a device"])
def test_what_is_no_file_in_the_folder_keeps_nobody_from_reading(office: Office, certified: Path, kind: str) -> None:
    other = office.folder / "certificates" / "other.json"
    match kind:
        case "a link to nowhere":
            other.symlink_to(office.folder / "nowhere")
        case "a link to itself":
            other.symlink_to(other)
        case "a pipe":
            os.mkfifo(other)
        case "a folder":
            other.mkdir()
        case _:
            other.symlink_to("/dev/zero")
    looking = Thread(target=office.desk.reader.refresh, daemon=True)
    looking.start()
    looking.join(20)
    assert not looking.is_alive()
    assert office.desk.reader.problem == ""
    assert office.ask(Role.READ, "GET", "/api/v1/requests/1").json()["certified"] is True


def as_report(statement: Statement) -> Statement:
    """Return a certificate's statement as that of a report, of which nothing is proven."""
    predicate = statement.predicate.model_copy(update={"mode": "heuristic"})
    return statement.model_copy(update={"predicate": predicate, "predicate_type": name_type(predicate)})


def test_a_file_that_came_in_place_of_a_certificate_is_given_to_nobody(office: Office, certified: Path) -> None:
    salt = {"clinic-1": "0" * 64}
    own = office.desk.reader.board
    assert own is not None
    forgotten = {1: frozenset({blind_name(bytes(32), "clinic-1")})}
    office.desk.reader.board = replace(own, forgotten=forgotten)
    receipt = json.dumps({"run": own.overview.run, "request": 1, "called": "clinic-1", "names": salt})
    whole = certified.read_bytes()
    assert office.ask(None, "POST", "/api/v1/receipt", content=receipt).json()["certificate"].encode() == whole
    statement, signer = read_statement(Statement, whole), load_signer(office.folder / "officer.key", PHRASE)
    elsewhere = statement.predicate.model_copy(update={"run": "0" * 16})
    later = statement.predicate.model_copy(update={"request": 2})
    others = [
        sign(statement.model_copy(update={"predicate": elsewhere}), [signer]),
        sign(statement.model_copy(update={"predicate": later}), [signer]),
        sign(as_report(statement), [signer]),
        whole + b" " * LONGEST,
        b"\xff",
    ]
    for other in others:
        certified.write_bytes(other)
        assert office.ask(Role.READ, "GET", "/api/v1/requests/1/certificate").status_code == 404
        assert office.ask(None, "POST", "/leaver/certificate", data={"receipt": receipt}).status_code == 404
        # How its request stands it is told all the same.
        told = office.ask(None, "POST", "/api/v1/receipt", content=receipt).json()
        assert (told["state"], told["certificate"]) == ("served", None)


def test_a_signed_report_that_is_no_certificate_is_not_called_one(office: Office, certified: Path) -> None:
    statement = read_statement(Statement, certified.read_bytes())
    signer = load_signer(office.folder / "officer.key", PHRASE)
    certified.write_bytes(sign(as_report(statement), [signer]))
    office.desk.reader.refresh()
    assert office.ask(Role.READ, "GET", "/api/v1/requests/1").json()["certified"] is False


# Strangers, logins and sessions


def test_a_stranger_is_not_told_where_things_are(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    (office.folder / "history").rename(office.folder / "moved")
    office.desk.reader.board = None
    office.desk.reader.refresh()
    assert str(office.folder) in office.desk.reader.problem
    answers = [office.ask(None, "POST", "/api/v1/receipt", content="{}")]
    for content, mode in (("{", 0o600), ("[]", 0o644)):
        office.desk.guard.file.write_text(content)
        office.desk.guard.file.chmod(mode)
        answers += [
            office.ask(None, "POST", "/login", data={"token": "x"}, headers={"origin": office.site}),
            office.ask(Role.READ, "GET", "/api/v1/overview"),
        ]
    assert {answer.status_code for answer in answers} == {503}
    assert not [answer.text for answer in answers if str(office.folder) in answer.text]
    # Its operator is.
    assert str(office.desk.guard.file) in caplog.text


def test_a_login_that_is_edited_away_is_out_at_once(office: Office) -> None:
    file = office.desk.guard.file
    before = file.stat()
    assert office.ask(Role.READ, "GET", "/api/v1/overview").status_code == 200
    file.write_text(json.dumps([login for login in json.loads(file.read_text()) if login["role"] != "read"]))
    # Within one tick of a coarse clock.
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert office.ask(Role.READ, "GET", "/api/v1/overview").status_code == 401
    assert office.ask(Role.OPERATE, "GET", "/api/v1/overview").status_code == 200


def test_who_signs_in_without_end_signs_nobody_else_out(office: Office) -> None:
    other, guard = office.signed_in(Role.OPERATE), office.desk.guard
    mine = [sign_in(guard, office.tokens[Role.READ]) for _ in range(1100)]
    assert other.get("/").status_code == 200
    assert guard.identify(request_of(cookie=f"rescind-desk={mine[0]}")) is None
    assert guard.identify(request_of(cookie=f"rescind-desk={mine[-1]}")) is not None


def test_sessions_that_begin_and_end_at_once_do_so(office: Office) -> None:
    guard, wrong = office.desk.guard, list[object]()

    def come_and_go(token: str) -> None:
        try:
            for _ in range(40):
                cookie = f"rescind-desk={sign_in(guard, token)}"
                wrong.extend([] if guard.identify(request_of(cookie=cookie)) else ["signed out by another"])
                guard.sign_out(request_of(cookie=cookie))
                wrong.extend(["not signed out"] if guard.identify(request_of(cookie=cookie)) else [])
        except RuntimeError as error:
            wrong.append(error)

    may_read = [office.tokens[role] for role in (Role.READ, Role.APPROVE, Role.OPERATE)]
    for _ in range(200):
        sign_in(guard, office.tokens[Role.READ])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        visitors = [Thread(target=come_and_go, args=[token]) for token in may_read]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_a_cookie_counts_with_its_own_origin_alone_whatever_else_is_sent(office: Office) -> None:
    browser, before = office.signed_in(Role.OPERATE), office.journal()
    del browser.headers["origin"]
    answer = browser.post("/api/v1/requests/3/withdraw", json={}, headers={"authorization": ""})
    assert answer.status_code == 403
    assert office.journal() == before


def test_a_login_that_is_removed_stays_so_whoever_adds_others_meanwhile(tmp_path: Path) -> None:
    file, begin = tmp_path / "history.desk", tmp_path / "begin"
    for at in range(30):
        add_login(file, f"old {at}", Role.READ)
    code = """if True:
        import sys
        from pathlib import Path
        from rescind.desk.logins import Role, add_login, remove_login
        file, begin = map(Path, sys.argv[1:3])
        print(flush=True)
        while not begin.exists():
            pass
        for at in range(30):
            remove_login(file, f"old {at}") if sys.argv[3] == "remove" else add_login(file, f"new {at}", Role.READ)
    """
    command = [sys.executable, "-c", code, file, begin]
    both = [subprocess.Popen([*command, what], stdout=subprocess.PIPE) for what in ("remove", "add")]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline()
    begin.touch()
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    assert [login.name for login in read_logins(file)] == [f"new {at}" for at in range(30)]


def test_a_full_disk_leaves_the_logins_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "history.desk"
    token = add_login(file, "A. Reader", Role.READ)
    code = (
        "import resource, sys; from pathlib import Path; from rescind.desk.logins import *;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); add_login(Path(sys.argv[1]), 'B', Role.READ)"
    )
    assert subprocess.run([sys.executable, "-c", code, file], capture_output=True, check=False).returncode
    assert find_login(read_logins(file), token) is not None


# What is no fit request


def connect(office: Office) -> socket.socket:
    address = urlsplit(office.site)
    return socket.create_connection((address.hostname, address.port), timeout=20)


def test_headers_end(office: Office) -> None:
    with connect(office) as stranger:
        stranger.sendall(b"GET /health HTTP/1.1\r\nhost: here\r\n")
        try:
            for at in range(200):
                stranger.sendall(b"a%d: %s\r\n" % (at, b"b" * 10_000))
            answer = stranger.recv(1000)
        except ConnectionError:
            answer = b""
    assert answer == b"" or b" 4" in answer.splitlines()[0]


@pytest.mark.parametrize("path", ["/login", "/leaver", "/api/v1/receipt", "/api/v1/requests", "/requests/3/extend"])
def test_who_hangs_up_in_the_middle_leaves_no_traceback(
    office: Office, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = logging.getLogger("uvicorn.error")
    served.addHandler(caplog.handler)
    try:
        with connect(office) as stranger:
            role = Role.ASK if path.endswith("requests") else Role.OPERATE
            start = f"POST {path} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {office.tokens[role]}\r\n"
            stranger.sendall(start.encode() + b"content-length: 100\r\n\r\nreceipt=")
            sleep(0.2)
        sleep(0.5)
    finally:
        served.removeHandler(caplog.handler)
    assert caplog.text == ""
    assert office.ask(None, "GET", "/health").status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"days": NaN, "reason": "x"}', "days"),
        (b'{"days": 1e400, "reason": "x"}', "days"),
        (b'{"days": 3, "reason": "\\ud800"}', "reason"),
        (b'{"days": 3, "reason": "x", "\\ud800": 1}', "body"),
        (b'{"days": 3, "reason": "x", "' + b"y" * 50_000 + b'": 1}', "Extra"),
        (b'{"days": ' + b"9" * 4000 + b', "reason": "x"}', "days"),
        (b'{"days": ' + b"[" * 500 + b"]" * 500 + b"}", "days"),
        (b"NaN", "body"),
        (b"", "body"),
        (b"[" * 20_000, "parsing"),
        (b'{"days": ' + b"9" * 5000 + b"}", "parsing"),
        (b"\xff", "parsing"),
        (b'{"days": 3', "JSON"),
    ],
)
def test_what_is_wrong_with_a_body_is_told_in_a_sentence(office: Office, content: bytes, said: str) -> None:
    before, kind = office.journal(), {"content-type": "application/json"}
    answer = office.ask(Role.OPERATE, "POST", "/api/v1/requests/3/extend", content=content, headers=kind)
    assert answer.status_code in (400, 422)
    assert said in answer.json()["detail"]
    assert len(answer.content) < 2000
    assert office.journal() == before


def test_a_page_that_is_asked_for_by_no_number_is_a_page(office: Office) -> None:
    answer = office.signed_in(Role.READ).get("/requests/0")
    assert answer.status_code == 422
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.parametrize("host", [b"[", b"[::1", b"a/b", b"@", b":x", b"", b"\xff"])
@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/v1/overview", "/login"])
def test_a_host_that_is_none_gets_an_answer(office: Office, host: bytes, path: str) -> None:
    with connect(office) as stranger:
        for method in (b"GET", b"POST"):
            stranger.sendall(b"%s %s HTTP/1.1\r\nhost: %s\r\n\r\n" % (method, path.encode(), host))
            assert stranger.recv(1 << 16).split()[1] in (b"200", b"303", b"400", b"401", b"403", b"404", b"405")


# What is told


def test_models_that_knew_who_left_are_the_operator_s(office: Office) -> None:
    file = office.folder / "accuracies.jsonl"
    file.write_text("".join(f'{{"model": "{model}", "test": 0.5}}\n' for model in ("0.1", "0.3", "1.1", "1.2")))
    office.desk.reader.accuracies = file
    office.desk.reader.refresh()
    for role, models in ((Role.READ, 2), (Role.APPROVE, 2), (Role.OPERATE, 4)):
        assert len(office.ask(role, "GET", "/api/v1/overview").json()["accuracies"]) == models
        assert ("training went back" in office.ask(role, "GET", "/").text) is (role is Role.OPERATE)


def test_an_approval_is_shown_at_each_request_of_its_plan_and_stays_when_another_plan_comes(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation = Revocable(history, engine(tmp_path / "leaver.key"))
        federation.train(Rounds(2))
        for name in ("clinic-1", "clinic-2"):
            history.requests.ask([name], BUDGET)
        federation.plan(Exact(), 1, 2)
        history.requests.approve(1, "A. Officer")
        federation.plan(Scratch(), 1)
        history.requests.approve(1, "B. Officer")
    reader = Reader(lambda: History(tmp_path / "history", create=False))
    reader.refresh()
    assert reader.board is not None
    approved = [[one.what for one in shown.steps if "approved" in one.what] for shown in reader.board.requests]
    both = "approved by A. Officer, not signed"
    assert approved == [[both, "approved by B. Officer, not signed"], [both]]


def test_what_is_said_later_of_an_approval_does_not_make_it_a_login_s(office: Office) -> None:
    with office.open() as history:
        history.requests.approve(3, "A. Nobody")
        approval = history.timeline.last
        history.requests.extend(3, 1, "many at once")
        append_entry(history, "login", {"entry": approval, "login": "T. Approve", "role": "approve"})
        stated = state_approval(history.timeline, history.identifier, 3)
    assert stated is not None
    assert stated.login is None
    assert "T. Approve" not in office.signed_in(Role.READ).get("/requests/3").text
