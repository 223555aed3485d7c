"""The desk: who is let in to what, what changes leave in the journal, what a leaver is told, what strangers get."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rescind import History
from rescind.certificates.leaving import parse_receipt, sign_request, write_receipt
from rescind.desk.board import Measured, Reader
from rescind.desk.guard import LONGEST_BODY, Allowance
from rescind.desk.logins import RIGHTS, Role, read_logins, remove_login
from rescind.desk.pictures import draw_accuracies, draw_deadlines
from rescind.history.events import DeadlineExtended, DoneByLogin, PlanApproved, RequestFiled, RequestWithdrawn
from rescind.ledger.records import Asker
from tests.builders import said
from tests.desk.conftest import FEDERATION, Office

# Every address, and the right that it takes; None where a stranger may.
JSON_ADDRESSES: dict[tuple[str, str], Role | None] = {
    ("GET", "/health"): None,
    ("GET", "/metrics"): Role.WATCH,
    ("GET", "/api/v1/openapi.json"): None,
    ("GET", "/api/v1/overview"): Role.READ,
    ("GET", "/api/v1/requests"): Role.READ,
    ("GET", "/api/v1/requests/{number}"): Role.READ,
    ("GET", "/api/v1/requests/{number}/certificate"): Role.READ,
    ("GET", "/api/v1/requests/{number}/approval"): Role.APPROVE,
    ("POST", "/api/v1/requests"): Role.ASK,
    ("POST", "/api/v1/requests/{number}/extend"): Role.OPERATE,
    ("POST", "/api/v1/requests/{number}/withdraw"): Role.OPERATE,
    ("POST", "/api/v1/requests/{number}/refuse"): Role.APPROVE,
    ("POST", "/api/v1/requests/{number}/approve"): Role.APPROVE,
    ("POST", "/api/v1/receipt"): None,
}
PAGES: dict[tuple[str, str], Role | None] = {
    ("GET", "/desk.js"): None,
    ("GET", "/login"): None,
    ("POST", "/login"): None,
    ("POST", "/logout"): None,
    ("GET", "/leaver"): None,
    ("POST", "/leaver"): None,
    ("POST", "/leaver/certificate"): None,
    ("GET", "/"): Role.READ,
    ("GET", "/requests/{number}"): Role.READ,
    ("GET", "/requests/{number}/certificate"): Role.READ,
    ("GET", "/requests/{number}/approval.json"): Role.APPROVE,
    ("POST", "/requests/{number}/{name}"): Role.APPROVE,
}
ACTIONS = {
    "extend": (Role.OPERATE, {"days": 3, "reason": "many at once"}),
    "withdraw": (Role.OPERATE, {"reason": "by mistake"}),
    "refuse": (Role.APPROVE, {"reason": "a law asks to keep it"}),
    "approve": (Role.APPROVE, {"plan": 1}),
}
# What a stranger must never see.
NAMES = ("clinic-", "Hospitals", "risk head", "a law", "mistake")


def addresses(app: Any) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        for method in getattr(route, "methods", None) or ():
            if method != "HEAD":
                yield method, route.path


def test_every_address_is_in_the_table(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    import rescind.desk.app as module

    monkeypatch.setattr("rescind.desk.app.bound", lambda app: app)
    assert set(addresses(module.make_app(office.desk))) == {*JSON_ADDRESSES, *PAGES}


@pytest.mark.parametrize("role", [None, *Role])
def test_without_the_right_nothing_is_told_and_nothing_is_changed(office: Office, role: Role | None) -> None:
    before = office.journal()
    for (method, path), right in {**JSON_ADDRESSES, **PAGES}.items():
        if right is None or (role is not None and right in RIGHTS[role]):
            continue
        for name, (needed, body) in ACTIONS.items():
            if role is not None and "{name}" in path and needed in RIGHTS[role]:
                continue
            answer = office.ask(role, method, path.format(number=3, name=name), json=body)
            wanted = 403 if role is not None else 401 if (method, path) in JSON_ADDRESSES or method == "POST" else 303
            assert answer.status_code == wanted, (method, path, role)
            assert not [word for word in NAMES if word in answer.text], (method, path)
    assert office.journal() == before


def test_each_role_is_let_in_to_what_it_may(office: Office) -> None:
    for role in Role:
        for (method, path), right in JSON_ADDRESSES.items():
            if method == "GET" and right in RIGHTS[role]:
                code = office.ask(role, method, path.format(number=3)).status_code
                # No certificate is there, and the plan of request 3 has been made.
                assert code == (404 if "certificate" in path else 200), (path, role)


def test_how_far_clients_moved_the_model_is_for_the_operator(office: Office) -> None:
    assert office.ask(Role.OPERATE, "GET", "/api/v1/overview").json()["influences"]
    for role in (Role.READ, Role.APPROVE):
        assert office.ask(role, "GET", "/api/v1/overview").json()["influences"] == []
        assert "moved the model" not in office.ask(role, "GET", "/").text
    assert "moved the model" in office.ask(Role.OPERATE, "GET", "/").text


# What is done


@pytest.mark.parametrize("by_form", [True, False])
def test_what_is_done_is_in_the_journal_with_the_login(office: Office, by_form: bool) -> None:
    if by_form:
        browser = office.signed_in(Role.OPERATE)
        assert browser.post("/requests/3/extend", data={"days": "3", "reason": "many at once"}).status_code == 303
        assert browser.post("/requests/2/withdraw", data={"reason": "by mistake"}).status_code == 303
    else:
        extended = office.ask(Role.OPERATE, "POST", "/api/v1/requests/3/extend", json=ACTIONS["extend"][1])
        assert extended.status_code == 200
        assert "many at once" in extended.json()["steps"][-1]["what"]
        assert extended.json()["steps"][-1]["login"] == "T. Operate (operate)"
        assert office.ask(Role.OPERATE, "POST", "/api/v1/requests/2/withdraw", json={}).json()["state"] == "withdrawn"
    events = office.journal()[-4:]
    assert [type(event) for event in events] == [DeadlineExtended, DoneByLogin, RequestWithdrawn, DoneByLogin]
    assert {(event.login, event.role) for event in events[1::2]} == {("T. Operate", "operate")}
    with office.open() as history:
        assert history.integrity.verify() == []
        done = [event.entry for event in events[1::2]]
        kinds = {entry.sequence: type(event) for entry, event in history.timeline.moments}
        assert [kinds[entry] for entry in done] == [DeadlineExtended, RequestWithdrawn]


def test_a_refusal_is_by_the_login(office: Office) -> None:
    browser = office.signed_in(Role.APPROVE)
    assert browser.post("/requests/3/refuse", data={"reason": "a law asks to keep it"}).status_code == 303
    page = browser.get("/requests/3").text
    assert "refused by T. Approve: a law asks to keep it (at the desk, by T. Approve (approve))" in page


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("3/extend", {"days": 0, "reason": "x"}, 422),
        ("3/extend", {"days": 3, "reason": ""}, 422),
        ("3/extend", {"days": 3, "reason": "x", "more": 1}, 422),
        ("3/extend", {"days": 62, "reason": "x" * 1001}, 422),
        ("1/extend", {"days": 3, "reason": "x"}, 409),
        ("99/extend", {"days": 3, "reason": "x"}, 404),
        ("0/extend", {"days": 3, "reason": "x"}, 422),
        ("4/withdraw", {}, 409),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(office: Office, path: str, body: Any, code: int) -> None:
    before = office.journal()
    answer = office.ask(Role.OPERATE, "POST", f"/api/v1/requests/{path}", json=body)
    assert answer.status_code == code
    assert answer.json()["detail"]
    assert office.journal() == before


# Approving


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    assert said("key", "new", tmp_path / "officer.key").exit_code == 0
    return tmp_path / "officer.key"


def sign_told(office: Office, key: Path, content: str) -> Result:
    """Sign what a desk, or somebody in its place, has handed out."""
    file = office.folder / "approval.json"
    file.write_text(content)
    return said("key", "approve", file, "--key", key, "--yes")


def sign_approval(office: Office, key: Path) -> tuple[int, dict[str, str]]:
    told = office.ask(Role.APPROVE, "GET", "/api/v1/requests/3/approval")
    printed = sign_told(office, key, told.text)
    assert printed.exit_code == 0, printed.output
    assert "Request 3, by exact: back to model 1.0, without noise" in printed.stderr
    return told.json()["approval"]["plan"], json.loads(printed.stdout.splitlines()[-1])


def test_a_plan_is_approved_with_a_key_that_never_comes_to_the_desk(office: Office, key: Path) -> None:
    browser = office.signed_in(Role.APPROVE)
    page = browser.get("/requests/3").text
    assert "approval.json" in page
    assert "Approve by my login" not in page
    plan, signed = sign_approval(office, key)
    assert browser.get("/requests/3/approval.json").text == (office.folder / "approval.json").read_text()
    form = {"plan": str(plan), "signed": json.dumps(signed)}
    assert browser.post("/requests/3/approve", data=form).status_code == 303
    approval, done = office.journal()[-2:]
    assert isinstance(approval, PlanApproved)
    assert (approval.by, approval.key, approval.signature) == ("T. Approve", signed["key"], signed["signature"])
    assert isinstance(done, DoneByLogin)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("approval", "head"), "0" * 64),
        (("approval", "plan"), 1),
        (("before",), "0" * 64),
        (("kind",), "request"),
        (("kind",), "approval"),
        (("time",), "2026-01-01T00:00:00+00:00"),
        (("body", "method"), "another"),
        (("body", "requests"), [1]),
        (("body", "candidate", "sigma"), 0.5),
        (("body", "candidate", "sigma"), float("inf")),
        (("body", "more"), 1),
        (("body",), {}),
    ],
)
def test_nobody_signs_another_plan_than_is_shown(
    office: Office, key: Path, place: tuple[str, ...], value: object
) -> None:
    told = office.ask(Role.APPROVE, "GET", "/api/v1/requests/3/approval").json()
    part = told
    for name in place[:-1]:
        part = part[name]
    assert part.get(place[-1]) != value
    part[place[-1]] = value
    printed = sign_told(office, key, json.dumps(told))
    assert printed.exit_code == 1
    assert "is no approval" in printed.stderr
    assert not printed.stdout


def test_the_form_shows_the_plan_that_it_approves(office: Office) -> None:
    from rescind import Revocable, Scratch
    from tests.desk.conftest import engine

    with office.open() as history:
        Revocable(history, engine(office.folder / "leaver.key", fresh=False)).plan(Scratch(), 3)
        planned = history.timeline.planned_at(3).sequence
    # The board is of the moment before.
    shown = office.signed_in(Role.APPROVE).get("/requests/3").text
    assert f"Entry {planned} of the journal: Request 3, by Scratch: back to model 1.0" in shown
    assert f'name="plan" value="{planned}"' in shown


@pytest.mark.parametrize("name", ["A.\u200b Officer", " " * 9, "A. Officer ", "\u3164", "A.\nOfficer"])
def test_nobody_signs_under_a_name_that_hides_something(office: Office, key: Path, name: str) -> None:
    told = office.ask(Role.APPROVE, "GET", "/api/v1/requests/3/approval").json()
    told["approval"]["by"] = name
    printed = sign_told(office, key, json.dumps(told))
    assert printed.exit_code == 1
    assert "is no approval" in printed.stderr


def test_what_is_too_long_to_be_read_is_not_signed(office: Office, key: Path) -> None:
    told = invent(office, method="exact" * 1000)
    printed = sign_told(office, key, json.dumps(told))
    assert printed.exit_code == 1
    assert "takes too long to tell" in printed.stderr
    assert len(printed.stderr) < 1000


def invent(office: Office, method: str) -> dict[str, Any]:
    """Return an approval of an entry that no journal has."""
    from rescind.ledger.commitments import next_entry
    from rescind.ledger.records import Entry

    told: dict[str, Any] = office.ask(Role.APPROVE, "GET", "/api/v1/requests/3/approval").json()
    told["body"]["method"] = method
    before = Entry(told["approval"]["plan"] - 1, "", "", {}, b"", bytes.fromhex(told["before"]))
    told["approval"]["head"] = next_entry(before, told["kind"], told["time"], told["body"]).head.hex()
    return told


def test_who_invents_an_entry_cannot_steer_the_terminal_of_whoever_signs(office: Office, key: Path) -> None:
    told = invent(office, method="exact\x1b[2J\nRequest 3 is nobody's")
    printed = sign_told(office, key, json.dumps(told))
    assert printed.exit_code == 0
    assert "\x1b" not in printed.stderr
    assert len(printed.stderr.splitlines()) == 1


@pytest.mark.parametrize("wrong", ["signature", "key", "none", "plan"])
def test_what_the_key_did_not_sign_approves_nothing(office: Office, key: Path, wrong: str) -> None:
    plan, signed = sign_approval(office, key)
    if wrong in signed:
        signed[wrong] = ("0" if signed[wrong][0] != "0" else "1") + signed[wrong][1:]
    body = {"plan": plan + (wrong == "plan"), "signed": None if wrong == "none" else signed}
    answer = office.ask(Role.APPROVE, "POST", "/api/v1/requests/3/approve", json=body)
    assert answer.status_code == 409
    assert not [event for event in office.journal() if isinstance(event, PlanApproved)]


def test_a_login_s_word_approves_where_the_operator_allows_it_and_the_certificate_says_so(
    office: Office, key: Path
) -> None:
    from rescind import Exact, Revocable, Rounds
    from tests.desk.conftest import engine

    office.restart(by_login=True)
    browser = office.signed_in(Role.APPROVE)
    (plan,) = re.findall(r'name="plan" value="(\d+)"', browser.get("/requests/3").text)[:1]
    assert browser.post("/requests/3/approve", data={"plan": plan}).status_code == 303
    assert browser.post("/requests/2/refuse", data={"reason": "a law"}).status_code == 303
    with office.open() as history:
        federation = Revocable(history, engine(office.folder / "leaver.key", fresh=False))
        federation.forget(Exact(), Rounds(2), approval=True)
    file = office.folder / "certificates" / "certificate.json"
    made = said("certify", office.folder / "history", 3, "--key", key, "-o", file)
    assert made.exit_code == 0, made.output
    at = ("--key", f"{key}.pub", "--history", office.folder / "history")
    shown = said("verify", file, *at, "--json", "--html", office.folder / "page.html")
    assert shown.exit_code == 0, shown.output
    approved = json.loads(shown.output)["statement"]["predicate"]["approved"]
    assert (approved["key"], approved["login"]) == (None, True)
    assert "a login at the operator's desk, on the operator's word" in " ".join(json.loads(shown.output)["holds"])
    assert "a login at the operator" in (office.folder / "page.html").read_text()


# Handing in, and leaving


def hand_in(office: Office, **options: Any) -> Any:
    content = sign_request(office.folder / "leaver.key", FEDERATION, **options)
    return office.ask(Role.ASK, "POST", "/api/v1/requests", content=content)


def test_a_signed_request_is_handed_in_and_its_receipt_finds_it(office: Office) -> None:
    answer = hand_in(office)
    assert answer.status_code == 201, answer.text
    receipt = parse_receipt(answer.content)
    filed, done = office.journal()[-2:]
    assert isinstance(filed, RequestFiled)
    assert filed.sender.asker is Asker.KEY
    assert (done.login, done.role) == ("T. Ask", "ask")
    found = office.ask(None, "POST", "/api/v1/receipt", content=answer.content).json()
    assert (found["request"], found["state"], found["certificate"]) == (receipt.request, "open", None)
    assert found.keys() == {"request", "state", "asked", "deadline", "certificate"}


def test_it_is_handed_in_once_and_only_as_it_was_signed(office: Office) -> None:
    content = sign_request(office.folder / "leaver.key", FEDERATION)
    assert office.ask(Role.ASK, "POST", "/api/v1/requests", content=content).status_code == 201
    again = office.ask(Role.ASK, "POST", "/api/v1/requests", content=content)
    assert again.status_code == 409
    assert "handed in before" in again.json()["detail"]
    before = office.journal()
    for wrong in (b"", b"{}", b"[" * 5000, b"\xff", content[:-40], content.replace(b"payload", b"payLoad")):
        assert office.ask(Role.ASK, "POST", "/api/v1/requests", content=wrong).status_code == 409
    assert hand_in(office, time=datetime.now(UTC) - timedelta(days=40)).status_code == 409
    assert office.journal() == before


def test_a_leaver_fetches_its_certificate_by_its_receipt_and_nobody_else_s(office: Office, key: Path) -> None:
    file = office.folder / "certificates" / "of request 1.json"
    assert said("certify", office.folder / "history", 1, "--key", key, "-o", file).exit_code == 0
    (office.folder / "certificates" / "notes.json").write_text("{}")
    office.desk.reader.refresh()
    with office.open() as history:
        number, run = 2, history.identifier
        salt = history.participants.receipt("clinic-2")
    own = office.folder / "receipt.json"
    # Of request 1 the name is erased, and the receipt was handed out before: it is that of request 2 here.
    write_receipt(
        own,
        parse_receipt(
            json.dumps({"run": run, "request": number, "called": "clinic-2", "names": {"clinic-2": salt}}).encode()
        ),
    )
    text = own.read_text()
    page = office.ask(None, "POST", "/leaver", data={"receipt": text}).text
    assert "number 2" in page
    assert "not yet" in page
    assert "clinic-3" not in page
    changed = json.loads(text)
    for wrong in (
        changed | {"request": 3},
        changed | {"request": 1},
        changed | {"run": "0" * 16},
        changed | {"names": {}},
        changed | {"names": {"clinic-2": "0" * 64}},
        changed | {"names": {"clinic-2": salt, "clinic-3": salt}},
    ):
        answer = office.ask(None, "POST", "/leaver", data={"receipt": json.dumps(wrong)})
        assert answer.status_code == 404
        assert office.ask(None, "POST", "/leaver/certificate", data={"receipt": json.dumps(wrong)}).status_code == 404
    assert office.ask(None, "POST", "/leaver/certificate", data={"receipt": text}).status_code == 404
    fetched = office.ask(Role.READ, "GET", "/api/v1/requests/1/certificate")
    assert fetched.content == file.read_bytes()
    assert office.ask(Role.READ, "GET", "/api/v1/overview").json()["last_certificate"] == 1


# Browsers and strangers


def test_another_site_s_page_changes_nothing(office: Office) -> None:
    browser = office.signed_in(Role.OPERATE)
    before = office.journal()
    for origin in ("http://evil.example.org", "null", f"{office.site}.evil.org", ""):
        answer = browser.post("/requests/3/withdraw", data={"reason": "x"}, headers={"origin": origin})
        assert answer.status_code == 403
    del browser.headers["origin"]
    assert browser.post("/requests/3/withdraw", data={"reason": "x"}).status_code == 403
    api = browser.post("/api/v1/requests/3/withdraw", json={}, headers={"origin": "http://evil.example.org"})
    assert api.status_code == 403
    assert office.journal() == before
    token = office.ask(
        Role.OPERATE, "POST", "/api/v1/requests/3/withdraw", json={}, headers={"origin": "http://evil.example.org"}
    )
    assert token.status_code == 403


def test_a_login_that_is_removed_is_out_at_once_and_so_is_who_signed_out(office: Office) -> None:
    browser, other = office.signed_in(Role.READ), office.signed_in(Role.OPERATE)
    assert browser.get("/").status_code == other.get("/").status_code == 200
    remove_login(office.desk.guard.file, "T. Read")
    assert browser.get("/").status_code == 303
    assert office.ask(Role.READ, "GET", "/api/v1/overview").status_code == 401
    assert other.post("/logout").status_code == 303
    assert other.get("/").headers["location"] == "/login"


def test_a_wrong_token_is_told_from_none_and_many_are_slowed_down(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rescind.desk.guard.monotonic", lambda: 100.0)
    headers = {"authorization": "Bearer of nobody"}
    codes = [office.ask(None, "GET", "/api/v1/overview", headers=headers).status_code for _ in range(70)]
    assert codes[:60] == [401] * 60
    assert codes[-1] == 429
    # Those who have a token are not kept out.
    assert office.ask(Role.READ, "GET", "/api/v1/overview").status_code == 200


def test_changes_are_slowed_down_too(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescind.desk.guard.monotonic", lambda: 100.0)
    answers = [office.ask(Role.OPERATE, "POST", "/api/v1/requests/4/withdraw", json={}) for _ in range(32)]
    assert {answer.status_code for answer in answers[:30]} == {409}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_an_allowance_grows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr("rescind.desk.guard.monotonic", lambda: moment[0])
    allowance = Allowance(0.5, 2.0)
    allowance.take("a")
    allowance.take("a")
    allowance.take("b")
    with pytest.raises(Exception, match="429"):
        allowance.take("a")
    moment[0] += 2.5
    allowance.take("a")


def test_no_more_is_read_than_has_to_be(office: Office) -> None:
    for path in ("/api/v1/receipt", "/leaver", "/login", "/api/v1/requests"):
        body = b"receipt=" + b"x" * LONGEST_BODY
        role = Role.ASK if path.endswith("requests") else None
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": office.site}
        assert office.ask(role, "POST", path, content=body, headers=headers).status_code == 413
        parts = iter([b"x" * 1000] * 70)
        assert office.ask(role, "POST", path, content=parts, headers=headers).status_code == 413


def test_pages_load_nothing_from_elsewhere_and_names_are_shown_as_they_are(office: Office) -> None:
    browser = office.signed_in(Role.OPERATE)
    for path in ("/", "/requests/3", "/requests/4", "/leaver", "/login"):
        answer = browser.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        # A browser that may tell no referrer sends forms with the origin null: nobody could sign in.
        assert answer.headers["referrer-policy"] == "same-origin"
        assert not re.findall(r'(?:src|href)="(?!/)', answer.text)
        assert " style=" not in answer.text
        assert " on" not in re.findall(r"<[^>]*>", answer.text)
        assert "<b>Hospitals" not in answer.text
        assert "<i>by mistake" not in answer.text
    assert "City &lt;b&gt;Hospitals" in browser.get("/").text
    cookie = browser.cookies.jar
    assert all("HttpOnly" in kept._rest and kept._rest["SameSite"] == "strict" for kept in cookie)  # type: ignore[attr-defined]


def test_the_overview_says_what_is_due(office: Office) -> None:
    page = office.ask(Role.READ, "GET", "/").text
    assert "1 request overdue" in page
    assert "waits for approval" in page
    assert re.search(r"as it was \d{4}-\d\d-\d\d \d\d:\d\d UTC", page)
    regions = re.findall(r'role="region" aria-label="([^"]*)"', page)
    assert regions == ["Requests that wait", "Requests that are closed"]
    view = office.ask(Role.READ, "GET", "/api/v1/overview").json()
    assert (view["open_requests"], view["overdue_requests"]) == (2, 1)
    rows = office.ask(Role.READ, "GET", "/api/v1/requests").json()
    assert [row["state"] for row in rows] == ["served", "open", "open", "withdrawn"]
    assert [step["what"].split()[0] for step in rows[0]["steps"]] == ["asked", "planned", "training", "served"]


def test_metrics_are_those_of_status(office: Office) -> None:
    shown = office.ask(Role.WATCH, "GET", "/metrics").text
    assert shown == said("status", office.folder / "history", "--format", "prometheus").output


def test_the_description_says_of_every_refusal_that_it_is_json(office: Office) -> None:
    paths = office.ask(None, "GET", "/api/v1/openapi.json").json()["paths"]
    refusals = [
        answer
        for methods in paths.values()
        for operation in methods.values()
        for code, answer in operation["responses"].items()
        if code.startswith(("4", "5"))
    ]
    assert len(refusals) > 50
    assert all(list(answer["content"]) == ["application/json"] for answer in refusals)
    assert office.ask(None, "GET", "/metrics").headers["content-type"] == "application/json"


# Reading


def test_a_history_that_cannot_be_read_is_said_and_the_last_board_stays(office: Office) -> None:
    reader = office.desk.reader
    assert office.ask(None, "GET", "/health").status_code == 200
    (office.folder / "history").rename(office.folder / "moved")
    reader.refresh()
    assert office.ask(None, "GET", "/health").status_code == 503
    assert "To be seen to" in office.ask(Role.READ, "GET", "/").text
    assert office.ask(Role.OPERATE, "POST", "/api/v1/requests/3/withdraw", json={}).status_code in (409, 503)
    (office.folder / "moved").rename(office.folder / "history")
    reader.refresh()
    assert office.ask(None, "GET", "/health").status_code == 200


def test_a_history_without_a_round_is_said(tmp_path: Path) -> None:
    with History(tmp_path / "history"):
        pass
    reader = Reader(lambda: History(tmp_path / "history", create=False))
    reader.refresh()
    assert reader.board is None
    assert "nothing has been recorded here yet" in reader.problem


@pytest.mark.parametrize("role", [Role.WATCH, Role.ASK])
def test_a_token_for_a_program_opens_no_page(office: Office, role: Role) -> None:
    with office.browser(headers={"origin": office.site}) as browser:
        answer = browser.post("/login", data={"token": office.tokens[role]})
    assert answer.status_code == 403
    assert "for a program" in answer.text
    assert "set-cookie" not in answer.headers


def test_who_waits_and_may_be_in_the_newest_model_is_named(office: Office) -> None:
    page = office.signed_in(Role.READ).get("/").text
    assert office.ask(Role.READ, "GET", "/api/v1/overview").json()["newest_knows"] == [2, 3]
    assert "Who waits in request 2, 3 may be in it" in page


def test_tokens_are_kept_as_digests_in_a_file_of_one_s_own(office: Office) -> None:
    file = office.desk.guard.file
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [token for token in office.tokens.values() if token in file.read_text()]
    file.chmod(0o644)
    with pytest.raises(Exception, match="chmod 600"):
        read_logins(file)


def test_the_commands_make_and_remove_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    assert "there is no history in" in said("desk", "token", folder, "A. Officer", "--role", "approve").output
    assert not list(tmp_path.iterdir())
    History(folder).close()
    made = said("desk", "token", folder, "A. Officer", "--role", "approve")
    assert made.exit_code == 0, made.output
    assert len(made.output.splitlines()[0]) == 43
    assert "A. Officer" in (tmp_path / "history.desk").read_text()
    again = said("desk", "token", folder, "A. Officer", "--role", "approve")
    assert again.exit_code == 1
    assert said("desk", "token", folder, "A. Officer", "--remove").exit_code == 0
    assert "watch: read metrics" in said("desk", "token", folder, "A. Officer", "--role", "king").output
    assert "nobody has a token yet" in said("desk", "serve", folder).output
    assert said("desk", "token", folder, "B", "--role", "read").exit_code == 0
    outside = said("desk", "serve", folder, "--host", "192.0.2.1")
    assert "tokens could be read on their way" in outside.output


# Pictures


def test_pictures_are_of_what_there_is(office: Office) -> None:
    view = office.desk.reader.board
    assert view is not None
    open_ = [request for request in view.requests if request.unfinished]
    told = draw_deadlines(open_, date.today()).text
    assert "request 2 was due" in told
    assert "request 3 is due" in told
    measured = [Measured(branch=at // 400, round=at, accuracy=at / 1000) for at in range(1000)]
    assert draw_accuracies(measured).text == (
        "Accuracy on held-out data: 0.0% at first, 99.9% now; training went back 2 times, at the dashed lines."
    )
    assert draw_accuracies(measured[:1]).svg.count("polyline") == 1


@pytest.mark.parametrize(("days", "anchor"), [((30, 60), "start"), ((-30, 30), "middle"), ((-30, -1), "end")])
def test_today_is_written_inside_the_picture_of_deadlines(office: Office, days: tuple[int, ...], anchor: str) -> None:
    view = office.desk.reader.board
    assert view is not None
    today = date.today()
    due = [(today + timedelta(days=each)).isoformat() for each in days]
    svg = draw_deadlines([view.requests[0].model_copy(update={"deadline": day}) for day in due], today).svg
    (label,) = re.findall(rf"<text ([^>]*)>today, {today.isoformat()}</text>", svg)
    assert f'text-anchor="{anchor}"' in label
