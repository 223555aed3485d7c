"""Messages about requests to another system: signed, each until it has arrived, none twice, nobody's name in one."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep, time
from typing import Any

import pytest

from rescind.desk.board import Board, RequestShown
from rescind.desk.logins import Role
from rescind.desk.webhooks import Outbox, check_url, list_happenings, read_secret
from tests.builders import said
from tests.desk.conftest import Office, wait_for

SECRET = bytes(range(32))


@dataclass
class Privacy:
    """A system that takes messages, or answers with an error as long as it is told to."""

    code: int = 200
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @property
    def kinds(self) -> list[str]:
        return sorted(
            f"{body['data']['request']} {body['type']}" for body in (json.loads(sent) for _, sent in self.got)
        )


@pytest.fixture
def privacy() -> Iterator[Privacy]:
    told = Privacy()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if told.code == 200:
                told.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(told.code)
            if told.code == 302:
                self.send_header("location", f"{told.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield told
        server.shutdown()


def board_of(office: Office) -> Board:
    office.desk.reader.refresh()
    board = office.desk.reader.board
    assert board is not None
    return board


def make_outbox(office: Office, privacy: Privacy) -> Outbox:
    return Outbox(privacy.url, SECRET, office.folder / "webhooks.json")


def test_what_happens_is_told_once_and_signed_and_without_names(office: Office, privacy: Privacy) -> None:
    outbox = make_outbox(office, privacy)
    outbox.note(board_of(office))
    outbox.deliver(time())
    # What was closed before is not told of.
    assert privacy.kinds == [
        *("2 request.new", "2 request.overdue", "2 request.planned", "2 request.waiting"),
        *("3 request.new", "3 request.planned", "3 request.waiting"),
    ]
    for headers, body in privacy.got:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        own = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{own}"
        assert abs(int(headers["webhook-timestamp"]) - time()) < 60
        assert b"clinic" not in body
    with office.open() as history:
        history.requests.withdraw(3, "asked by clinic-3 by mistake")
    privacy.got.clear()
    # Another process: what was sent is in the file.
    again = make_outbox(office, privacy)
    again.note(board_of(office))
    again.deliver(time())
    assert privacy.kinds == ["3 request.withdrawn"]
    assert b"mistake" not in privacy.got[0][1]
    assert (office.folder / "webhooks.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("code", [500, 404, 302])
def test_what_does_not_arrive_is_tried_again_later_and_later(office: Office, privacy: Privacy, code: int) -> None:
    outbox = make_outbox(office, privacy)
    outbox.note(board_of(office))
    privacy.code, now = code, time()
    waits = []
    for _ in range(6):
        wait = outbox.deliver(now)
        waits.append(round(wait))
        now += wait
    assert waits == [5, 10, 20, 40, 80, 160]
    assert privacy.got == []
    privacy.code = 200
    # A crash in between loses nothing.
    again = make_outbox(office, privacy)
    again.note(board_of(office))
    again.deliver(now)
    assert len(privacy.got) == 7
    assert len({headers["webhook-id"] for headers, _ in privacy.got}) == 7
    again.deliver(now + 1e6)
    assert len(privacy.got) == 7


def test_it_is_given_up_after_days(office: Office, privacy: Privacy, caplog: pytest.LogCaptureFixture) -> None:
    outbox = make_outbox(office, privacy)
    outbox.note(board_of(office))
    privacy.code = 500
    with caplog.at_level("WARNING", "rescind"):
        outbox.deliver(time() + 4 * 86400)
    assert "given up" in caplog.text
    privacy.code = 200
    outbox.deliver(time() + 5 * 86400)
    assert privacy.got == []


def shown(**changes: Any) -> RequestShown:
    values: dict[str, Any] = {
        "request": 1,
        "clients": ["a"],
        "rows": False,
        "asked": "2026-01-01",
        "asked_by": "the operator",
        "deadline": "2026-02-01",
        "state": "open",
        "days_left": 20,
        "overdue": False,
        "plan": None,
        "waits_for_approval_since": None,
        "waits_for_rows": False,
        "certified": False,
        "steps": [],
    }
    return RequestShown(**{**values, **changes})


@pytest.mark.parametrize(
    ("days", "told"),
    [(8, []), (7, ["due in 7 days"]), (2, ["due in 7 days", "due in 2 days"]), (-1, ["overdue"])],
)
def test_days_that_are_left_are_told(days: int, told: list[str]) -> None:
    assert list(list_happenings(shown(days_left=days, overdue=days < 0))) == ["new", *told]
    assert list(list_happenings(shown(state="served, readmitted since", days_left=days))) == ["new", "served"]
    assert list(list_happenings(shown(state="refused", days_left=days))) == ["new", "refused"]


@pytest.mark.parametrize(
    "url", ["ftp://a/b", "file:///etc/passwd", "http://privacy.example.org/x", "https://", "x", "https://u:p@a/"]
)
def test_addresses_that_others_could_read_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="webhook"):
        check_url(url)


def test_the_secret_is_made_once_and_is_one_s_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = read_secret(file)
    assert len(secret) == 32
    assert read_secret(file) == secret
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("whsec_c2hvcnQ=")
    with pytest.raises(ValueError, match="no webhook secret"):
        read_secret(file)
    file.chmod(0o644)
    with pytest.raises(Exception, match="chmod 600"):
        read_secret(file)


def listen(answer: bytes) -> str:
    """Return the address of a server that answers whatever it is sent with the same bytes."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

    Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "answer",
    [
        b"no answer at all\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n",
        b"",
    ],
)
def test_what_is_answered_with_nonsense_is_sent_again(office: Office, answer: bytes) -> None:
    outbox = Outbox(listen(answer), SECRET, office.folder / "webhooks.json")
    outbox.note(board_of(office))
    assert round(outbox.deliver(time())) == 5
    kept = json.loads((office.folder / "webhooks.json").read_text())
    assert {message["tries"] for message in kept["waiting"]} == {1}


def test_what_cannot_be_written_down_is_sent_once_and_written_later(
    office: Office, privacy: Privacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, board = office.folder / "webhooks.json", board_of(office)
    monkeypatch.setattr("rescind.desk.webhooks._FIRST_WAIT", 0.05)
    outbox = Outbox(privacy.url, SECRET, file)
    outbox.note(board)
    # Where a file would be written there is a folder, as on a full disk nothing can be.
    file.with_name(file.name + ".new").mkdir()
    outbox.start()
    wait_for(lambda: len(privacy.got) == 7)
    sleep(0.3)
    assert len(privacy.got) == 7
    file.with_name(file.name + ".new").rmdir()
    (withdrawn,) = (request for request in board.requests if request.request == 2)
    later = [withdrawn.model_copy(update={"state": "withdrawn"})]
    outbox.note(replace(board, requests=tuple(later)))
    wait_for(lambda: len(privacy.got) == 8)
    wait_for(lambda: json.loads(file.read_text())["waiting"] == [])
    outbox.stop()


def test_what_is_not_encrypted_goes_through_no_proxy(
    office: Office, privacy: Privacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", listen(b"HTTP/1.1 200 OK\r\n\r\n"))
    monkeypatch.delenv("no_proxy", raising=False)
    outbox = make_outbox(office, privacy)
    outbox.note(board_of(office))
    outbox.deliver(time())
    assert len(privacy.got) == 7


@pytest.mark.parametrize("content", ["", '{"run": "', "[]"])
def test_a_file_of_messages_that_is_cut_off_is_named_and_the_desk_goes_on(office: Office, content: str) -> None:
    file, reader = office.folder / "webhooks.json", office.desk.reader
    reader.notify = Outbox("https://privacy.example.org", SECRET, file).note
    reader.refresh()
    whole = file.read_text()
    file.write_text(content)
    reader.notify = Outbox("https://privacy.example.org", SECRET, file).note
    reader.refresh()
    assert f"{file} holds no messages to a webhook" in reader.problem
    assert "holds no messages" in office.ask(Role.READ, "GET", "/").text
    file.write_text(whole)
    reader.refresh()
    assert reader.problem == ""


def test_a_second_desk_does_not_send_the_same_messages(office: Office) -> None:
    secret = office.folder / "history.webhook-secret"
    read_secret(secret)
    with secret.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = said("desk", "serve", office.folder / "history", "--webhook", "http://localhost:1/hook")
    assert second.exit_code == 1
    assert "another desk sends these webhooks" in second.output
