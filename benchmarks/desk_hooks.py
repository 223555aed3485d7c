"""What schemathesis is told of a desk: whose token a request has, which requests there are, and what they are about.

It generates bodies and numbers by the description alone, which would seldom meet a request that exists, and never a
signature that holds. So of what fits the description a part is replaced by what is real. The tokens are of many
logins, as each may change something once a second only. It is loaded by schemathesis' own Python.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Any

import requests
import schemathesis

_TOLD = json.loads(Path(os.environ["RESCIND_DESK_HOOKS"]).read_text())
_CODES = Path(os.environ["RESCIND_DESK_HOOKS"]).with_name("codes")
_RANDOM = random.Random(int(_TOLD["seed"]))
_TOKENS: dict[str, Iterator[str]] = {role: cycle(tokens) for role, tokens in _TOLD["tokens"].items()}
_KNOWN = {token for tokens in _TOLD["tokens"].values() for token in tokens}
_FOR_ALL = ("/health", "/api/v1/receipt")
_SIGNED: Iterator[Any] = cycle(_TOLD["signed"])


def _get(path: str) -> requests.Response:
    """Return something of the requests, apart from what is tried."""
    headers = {"Authorization": f"Bearer {next(_TOKENS['approve'])}"}
    return requests.get(f"{_TOLD['site']}/api/v1/requests{path}", headers=headers, timeout=60)


class Requests:
    """The requests that there are, as they were a second ago at most."""

    def __init__(self) -> None:
        self._known: list[dict[str, Any]] = []
        self._looked = -1.0

    def look(self) -> list[dict[str, Any]]:
        """Return them."""
        if monotonic() - self._looked > 1:
            self._known, self._looked = _get("").json(), monotonic()
        return self._known


_REQUESTS = Requests()


@schemathesis.auth(refresh_interval=None)
class Tokens:
    """Mostly that of a login that may do what is asked for."""

    def get(self, case: Any, context: Any) -> str:  # noqa: ARG002
        """Return a token."""
        role = "approve" if case.operation.path.endswith(("/approve", "/refuse", "/approval")) else "operate"
        return next(_TOKENS[_RANDOM.choice(list(_TOKENS)) if _RANDOM.random() < 0.1 else role])

    def set(self, case: Any, data: str, context: Any) -> None:  # noqa: ARG002
        """Give it to a request."""
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:  # noqa: ARG001
    """Give a request something that it can be about."""
    path = case.operation.path
    number = (case.path_parameters or {}).get("number")
    if isinstance(number, int) and 1 <= number < 2**31 and _RANDOM.random() < 0.8:
        known = _REQUESTS.look()
        chosen = [one for one in known if one["state"] == "open"] if _RANDOM.random() < 0.6 else known
        case.path_parameters["number"] = _RANDOM.choice(chosen or known)["request"]
    if case.operation.method.upper() == "POST" and isinstance(case.body, dict) and _RANDOM.random() < 0.5:
        if path == "/api/v1/requests":
            case.body = next(_SIGNED)
        elif path == "/api/v1/receipt":
            case.body = _TOLD["receipt"]
        elif path.endswith("/approve") and case.body.keys() == {"plan"}:
            case.body |= _look_at_plan(case.path_parameters["number"])


def _look_at_plan(number: object) -> dict[str, int]:
    """Return the number of a request's plan, if there is one, as whoever approves looks at it before."""
    told = _get(f"/{number}/approval")
    return {"plan": told.json()["approval"]["plan"]} if told.status_code == 200 else {}


@schemathesis.check
def strangers_get_nothing(context: Any, response: Any, case: Any) -> None:  # noqa: ARG001
    """Whoever has no token, or one that is nobody's, is told nothing but that."""
    token = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
    if case.operation.path not in _FOR_ALL and token not in _KNOWN:
        assert response.status_code >= 400, "a stranger is let in"


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:  # noqa: ARG001
    """Write down what was answered."""
    with _CODES.open("a") as file:
        file.write(f"{case.operation.method.upper()} {case.operation.path} {response.status_code}\n")
