"""The desk's pages: an overview to leave open, a request, a leaver's own page. They work without a script."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Final

from rescind.certificates.approvals import ToSign
from rescind.certificates.wording import describe_names
from rescind.desk.board import Board, Found, Moved, Overview, RequestShown
from rescind.desk.logins import Login, Role
from rescind.desk.pictures import draw_accuracies, draw_deadlines, draw_influences
from rescind.pages.fragments import (
    MODES,
    STYLE,
    escape,
    fold,
    render_figure,
    render_items,
    render_page,
    render_table,
    render_warning,
)
from rescind.pages.summary import count
from rescind.texts import list_some, make_plain, shorten
from rescind.views.plans import describe_agreed

SCRIPT: Final = """"use strict";
// The page shows the run as it is now; whoever fills in a form is left alone.
const again = async () => {
  const page = await fetch(location.href, { redirect: "manual" });
  if (page.type === "opaqueredirect") return location.reload();
  if (!page.ok) throw page.status;
  const main = new DOMParser().parseFromString(await page.text(), "text/html").querySelector("main");
  const open = [...document.querySelectorAll("details")].map((each) => each.open);
  main.querySelectorAll("details").forEach((each, at) => { each.open = open[at]; });
  const held = document.activeElement;
  document.querySelector("main").replaceWith(main);
  [...main.querySelectorAll(held.tagName)].find((each) => each.outerHTML === held.outerHTML)?.focus();
};
const tell = () => { document.querySelector("#stale").hidden = false; };
if (document.querySelector("meta[name=refreshes]")) setInterval(() => again().catch(tell), 15000);
"""
_EXTRA: Final = """
nav { display: flex; flex-wrap: wrap; align-items: baseline; gap: .4rem 1.2rem; margin-top: 1rem; }
main { overflow-wrap: break-word; } td:nth-child(2) { overflow-wrap: anywhere; } body { margin-top: 0; }
.late { color: var(--wrong); font-weight: 600; }
.soon { color: var(--weak); font-weight: 600; } .scroll { overflow-x: auto; }
form p { margin: .6rem 0; } label { display: block; font-weight: 600; }
input, textarea, button { font: inherit; max-width: 100%; box-sizing: border-box; padding: .3rem .6rem; }
input[type="text"], input[type="password"], textarea { width: 100%; }
textarea { min-height: 7rem; font-family: monospace; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
_SIGNED_IN: Final = """<nav aria-label="Desk"><a href="/">Overview</a> <a href="/leaver">For participants</a>
<span>{who}</span> <form method="post" action="/logout"><button>Sign out</button></form></nav>"""
_ANYBODY: Final = '<nav aria-label="Desk"><a href="/">Desk</a> <a href="/leaver">For participants</a></nav>'
_REFRESHES: Final = (
    '<meta name="refreshes" content="15"><script src="/desk.js" defer></script>'
    '<noscript><meta http-equiv="refresh" content="30"></noscript>'
)
_SOON = 7
# In a list; all of it is on the request's own page.
_LONGEST_WHO = 80
# Two months, in days; the history decides by the calendar.
MOST_DAYS: Final = 62


def style_sources() -> str:
    """Return what a content-security policy says of the pages' styles: these, and no others."""
    digests = (hashlib.sha256(text.encode()).digest() for text in (STYLE, _EXTRA))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _page(title: str, content: Iterable[str], login: Login | None, head: str = "") -> str:
    who = "" if login is None else escape(f"{login.name} ({login.role})")
    bar = _ANYBODY if login is None else _SIGNED_IN.format(who=who)
    return render_page(title, content, f"<style>{_EXTRA}</style>{head}", bar)


def render_message(title: str, sentence: str, login: Login | None = None) -> str:
    """Return a page that says one thing."""
    return _page(title, [f"<p>{escape(sentence)}</p>"], login)


def render_sign_in(problem: str = "") -> str:
    """Return the page on which a token is given."""
    return _page(
        "rescind desk",
        [
            *render_warning("That was no token of this desk", [problem] if problem else []),
            '<form method="post" action="/login"><p><label for="token">Your token</label>'
            '<input id="token" name="token" type="password" autocomplete="current-password" required></p>'
            "<p><button>Sign in</button></p></form>",
            "<p>The operator makes one for you: <code>rescind desk token HISTORY NAME --role read</code>. Whoever "
            'left needs none: <a href="/leaver">with a receipt</a>.</p>',
        ],
        None,
    )


def render_overview(board: Board, login: Login, problem: str) -> str:
    """Return the page to leave open."""
    view, waiting = board.overview_for(login), [request for request in board.requests if request.unfinished]
    names = describe_names({"operator": view.operator, "federation": view.federation, "model": view.model})
    return _page(
        f"The federation {view.federation}" if view.federation else "A federation",
        [
            '<p id="stale" class="late" hidden>The desk does not answer: this is how it was.</p>',
            f"<p>Run {escape(view.run + (names and f'; {names}'))}; as it was {_moment(view.time)}.</p>",
            *_verdict(view, waiting, problem),
            *render_warning("To be seen to", [*([problem] if problem else []), *view.problems]),
            "<h2>Requests that wait</h2>",
            *(_list_requests("Requests that wait", waiting) if waiting else ["<p>Nobody waits to be forgotten.</p>"]),
            *(_plan(request) for request in waiting if request.plan and request.waits_for_approval_since),
            *([render_figure(draw_deadlines(waiting, _day(view.time)))] if waiting else []),
            "<h2>The model</h2>",
            *_model(view),
            *([render_figure(draw_accuracies(view.accuracies))] if view.accuracies else []),
            *_moved(view.influences),
            *_closed(board),
        ],
        login,
        _REFRESHES,
    )


def _verdict(view: Overview, waiting: list[RequestShown], problem: str) -> Iterator[str]:
    late = [request for request in waiting if request.overdue]
    soon = [request for request in waiting if not request.overdue and request.days_left < _SOON]
    if late or problem or view.problems:
        grade = "wrong"
        verdict = f"{count(len(late), 'request')} overdue" if late else "Something has to be seen to"
    elif soon or view.undecided_requests:
        grade = "weak"
        verdict = f"{count(len(soon), 'request')} due within a week" if soon else "A plan waits for approval"
    else:
        grade, verdict = "fine", "Nothing is due"
    missing = str(view.states.get("silent", "nobody can tell"))
    facts = (
        (count(view.rounds, "round"), f"recorded, the last {_moment(view.last_round)}" if view.last_round else ""),
        (count(view.clients, "participant"), "in the newest model"),
        (missing, "missing in the last round"),
        (count(view.open_requests, "open request"), f"{view.undecided_requests} waiting for approval"),
    )
    yield f'<section class="banner {grade}"><h2>{escape(verdict)}</h2><ul class="facts">'
    yield from (f"<li><strong>{escape(word)}</strong> {sentence}</li>" for word, sentence in facts)
    yield "</ul></section>"


def _list_requests(title: str, requests: Iterable[RequestShown]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("request", "who leaves", "state", "due"))
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><tr>{heads}</tr>'
    for request in requests:
        who = shorten(("rows of " if request.rows else "") + ", ".join(request.clients), _LONGEST_WHO)
        cells = (f'<a href="/requests/{request.request}">{request.request}</a>', escape(who), _state(request))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{_due(request)}</td></tr>"
    yield "</table></div>"


def _state(request: RequestShown) -> str:
    waits = "; waits for approval" if request.waits_for_approval_since else "; approved" if request.plan else ""
    return escape(request.state + waits + ("; its rows are not named yet" if request.waits_for_rows else ""))


def _due(request: RequestShown) -> str:
    day = escape(request.deadline[:10])
    if not request.unfinished:
        return day
    if request.overdue:
        return f'{day}: <span class="late">{count(-request.days_left, "day")} overdue</span>'
    left = f"{count(request.days_left, 'day')} left"
    return f"{day}: " + (f'<span class="soon">{left}</span>' if request.days_left < _SOON else left)


def _plan(request: RequestShown) -> str:
    link = f'<a href="/requests/{request.request}">look at it</a>'
    return f"<p>Waits for approval: {escape(request.plan or '')} ({link})</p>"


def _model(view: Overview) -> Iterator[str]:
    lines = [
        f"Newest: {view.newest}; {count(view.kept_models, 'checkpoint')}, {view.stored_bytes / 1e6:,.1f} MB stored.",
        *(
            [f"Who waits in request {list_some(knowing, 12)} may be in it: hand it to nobody until that is served."]
            if (knowing := [str(number) for number in view.newest_knows])
            else []
        ),
        f"If a participant left now, without retraining: {view.if_somebody_left}, that is, "
        f"{MODES[view.if_somebody_left]}. Retraining is always exact.",
        "Participants: " + ", ".join(f"{number} {state}" for state, number in view.states.items() if number) + ".",
        "No request has a certificate in this desk's folder."
        if view.last_certificate is None
        else f"The last certificate is that of request {view.last_certificate}.",
    ]
    yield from render_items(lines)
    if view.outsiders:
        yield "<h3>Left out of the newest model, though they may take part</h3>"
        yield from render_items(view.outsiders)


def _moved(influences: Sequence[Moved]) -> Iterator[str]:
    if influences:
        yield "<h2>Who moved the model how far</h2>"
        yield render_figure(draw_influences(influences))
        yield "<p>Computed from participants' data: for the operator alone.</p>"


def _closed(board: Board) -> Iterator[str]:
    closed = [request for request in reversed(board.requests) if not request.unfinished]
    if closed:
        title = "Requests that are closed"
        yield from fold(f"{title} ({len(closed)})", _list_requests(title, closed))


def render_request(request: RequestShown, login: Login, asked: ToSign | None, by_login: bool) -> str:
    """Return a request's page; ``asked`` is what can be approved, if there is something."""
    number = request.request
    plain = [
        f"<p>{escape(('Rows of ' if request.rows else '') + ', '.join(request.clients))}: {_state(request)}; due "
        f"{_due(request)}.</p>",
        *([f"<p>{escape(request.plan)}</p>"] if request.plan else []),
        "<h2>What happened</h2>",
        "<ol>",
        *(f"<li>{_moment(step.time)}: {escape(step.what)}{_by(step.login)}</li>" for step in request.steps),
        "</ol>",
    ]
    if request.certified:
        plain.append(
            f'<p><a href="/requests/{number}/certificate">Its certificate</a>: who signed it is not checked here '
            "(<code>rescind verify</code>).</p>"
        )
    forms: list[str] = []
    if request.state == "open" and login.may(Role.APPROVE):
        forms += [*_approve(number, asked, by_login), *_refuse(number)]
    if request.state == "open" and login.may(Role.OPERATE):
        forms += [*_extend(number), *_withdraw(number)]
    return _page(f"Request {number}", [*plain, *forms], login)


def _by(login: str | None) -> str:
    return f" (at the desk, by {escape(login)})" if login else ""


def _form(number: int, action: str, fields: str, word: str) -> str:
    return f'<form method="post" action="/requests/{number}/{action}">{fields}<p><button>{word}</button></p></form>'


def _ask_why(action: str, label: str, needed: str = " required") -> str:
    name = f"why-{action}"
    return (
        f'<p><label for="{name}">{label}</label><input id="{name}" name="reason" type="text" '
        f'maxlength="1000"{needed}></p>'
    )


def _approve(number: int, asked: ToSign | None, by_login: bool) -> Iterator[str]:
    yield "<h2>Approve</h2>"
    if asked is None:
        yield "<p>There is no plan to approve: the federation's next run makes one.</p>"
        return
    plan = asked.approval.plan
    hidden = f'<input type="hidden" name="plan" value="{plan}">'
    # What stands above may be of the moment before.
    yield f"<p>Entry {plan} of the journal: {escape(make_plain(describe_agreed(asked.read())))}</p>"
    yield (
        f'<p>Your key stays with you. Save <a href="/requests/{number}/approval.json">approval.json</a>, sign it by '
        "<code>rescind key approve approval.json --key YOUR.key</code>, which shows the plan, and paste what that "
        "prints.</p>"
    )
    signed = (
        '<p><label for="signed">What it printed</label><textarea id="signed" name="signed" required></textarea></p>'
    )
    yield _form(number, "approve", hidden + signed, "Approve, signed")
    if by_login:
        yield "<p>Or by your login alone; the certificate will say so.</p>"
        yield _form(number, "approve", hidden, "Approve by my login")


def _refuse(number: int) -> Iterator[str]:
    yield "<h2>Refuse</h2><p>The requester has to be told why within a month (GDPR art. 12(4)).</p>"
    yield _form(number, "refuse", _ask_why("refuse", "Why, without names; it is recorded for good"), "Refuse")


def _extend(number: int) -> Iterator[str]:
    yield "<h2>Extend the deadline</h2><p>The requester has to be told within its first month (GDPR art. 12(3)).</p>"
    days = (
        '<p><label for="days">By how many days</label>'
        f'<input id="days" name="days" type="number" min="1" max="{MOST_DAYS}" required></p>'
    )
    yield _form(number, "extend", days + _ask_why("extend", "Why, without names; it is recorded for good"), "Extend")


def _withdraw(number: int) -> Iterator[str]:
    yield "<h2>Withdraw</h2>"
    yield _form(number, "withdraw", _ask_why("withdraw", "Why, without names, if need be", ""), "Withdraw")


def render_leaver(own: Found | None = None, receipt: str = "", problem: str = "") -> str:
    """Return the page on which a participant finds its request by its receipt; ``own`` is what is told of it."""
    content = list(render_warning("That receipt is of no use here", [problem] if problem else []))
    if own is not None:
        told = {
            "your request": f"number {own.request}",
            "state": own.state,
            "asked": own.asked[:10],
            "due": own.deadline[:10],
            "certificate": "signed" if own.certificate else "not yet",
        }
        content += render_table(told.items())
        if own.state == "refused":
            content.append("<p>The operator has to tell you why (GDPR art. 12(4)).</p>")
    if own is not None and own.certificate:
        content.append(
            f'<form method="post" action="/leaver/certificate"><input type="hidden" name="receipt" '
            f'value="{html.escape(receipt)}"><p><button>Fetch the certificate</button></p></form>'
            "<p>Check it with the operator's public key, from another source than this page: <code>rescind verify "
            "certificate.json --key operator.key.pub --receipt receipt.json</code></p>"
        )
    content.append(
        '<form method="post" action="/leaver"><p><label for="receipt">Your receipt</label>'
        '<textarea id="receipt" name="receipt" required></textarea></p><p><button>Look it up</button></p></form>'
        "<p>Open the receipt's file and paste all of it. Nothing of it is kept here.</p>"
    )
    return _page("Were you forgotten?", content, None)


def _moment(time: str) -> str:
    return escape(f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M %Z}")


def _day(time: str) -> date:
    return datetime.fromisoformat(time).date()
