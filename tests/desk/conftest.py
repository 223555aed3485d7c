from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import httpx
import pytest
import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rescind import Exact, History, Revocable, Rounds, Scratch
from rescind.desk.app import Desk, make_app
from rescind.desk.board import Reader
from rescind.desk.changes import Changes
from rescind.desk.guard import Guard
from rescind.desk.logins import Role, add_login
from rescind.desk.server import configure
from rescind.history.participants import name_key
from rescind.simulation import Simulation, SoftmaxHead
from rescind.testing import small
from tests.builders import BUDGET, ask_ago

FEDERATION = "Six clinics"
PEM = serialization.Encoding.PEM


class Served(uvicorn.Server):
    """A desk that listens on a free port, in a thread of its own."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(configure(make_app(desk), port=0))
        self._thread = Thread(target=self.run, daemon=True)
        self._thread.start()
        while not self.started:
            assert self._thread.is_alive()
            sleep(0.01)

    @property
    def site(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self.should_exit = True
        self._thread.join()


@dataclass
class Office:
    """A desk with a login for each role, and the history that it shows."""

    folder: Path
    desk: Desk
    tokens: dict[Role, str]
    served: list[Served]
    browsers: ExitStack

    def open(self) -> AbstractContextManager[History]:
        return History(self.folder / "history", create=False)

    @property
    def site(self) -> str:
        return self.served[-1].site

    def browser(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.site, follow_redirects=False, timeout=30, trust_env=False, **options)

    def ask(self, role: Role | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {} if role is None else {"authorization": f"Bearer {self.tokens[role]}"}
        with self.browser() as browser:
            return browser.request(method, path, headers=headers | options.pop("headers", {}), **options)

    def signed_in(self, role: Role) -> httpx.Client:
        browser = self.browsers.enter_context(self.browser(headers={"origin": self.site}))
        assert browser.post("/login", data={"token": self.tokens[role]}).status_code == 303
        return browser

    def journal(self) -> list[Any]:
        with self.open() as history:
            return [event for _, event in history.timeline.moments]

    def restart(self, *, by_login: bool) -> None:
        """Serve the same history again, with another say about logins."""
        reader = Reader(self.open, self.desk.reader.certificates)
        reader.refresh()
        self.desk = Desk(reader, Changes(self.open, by_login), Guard(self.desk.guard.file))
        self.served.append(Served(self.desk))


def engine(key: Path, *, fresh: bool = True) -> Simulation:
    """Return the small federation, of which one client is known by the key that it signs with."""
    made, own = small.federation(8), write_key(key) if fresh else read_name(key)
    shards = {(own if name == "clinic-5" else name): shard for name, shard in made.shards.items()}
    head = SoftmaxHead(small.FEATURES, small.CLASSES)
    return Simulation(replace(made, shards=shards), head, small.TRAINING, secret=b"a desk", secret_noise=True)


def live(folder: Path) -> None:
    """Record a federation's life: a request that was served, one overdue, one that waits for approval, one open."""
    with History(folder) as history:
        history.name_run(operator="City <b>Hospitals</b>", federation=FEDERATION, model="risk head")
        federation = Revocable(history, engine(folder.parent / "leaver.key"))
        federation.train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(2))
        ask_ago(history, "clinic-2", days=45)
        history.requests.ask(["clinic-3"], BUDGET)
        federation.forget(Exact(), Rounds(2), approval=True)
        history.requests.withdraw(history.requests.ask(["clinic-4"], BUDGET), "asked <i>by mistake</i>")


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived")
    live(folder / "history")
    return folder


@pytest.fixture
def office(lived: Path, tmp_path: Path) -> Iterator[Office]:
    shutil.copytree(lived, tmp_path, dirs_exist_ok=True)
    (tmp_path / "certificates").mkdir()
    logins = tmp_path / "history.desk"
    tokens = {role: add_login(logins, f"T. {role.capitalize()}", role) for role in Role}

    def open_history() -> AbstractContextManager[History]:
        return History(tmp_path / "history", create=False)

    reader = Reader(open_history, tmp_path / "certificates")
    reader.refresh()
    desk = Desk(reader, Changes(open_history, by_login=False), Guard(logins))
    with ExitStack() as browsers:
        office = Office(tmp_path, desk, tokens, [Served(desk)], browsers)
        yield office
    for served in office.served:
        served.stop()


def wait_for(happened: Callable[[], object]) -> None:
    for _ in range(500):
        if happened():
            return
        sleep(0.02)
    raise AssertionError("it did not happen in ten seconds")


def write_key(path: Path) -> str:
    """Write a key such as a SuperNode has, and return the name by which a history knows its client."""
    private, form = ec.generate_private_key(ec.SECP384R1()), serialization.PrivateFormat.OpenSSH
    path.write_bytes(private.private_bytes(PEM, form, serialization.NoEncryption()))
    path.chmod(0o600)
    return read_name(path)


def read_name(path: Path) -> str:
    """Return the name by which a history knows the client of a key."""
    public = serialization.load_ssh_private_key(path.read_bytes(), None).public_key()
    return name_key(public.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
