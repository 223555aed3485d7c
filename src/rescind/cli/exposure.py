"""What a SuperLink serves to whoever reaches its port."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

_SECONDS = 10.0
_PROTOBUF = "application/protobuf"
# A request that says nothing of its content does nothing: Flower answers it with 415.
_UNSUPPORTED, _UNAUTHORIZED = 415, 401
_REFUSED = (403, 404)
_FLEET, _CONTROL, _RUNTIME = "/v1/fleet/pull-messages", "/v1/control/list-nodes", "/v1/runtime/acquire-task"
_WHAT_TO_DO = (
    "let the SuperLink listen on 127.0.0.1 only (--host), with a proxy in front that passes on what SuperNodes need: "
    "docs/deployment.md has one"
)


@dataclass(frozen=True, slots=True)
class Exposure:
    """How a SuperLink answers somebody without a key, as HTTP status codes.

    Attributes:
        fleet: to what SuperNodes call.
        control: to a request to list the federation's nodes.
        runtime: to what the ServerApp calls.
    """

    fleet: int
    control: int
    runtime: int


def try_superlink(address: str, root_certificates: Path | None) -> Exposure:
    """Ask a SuperLink, as an outsider would, to list its nodes, and whether its other interfaces answer.

    Args:
        address: HOST:PORT, as SuperNodes are told.
        root_certificates: the authority's certificate; None means those that this machine trusts.

    Returns:
        how it answered.

    Raises:
        ValueError: the address is none.
        OSError: nobody answers there, or not with a certificate of this authority; or the file cannot be read.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.netloc != address or "@" in address:
        raise ValueError(f"{address!a:.80} is no address: write HOST:PORT, as SuperNodes are told")
    context = ssl.create_default_context(cafile=root_certificates)

    def ask(path: str, content_type: str | None) -> int:
        connection = HTTPSConnection(host, port, timeout=_SECONDS, context=context)
        try:
            connection.request("POST", path, b"", {"Content-Type": content_type} if content_type else {})
            return connection.getresponse().status
        except HTTPException as odd:
            raise OSError(f"what answers is no HTTP: {type(odd).__name__}") from odd
        finally:
            connection.close()

    return Exposure(ask(_FLEET, None), ask(_CONTROL, _PROTOBUF), ask(_RUNTIME, None))


def judge_exposure(exposure: Exposure) -> tuple[Literal["fine", "note", "repair"], str]:
    """Return whether an outsider gets no further than a SuperNode has to, and what to do if not."""
    if exposure.fleet not in (_UNSUPPORTED, _UNAUTHORIZED):
        return "repair", (
            f"no SuperLink that this version knows answers there (HTTP {exposure.fleet}), and nothing was shown: "
            "check the address"
        )
    if exposure.control == 200:
        return "repair", (
            "it lists its nodes to whoever asks, without a login: whoever reaches this port runs code on the "
            f"coordinator and on every participant's machine. Close it now: {_WHAT_TO_DO}"
        )
    open_to_all = [
        name
        for name, status in (("control", exposure.control), ("runtime", exposure.runtime))
        if status not in _REFUSED
    ]
    if open_to_all == ["control"] and exposure.control == _UNAUTHORIZED:
        return "note", f"its control interface can be reached, and asks for a login: better, {_WHAT_TO_DO}"
    if open_to_all:
        return "repair", f"its {' and '.join(open_to_all)} interface can be reached from here: {_WHAT_TO_DO}"
    return "fine", "from here only what SuperNodes need can be reached"
