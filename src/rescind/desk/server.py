"""The desk as a process: what it is given is checked, then it listens until it is ended."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from rescind.desk.app import Desk, make_app
from rescind.desk.board import Reader
from rescind.desk.changes import Changes
from rescind.desk.guard import Guard
from rescind.desk.logins import read_logins
from rescind.desk.webhooks import LOCAL, Outbox, check_url, read_secret
from rescind.history.history import History

# More connections than these are answered with 503.
_MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """How the desk is served.

    Attributes:
        logins: the file of logins.
        host: the address that it listens at.
        port: its port.
        certificates: the folder in which certificates are looked for.
        accuracies: a file of accuracies over time.
        tls: files of a certificate and its key.
        webhook: where messages about requests go.
        by_login: whether a login's word is enough to approve.
    """

    logins: Path
    host: str = "127.0.0.1"
    port: int = 8765
    certificates: Path | None = None
    accuracies: Path | None = None
    tls: tuple[Path, Path] | None = None
    webhook: str | None = None
    by_login: bool = False


def serve(
    open_history: Callable[[], AbstractContextManager[History]], settings: Settings, ready: Callable[[], None]
) -> None:
    """Serve the desk until the process is ended; ``ready`` is called once nothing stands against it.

    Raises:
        ValueError: it would listen for other machines without TLS, nobody has a login, or an address is none.
        HistoryError: there is no such history.
    """
    if settings.host not in LOCAL and settings.tls is None:
        raise ValueError(
            f"at {settings.host} tokens could be read on their way: give --tls-certificate and --tls-key, or listen "
            "on 127.0.0.1 behind a proxy that has TLS"
        )
    if not read_logins(settings.logins):
        raise ValueError("nobody has a token yet: rescind desk token HISTORY NAME --role operate")
    if settings.certificates is not None and not settings.certificates.is_dir():
        raise ValueError(f"the folder {settings.certificates} for certificates does not exist")
    with open_history():
        pass
    outbox, reader = None, Reader(open_history, settings.certificates, settings.accuracies)
    if settings.webhook is not None:
        secret = settings.logins.with_suffix(".webhook-secret")
        outbox = Outbox(
            check_url(settings.webhook), read_secret(secret), settings.logins.with_suffix(".webhooks.json")
        )
        try:
            # Held until the process ends.
            fcntl.flock(os.open(secret, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # Each would undo what the other writes down of what it sent.
            raise ValueError("another desk sends these webhooks: end it, or leave out --webhook here") from error
        reader.notify = outbox.note
        outbox.start()
    reader.start()
    ready()
    app = make_app(Desk(reader, Changes(open_history, settings.by_login), Guard(settings.logins)))
    try:
        uvicorn.Server(configure(app, settings.host, settings.port, settings.tls)).run()
    finally:
        reader.stop()
        if outbox is not None:
            outbox.stop()


def configure(
    app: Any, host: str = "127.0.0.1", port: int = 8765, tls: tuple[Path, Path] | None = None
) -> uvicorn.Config:
    """Return how an application is served."""
    certificate, key = tls or (None, None)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        # Addresses and times of whoever looks are nobody's business.
        access_log=False,
        log_level="warning",
        server_header=False,
        lifespan="off",
        # The other one reads headers without end.
        http="h11",
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=5,
    )
