"""A desk for the length of a measurement, as a process with a token for each role; and a federation's life for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NamedTuple, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks._federation import free_port
from benchmarks.recorded import ask_ago as ask_ago
from rescind import Accuracies, Budget, Exact, History, Revocable, Rounds, Scratch
from rescind.certificates.leaving import Receipt, write_receipt
from rescind.core.facts import PrivacyScope
from rescind.desk.logins import Role, add_login
from rescind.history.participants import name_key
from rescind.simulation import Simulation, SoftmaxHead
from rescind.testing import small

PROGRAM = Path(sys.executable).with_name("rescind")
PATIENCE = 120.0
BUDGET = Budget(8.0, 0.01)
# As people have them, and as somebody writes them who wants a page to break.
_LABELS = {
    "clinic-1": "Klinikum Nord",
    "clinic-2": "Hôpital des Enfants",
    "clinic-3": "St. Mary's",
    "clinic-4": "Universitätsklinikum <i>Süd</i>, Abteilung für Kardiologie und Angiologie, Haus 4",
    "clinic-5": "x" * 120,
}
# Those who have a key, and can sign a request.
KEYED = ("clinic-10", "clinic-11", "clinic-12", "clinic-13")
FEDERATION = "Sixteen clinics"
# The requests of a life, by how they stand in its end.
SERVED, OVERDUE, WAITING, SOON, WITHDRAWN, REFUSED, UNNAMED, OPEN = range(1, 9)


class Answer(NamedTuple):
    """What came back: the status, the headers in small letters, and the content."""

    code: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Desk:
    """A desk beside a history's folder, on a free port; ``tokens`` are by role."""

    def __init__(self, history: Path, *words: object) -> None:
        self.port = free_port()
        self._command = [str(PROGRAM), "desk", "serve", str(history), "--port", str(self.port), *map(str, words)]
        self._log = history.with_name(history.name + ".desk.log")
        self.logins = history.with_name(history.name + ".desk")
        self.logins.unlink(missing_ok=True)
        self.tokens = {role: add_login(self.logins, f"T. {role.capitalize()}", role) for role in Role}

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=os.environ)
        end = monotonic() + PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or monotonic() > end:
                self.__exit__(None, None, None)
                raise RuntimeError(f"the desk did not start:\n{self.log()[-3000:]}")
            sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()

    @property
    def site(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processor_seconds(self) -> float:
        """Return how long it has kept a core busy so far."""
        numbers = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def ask(
        self, role: Role | None, path: str, body: Mapping[str, object] | bytes | None = None, timeout: float = 60.0
    ) -> Answer:
        """Get something, or send a body as JSON or as it is."""
        headers = {} if role is None else {"authorization": f"Bearer {self.tokens[role]}"}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None:
            headers["content-type"] = "application/json"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET" if content is None else "POST", path, content, headers)
            told = connection.getresponse()
            return Answer(told.status, {name.lower(): value for name, value in told.getheaders()}, told.read())
        finally:
            connection.close()

    def _is_ready(self) -> bool:
        try:
            return self.ask(None, "/health", timeout=5).code in (200, 503)
        except (OSError, HTTPException):
            return False


def run(*words: object) -> str:
    """Run the command line as a program; what it does not do is an error."""
    done = subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"rescind {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


def live(folder: Path, rounds: int) -> None:
    """Record a federation's life with a request of each kind; with the keys, a receipt and a certificate."""
    (folder / "certificates").mkdir(parents=True)
    for name in KEYED:
        write_key(folder / f"{name}.key")
    engine = make_engine(folder)
    with History(folder / "history") as history:
        history.name_run(operator="City <b>Hospitals</b>", federation=FEDERATION, model="risk head")
        watch = Accuracies(folder / "accuracies.jsonl", history, engine)
        federation = Revocable(history, engine, watch=watch)
        federation.train(Rounds(rounds))
        history.participants.label(_LABELS)
        history.requests.ask(["clinic-1"], BUDGET)
        receipt = Receipt(
            run=history.identifier,
            request=SERVED,
            called=_LABELS["clinic-1"],
            names={"clinic-1": history.participants.receipt("clinic-1")},
        )
        write_receipt(folder / "receipt.json", receipt)
        federation.forget(Scratch(), Rounds(rounds // 2))
        for name, days in (("clinic-2", 45), ("clinic-3", 3), ("clinic-5", 26)):
            ask_ago(history, name, days)
        federation.forget(Exact(), Rounds(2), approval=True)
        history.requests.withdraw(ask_ago(history, "clinic-4", 1), "asked <i>by mistake</i>")
        history.requests.refuse(ask_ago(history, "clinic-6", 1), "A. Officer", "a law asks to keep the data")
        history.requests.ask(["clinic-7"], BUDGET, scope=PrivacyScope.RECORDS)
        ask_ago(history, "clinic-4", 1)
    for key in ("operator.key", "officer.key"):
        run("key", "new", folder / key)
    run(
        *("certify", folder / "history", SERVED, "--key", folder / "operator.key"),
        *("--output", folder / "certificates" / "certificate-1.json"),
    )


def make_engine(folder: Path) -> Simulation:
    """Return the federation of a life; those who have a key there are known by it."""
    made = small.federation(16)
    names = {name: read_name(folder / f"{name}.key") for name in KEYED}
    return Simulation(
        replace(made, shards={names.get(name, name): shard for name, shard in made.shards.items()}),
        SoftmaxHead(small.FEATURES, small.CLASSES),
        small.TRAINING,
        secret=b"a desk",
        secret_noise=True,
    )


def write_key(path: Path) -> None:
    """Write a key such as a SuperNode has."""
    form, unlocked = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    path.touch(mode=0o600)
    path.write_bytes(
        ec.generate_private_key(ec.SECP384R1()).private_bytes(serialization.Encoding.PEM, form, unlocked)
    )


def read_name(path: Path) -> str:
    """Return the name by which a history knows the client of a key."""
    public = serialization.load_ssh_private_key(path.read_bytes(), None).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return name_key(public.public_bytes(serialization.Encoding.PEM, form))
