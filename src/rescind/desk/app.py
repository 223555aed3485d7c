"""The desk's addresses: pages for people, the same as JSON for programs, metrics and health."""

# Not postponed: FastAPI reads annotations that name what is made here.
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, HTTPException, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException as AnyHTTPException

from rescind import __version__
from rescind.certificates.approvals import ToSign
from rescind.certificates.errors import CertificateError
from rescind.certificates.files import read_certificate
from rescind.certificates.leaving import Receipt, parse_receipt
from rescind.desk.board import Board, Found, Overview, Reader, RequestShown
from rescind.desk.changes import Changes
from rescind.desk.guard import COOKIE, Guard, bound
from rescind.desk.logins import Login, Role
from rescind.desk.pages import (
    MOST_DAYS,
    SCRIPT,
    render_leaver,
    render_message,
    render_overview,
    render_request,
    render_sign_in,
)
from rescind.errors import HistoryError
from rescind.history.participants import blind_name
from rescind.texts import make_plain, shorten

_LOG = logging.getLogger("rescind")
_BEARER = HTTPBearer(auto_error=False, description="A token, as `rescind desk token` makes them.")
_UNREADABLE: Final = "the history cannot be read or written now: its operator's log says why"
_UNFIT: Final = "no receipt of this run: paste all of the file that you were given"
Number = Annotated[int, Path(ge=1, lt=2**31, description="The request's number.")]
Reason = Annotated[str, Field(min_length=1, max_length=1000, description="Recorded for good: name no participant.")]


class Given(BaseModel):
    """A body that a program sends: these fields, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Extension(Given):
    """By how many days a deadline moves, and why."""

    days: Annotated[int, Field(ge=1, le=MOST_DAYS)]
    reason: Reason


class Refusal(Given):
    """Why a request is not served."""

    reason: Reason


class Withdrawal(Given):
    """Why a request is taken back, if there is a reason to tell."""

    reason: Annotated[str, Field(max_length=1000)] = ""


class Signature(Given):
    """What ``rescind key approve`` prints: a raw public key and its signature, in hexadecimal."""

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


class Agreement(Given):
    """Which plan is approved, by the number of its entry; without a signature on the login's word."""

    # Beyond that not everybody reads a number of JSON as the same one.
    plan: Annotated[int, Field(ge=1, lt=2**53)]
    signed: Signature | None = None


class Told(BaseModel):
    """How it went, in a sentence."""

    detail: str


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    # Not as a model: beside another type, as that of metrics, FastAPI would say that errors are of that type, too.
    told = {"application/json": {"schema": {"$ref": "#/components/schemas/Told"}}}
    return {code: {"content": told, "description": HTTPStatus(code).phrase} for code in codes}


_ALL: Final[dict[int | str, dict[str, Any]]] = _errors(401, 403, 422, 429, 503)
_CHANGE: Final[dict[int | str, dict[str, Any]]] = _ALL | _errors(400, 404, 409, 413)


@dataclass(frozen=True, slots=True)
class Desk:
    """What the desk is made of."""

    reader: Reader
    changes: Changes
    guard: Guard

    def board(self) -> Board:
        """Return what is shown; ``HTTPException`` 503 as long as nothing could be read."""
        if (board := self.reader.board) is None:
            raise HTTPException(503, _UNREADABLE)
        return board

    def request(self, number: int) -> RequestShown:
        """Return a request as it is shown; ``HTTPException`` 404 if there is none."""
        requests = self.board().requests
        if number > len(requests):
            raise HTTPException(404, f"there is no request {number}")
        return requests[number - 1]

    def change(self, number: int, do: Callable[[], None]) -> RequestShown:
        """Change a request, and return it as it is now."""
        self.request(number)
        do()
        self.reader.refresh()
        return self.request(number)

    def find_own(self, content: bytes) -> RequestShown:
        """Return the request of a receipt's owner; ``HTTPException`` 404 if it is nobody's here."""
        board = self.board()
        try:
            receipt = parse_receipt(content)
            salted = {blind_name(bytes.fromhex(salt), name) for name, salt in receipt.names.items()}
        except ValueError as error:
            raise HTTPException(404, _UNFIT) from error
        known = board.forgotten.get(receipt.request, frozenset())
        if receipt.run != board.overview.run or not salted or not salted <= known:
            raise HTTPException(404, _UNFIT)
        return self.request(receipt.request)

    def tell_own(self, content: bytes) -> Found:
        """Return what a receipt's owner is told; ``HTTPException`` 404 if it is nobody's here."""
        own, file = self.find_own(content), None
        with suppress(HTTPException):
            file = self.certificate(own.request).decode()
        return Found(request=own.request, state=own.state, asked=own.asked, deadline=own.deadline, certificate=file)

    def to_sign(self, login: Login, number: int) -> ToSign:
        """Return what a login signs to approve a plan; ``HTTPException`` 409 if there is none to approve."""
        state = self.request(number).state
        if (approval := self.changes.ask_approval(login, number)) is None:
            raise HTTPException(409, f"request {number} is {state}: there is no plan to approve, a run makes it")
        return approval

    def certificate(self, number: int) -> bytes:
        """Return the file of a request's certificate; ``HTTPException`` 404 if there is none."""
        board = self.board()
        path = board.certificates.get(number)
        # Another one may have come in its place since.
        known = None if path is None else read_certificate(path)
        if known is not None and known[:2] == (board.overview.run, number):
            return known[2]
        raise HTTPException(404, f"request {number} has no certificate here")


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done to a request: by whom, with what, and how."""

    right: Role
    takes: type[Given]
    do: Callable[[Changes, Login, int, Any], None]


_ACTIONS: Final = {
    "extend": Action(
        Role.OPERATE, Extension, lambda changes, login, at, body: changes.extend(login, at, body.days, body.reason)
    ),
    "withdraw": Action(
        Role.OPERATE, Withdrawal, lambda changes, login, at, body: changes.withdraw(login, at, body.reason)
    ),
    "refuse": Action(Role.APPROVE, Refusal, lambda changes, login, at, body: changes.refuse(login, at, body.reason)),
    "approve": Action(
        Role.APPROVE,
        Agreement,
        lambda changes, login, at, body: changes.approve(
            login, at, body.plan, body.signed and (body.signed.key, body.signed.signature)
        ),
    ),
}


async def _read_body(request: Request) -> bytes:
    return await request.body()


async def _read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form, each once."""
    try:
        text = (await request.body()).decode()
        values = parse_qs(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=10)
    except ValueError as error:
        raise HTTPException(400, "that is no form of this desk") from error
    return {name: texts[0].strip() for name, texts in values.items()}


Body: TypeAlias = Annotated[bytes, Depends(_read_body)]
Fields: TypeAlias = Annotated[Mapping[str, str], Depends(_read_form)]


def _read_fields(kind: type[Given], fields: Mapping[str, str]) -> Given:
    """Return what a form gives; ``HTTPException`` 400 if that is not what the action takes."""
    try:
        # What a key's owner pastes is JSON itself.
        signed = {"signed": json.loads(fields["signed"])} if "signed" in fields else {}
        return kind.model_validate({**fields, **signed})
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "a field is missing, or is not all of what it should be: go back") from error


def make_app(desk: Desk) -> Any:
    """Return the application, for an ASGI server."""
    app = FastAPI(
        title="rescind desk",
        version=__version__,
        description="What is due in a federation that forgets: requests, plans, certificates.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    _answer_errors(app)
    _add_interface(app, desk)
    _add_pages(app, desk)
    return bound(app)


def _allowed(desk: Desk, right: Role) -> Any:
    """Return what lets in whoever has a right."""

    def admit(request: Request) -> Login:
        return desk.guard.admit(request, right)

    return Depends(admit)


def _add_interface(app: FastAPI, desk: Desk) -> None:
    secured = Depends(_BEARER)
    read, approver = _allowed(desk, Role.READ), _allowed(desk, Role.APPROVE)
    content = {"application/json": {"schema": {"type": "object", "description": "The file as it is."}}}
    any_object = {"requestBody": {"required": True, "content": content}}

    @app.get("/health", responses=_errors(503), summary="Whether what is shown is up to date")
    def health() -> Told:
        if desk.reader.problem:
            raise HTTPException(503, "not up to date")
        return Told(detail="up to date")

    watching = [secured, _allowed(desk, Role.WATCH)]

    @app.get("/metrics", dependencies=watching, responses=_ALL, response_class=PlainTextResponse)
    def metrics() -> str:
        return desk.board().metrics + "\n"

    @app.get("/api/v1/overview", dependencies=[secured], responses=_ALL)
    def overview(login: Annotated[Login, read]) -> Overview:
        return desk.board().overview_for(login)

    @app.get("/api/v1/requests", dependencies=[secured, read], responses=_ALL)
    def requests() -> tuple[RequestShown, ...]:
        return desk.board().requests

    @app.get("/api/v1/requests/{number}", dependencies=[secured, read], responses=_ALL | _errors(404))
    def request(number: Number) -> RequestShown:
        return desk.request(number)

    @app.get("/api/v1/requests/{number}/certificate", dependencies=[secured, read], responses=_ALL | _errors(404))
    def certificate(number: Number) -> Response:
        desk.request(number)
        return Response(desk.certificate(number), media_type="application/json")

    @app.get("/api/v1/requests/{number}/approval", dependencies=[secured], responses=_ALL | _errors(404, 409))
    def approval(number: Number, login: Annotated[Login, approver]) -> ToSign:
        return desk.to_sign(login, number)

    @app.post(
        "/api/v1/requests",
        status_code=201,
        dependencies=[secured],
        responses=_CHANGE,
        openapi_extra=any_object,
        summary="Hand in what a participant signed (rescind leave); its receipt is for that participant alone",
    )
    def add(login: Annotated[Login, _allowed(desk, Role.ASK)], content: Body) -> Receipt:
        receipt = desk.changes.file(login, content)
        desk.reader.refresh()
        return receipt

    def add_action(name: str, action: Action) -> None:
        def change(
            number: Number, login: Annotated[Login, _allowed(desk, action.right)], body: Given
        ) -> RequestShown:
            return desk.change(number, lambda: action.do(desk.changes, login, number, body))

        change.__annotations__["body"] = action.takes
        path = f"/api/v1/requests/{{number}}/{name}"
        app.post(path, name=name, dependencies=[secured], responses=_CHANGE)(change)

    for name, action in _ACTIONS.items():
        add_action(name, action)

    @app.post(
        "/api/v1/receipt",
        responses=_errors(400, 404, 413, 429, 503),
        openapi_extra=any_object,
        summary="How the request of a receipt's owner stands; the receipt is the only key to it",
    )
    def find_own(content: Body, request: Request) -> Found:
        desk.guard.slow_down(request)
        return desk.tell_own(content)


def _add_pages(app: FastAPI, desk: Desk) -> None:
    page: dict[str, Any] = {"response_class": HTMLResponse, "include_in_schema": False}
    read, approver = _allowed(desk, Role.READ), _allowed(desk, Role.APPROVE)

    @app.get("/desk.js", include_in_schema=False)
    def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    @app.get("/login", **page)
    def ask_for_token() -> str:
        return render_sign_in()

    @app.post("/login", **page)
    def sign_in(request: Request, fields: Fields) -> Response:
        session = desk.guard.sign_in(request, fields.get("token", ""))
        if session is None:
            return HTMLResponse(render_sign_in("Look whether all of it was copied."), 403)
        answer = RedirectResponse("/", 303)
        safe = request.scope["scheme"] == "https"
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=safe)
        return answer

    @app.post("/logout", **page)
    def sign_out(request: Request) -> Response:
        desk.guard.sign_out(request)
        return RedirectResponse("/login", 303)

    @app.get("/", **page)
    def overview(login: Annotated[Login, read]) -> str:
        return render_overview(desk.board(), login, desk.reader.problem)

    @app.get("/requests/{number}", **page)
    def request(number: Number, login: Annotated[Login, read]) -> str:
        shown = desk.request(number)
        decides = login.may(Role.APPROVE) and shown.state == "open"
        asked = desk.changes.ask_approval(login, number) if decides else None
        return render_request(shown, login, asked, desk.changes.by_login)

    @app.get("/requests/{number}/approval.json", **page)
    def approval(number: Number, login: Annotated[Login, approver]) -> Response:
        return _save("approval.json", desk.to_sign(login, number).model_dump_json().encode())

    @app.get("/requests/{number}/certificate", dependencies=[read], **page)
    def certificate(number: Number) -> Response:
        return _save(f"certificate-{number}.json", desk.certificate(number))

    def admit(name: str, request: Request) -> tuple[Login, Action]:
        if (action := _ACTIONS.get(name)) is None:
            raise HTTPException(404, "there is no such action")
        return desk.guard.admit(request, action.right), action

    @app.post("/requests/{number}/{name}", **page)
    def change(number: Number, admitted: Annotated[tuple[Login, Action], Depends(admit)], fields: Fields) -> Response:
        login, action = admitted
        body = _read_fields(action.takes, fields)
        desk.change(number, lambda: action.do(desk.changes, login, number, body))
        return RedirectResponse(f"/requests/{number}", 303)

    @app.get("/leaver", **page)
    def ask_for_receipt() -> str:
        return render_leaver()

    @app.post("/leaver", **page)
    def find_own(request: Request, fields: Fields) -> Response:
        desk.guard.slow_down(request)
        receipt = fields.get("receipt", "")
        try:
            return HTMLResponse(render_leaver(desk.tell_own(receipt.encode()), receipt))
        except HTTPException as unfit:
            return HTMLResponse(render_leaver(problem=str(unfit.detail)), unfit.status_code)

    @app.post("/leaver/certificate", **page)
    def fetch_own(request: Request, fields: Fields) -> Response:
        desk.guard.slow_down(request)
        own = desk.find_own(fields.get("receipt", "").encode())
        return _save("certificate.json", desk.certificate(own.request))


def _save(name: str, content: bytes) -> Response:
    """Return a file that a browser saves."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


def _answer_errors(app: FastAPI) -> None:
    """Turn refusals into answers, as JSON for programs and as a page for people."""

    def answer(request: Request, code: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
        # Not by the URL: a host that is none makes one that cannot be read.
        if request.scope["path"].startswith(("/api/", "/metrics", "/health")):
            return JSONResponse({"detail": sentence}, code, headers)
        if code == 401 and request.method == "GET":
            return RedirectResponse("/login", 303)
        return HTMLResponse(render_message(HTTPStatus(code).phrase, sentence), code, headers)

    @app.exception_handler(AnyHTTPException)
    def refused(request: Request, error: AnyHTTPException) -> Response:
        return answer(request, error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    def misshapen(request: Request, error: RequestValidationError) -> Response:
        # Without what was sent, which need not fit into JSON.
        wrong = "; ".join(f"{one['msg']} ({one['loc'][-1]})" for one in error.errors())
        return answer(request, 422, shorten(wrong, 1000))

    def unfit(request: Request, error: Exception) -> Response:
        return answer(request, 409, make_plain(str(error)))

    for kind in (CertificateError, HistoryError, ValueError):
        app.exception_handler(kind)(unfit)

    def unreachable(request: Request, error: Exception) -> Response:
        _LOG.warning("rescind: the desk cannot answer: %s", make_plain(str(error)))
        return answer(request, 503, _UNREADABLE)

    for broken in (OSError, DBAPIError):
        app.exception_handler(broken)(unreachable)
