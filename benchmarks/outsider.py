"""Can somebody without a key do anything to the deployment that docs/deployment.md describes?

A SuperLink and the program that starts ServerApps, as the page's units start them, nginx in front with the page's
configuration, and registered SuperNodes, all processes of this machine. The federation trains through nginx. Then an
outsider, who has the address and the authority's certificate as every participant has, uses Flower's own commands:
list the nodes, list the runs, read a run's log, start an app of its own, unregister a participant. ``listed``,
``ran``, ``read`` and ``removed`` count what it got. The same attack where the SuperLink itself listens, which only
accounts of the coordinator reach, has to succeed (``behind_``): otherwise the attack would show nothing. A task is
handed out there to nobody without the secret of the units (``tasks``). ``untrusting`` counts the operator's own
messages that a node with Flower's ``--trusted-entities`` took.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from time import monotonic, sleep

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser
from rescind import History
from rescind.ledger.records import Span

HOSPITALS = Path(__file__).parents[1] / "examples" / "hospitals"
STRANGER = Path(__file__).parent / "stranger"
PROGRAMS = Path(sys.executable).parent
NAMES = ("cleveland", "hungary", "switzerland")
SECONDS = 300.0


@dataclass(frozen=True)
class Loot:
    """What an outsider got: nodes and runs that it could list, apps that ran, rows that it read, nodes it removed."""

    listed: int
    ran: int
    read: int
    removed: int


class Outsider:
    """Somebody with an address and the authority's certificate, and Flower's command line."""

    def __init__(self, folder: Path, address: str, authority: Path) -> None:
        folder.mkdir()
        self._folder = folder
        known = f'[superlink.fed]\naddress = "{address}"\nroot-certificates = "{authority}"\n'
        (folder / "config.toml").write_text(known)

    def command(self, *words: object) -> tuple[bool, str]:
        """Return whether a command of Flower's succeeded, and what it printed."""
        own = os.environ | {"FLWR_HOME": str(self._folder), "FLWR_TELEMETRY_ENABLED": "0"}
        command = [str(PROGRAMS / "flwr"), *map(str, words)]
        done = subprocess.run(
            command, env=own, cwd=self._folder, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode == 0, done.stdout + done.stderr

    def ask(self, *words: object) -> dict[str, object]:
        """Return what a command answers; nothing if it failed."""
        well, printed = self.command(*words, "--format", "json")
        begin = printed.find("{")
        try:
            answer = json.loads(printed[begin:]) if begin >= 0 else {}
        except json.JSONDecodeError:
            answer = {}
        return answer if well and answer.get("success") else {}

    def attack(self, secret: Path, node: int, run: str) -> Loot:
        """List, read, run an app, remove a participant."""
        listed = sum(
            len(found)
            for words, key in ((("supernode", "list"), "nodes"), (("list",), "runs"))
            if isinstance(found := self.ask(*words, "fed").get(key), list)
        )
        ran = read = 0
        well, log = self.command("log", run, "fed", "--show")
        listed += well and "rescind" in log
        (self._folder / "run.toml").write_text(f"secret = {json.dumps(str(secret))}\n")
        begun = self.ask("run", STRANGER, "fed", "--run-config", self._folder / "run.toml").get("run-id")
        if begun is not None:
            ran, end = 1, monotonic() + SECONDS
            while read < 1 + len(NAMES) and monotonic() < end:
                sleep(2)
                read = len(re.findall("STRANGER (?:secret|row) ", self.command("log", begun, "fed", "--show")[1]))
        removed, _ = self.command("supernode", "unregister", node, "fed")
        return Loot(listed, ran, read, int(removed))


def count_answers(address: str, authority: Path, path: str) -> int:
    """Return 1 if a request without any secret is answered with success."""
    context = create_default_context(cafile=authority)
    connection = HTTPSConnection(address, timeout=10, context=context)
    try:
        connection.request("POST", path, b"", {"Content-Type": "application/protobuf"})
        return int(connection.getresponse().status == 200)
    finally:
        connection.close()


def examine(address: str, authority: Path) -> int:
    """Return how ``rescind doctor`` ends."""
    words = ["doctor", "--superlink", address, "--root-certificates", str(authority)]
    return subprocess.run([str(PROGRAMS / "rescind"), *words], capture_output=True, check=False).returncode


def trusting_nobody(folder: Path) -> Path:
    """Write a list with the key of somebody who has signed nothing."""
    public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / "trusted.yaml").write_text(f"fpk_operator: {public.decode()}\n")
    return folder / "trusted.yaml"


def main() -> None:
    options = parser(__doc__)
    quick = options.parse_args().quick
    os.umask(0o077)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        nodes = [Node(each, f'data="{HOSPITALS / "data" / each}.csv"') for each in NAMES]
        with Deployment(folder / "deployment", nodes, guarded=True) as federation:

            def train(rounds: int) -> tuple[str, bool]:
                paths = {"history": str(folder / "history"), "model": str(folder / "model.safetensors")}
                run = federation.run(HOSPITALS, num_rounds=rounds, **paths)
                return run, federation.wait(run, SECONDS) == "finished:completed"

            run, completed = train(2)
            node, secret, authority = federation.node_id(NAMES[0]), folder / "history.secret", federation.authority
            outside = Outsider(folder / "outside", federation.address, authority).attack(secret, node, run)
            tasks = [
                count_answers(address, authority, "/v1/runtime/acquire-task")
                for address in (federation.address, federation.hidden_address)
            ]
            doctor = [examine(address, authority) for address in (federation.address, federation.hidden_address)]
            # The federation is as it was.
            run, again = train(3)
            untrusting = 0
            if not quick:
                options_of_a_node = ("--trusted-entities", str(trusting_nobody(folder)))
                federation.restart(NAMES[1], nodes[1].config, options_of_a_node)
                _, completed_without = train(4)
                again = again and completed_without
                federation.restart(NAMES[1], nodes[1].config)
            behind = Outsider(folder / "behind", federation.hidden_address, authority).attack(secret, node, run)
        with History(folder / "history", create=False) as history:
            took_part = [len(each.clients) for each in history.ledger.rounds(Span(0, 1, 10))]
        if not quick:
            untrusting = took_part.pop() - (len(NAMES) - 1)
    finish(
        {
            "trained": int(completed and again and took_part == [len(NAMES)] * 3),
            "listed": outside.listed,
            "ran": outside.ran,
            "read": outside.read,
            "removed": outside.removed,
            "tasks": sum(tasks),
            "doctor": doctor[0],
            "doctor_behind": doctor[1],
            "untrusting": untrusting,
            "behind_listed": behind.listed,
            "behind_ran": behind.ran,
            "behind_read": behind.read,
            "behind_removed": behind.removed,
        }
    )


if __name__ == "__main__":
    main()
