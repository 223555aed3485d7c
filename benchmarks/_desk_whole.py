"""One request through everything: Flower with TLS and registered keys, the desk, webhooks, Prometheus."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic, sleep, time
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from benchmarks._desk import Desk, run
from benchmarks._federation import Deployment, Node, free_port
from rescind import History
from rescind.certificates.envelope import fingerprint
from rescind.certificates.keys import load_public_key
from rescind.desk.logins import Role

APP = Path(__file__).parents[1] / "examples" / "hospitals"
DASHBOARD = Path(__file__).parents[1] / "docs" / "grafana.json"
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")
LEAVER = "long_beach_va"
FEDERATION = "Four hospitals"
PATIENCE = 300.0
_SCRAPED = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: rescind
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""
Value = TypeVar("Value")


def wait(look: Callable[[], Value | None], for_what: str) -> Value:
    """Return what a look finds once it finds something."""
    end = monotonic() + PATIENCE
    while (found := look()) is None:
        if monotonic() > end:
            raise TimeoutError(f"{for_what}: not after {PATIENCE:.0f} s")
        sleep(0.3)
    return found


class Inbox:
    """Another system: what it was told, and what of that was not signed as standardwebhooks.com says."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.forged: list[str] = []
        self.identifiers: set[str] = set()
        self.secret = b""

    @property
    def kinds(self) -> list[str]:
        return [message["type"] for message in self.told]

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Take a message, if its signature holds and it is of these minutes."""
        identifier, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
        own = hmac.new(self.secret, f"{identifier}.{moment}.".encode() + body, hashlib.sha256).digest()
        # A message may have several, of keys that are replaced.
        given = [each.removeprefix("v1,") for each in headers.get("webhook-signature", "").split(" ")]
        fits = any(hmac.compare_digest(base64.b64encode(own).decode(), each) for each in given)
        if not fits or abs(time() - int(moment)) > 300 or identifier in self.identifiers:
            self.forged.append(body.decode(errors="replace"))
        else:
            self.identifiers.add(identifier)
            self.told.append(json.loads(body))


@contextmanager
def inbox() -> Iterator[tuple[Inbox, str]]:
    """Listen for messages; yields what they come to, and the address."""
    made = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.take({key.lower(): value for key, value in self.headers.items()}, body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield made, f"http://127.0.0.1:{server.server_address[1]}/hook"
        server.shutdown()


class Prometheus:
    """Debian's Prometheus, which looks at a desk's metrics every second with a token that may do nothing else."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        folder.mkdir()
        self.port = free_port()
        (folder / "prometheus.yml").write_text(_SCRAPED.format(token=desk.tokens[Role.WATCH], port=desk.port))
        program = shutil.which("prometheus") or sys.exit("no prometheus: Debian's package of that name")
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        self._command = [program, *words, f"--web.listen-address=127.0.0.1:{self.port}"]
        self._log = folder / "prometheus.log"

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def find(self, query: str) -> list[float]:
        """Return the numbers that a query finds; none as long as it does not answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", f"/api/v1/query?query={quote(query)}")
            answer = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            return []
        finally:
            connection.close()
        return [float(one["value"][1]) for one in answer.get("data", {}).get("result", [])]

    def await_value(self, query: str, value: float) -> None:
        wait(lambda: self.find(query) == [value] or None, f"{query} being {value:g}")


def make_app(folder: Path, key: Path) -> Path:
    """Return the hospitals' app, of which every plan has to be approved with a key."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__", "data", "containers"))
    server = folder / "hospitals" / "server_app.py"
    usual, text = 'approval=bool(config["approval"])', server.read_text()
    imports = "import rescind.flower\nfrom rescind.certificates.keys import load_public_key\n"
    if text.count(usual) != 1:
        raise RuntimeError(f"{server} does not have {usual} any more")
    keyed = text.replace(usual, f"approval=[load_public_key({str(key)!r})]")
    server.write_text(keyed.replace("import rescind.flower\n", imports))
    return folder


def follow_request(folder: Path) -> Iterator[str]:
    """Let a hospital leave by the desk; yields what has happened, and raises where something does not."""
    (folder / "certificates").mkdir(parents=True)
    for name in ("officer", "operator"):
        run("key", "new", folder / f"{name}.key")
    app, history = make_app(folder / "app", folder / "officer.key.pub"), folder / "history"
    nodes = [Node(name, f'data="{APP / "data" / name}.csv"') for name in NAMES]
    model = str(folder / "model.safetensors")
    with Deployment(folder / "deployment", nodes) as deployment, inbox() as (told, address):
        number = deployment.run(app, history=str(history), model=model, num_rounds=3, serve=True, solve=True)
        wait(lambda: is_trained(history) or None, "a model")
        run("init", history, "--federation", FEDERATION)
        yield "a model"
        with Desk(history, "--certificates", folder / "certificates", "--webhook", address) as desk:
            secret = desk.logins.with_suffix(".webhook-secret").read_text().strip()
            told.secret = base64.b64decode(secret.removeprefix("whsec_"))
            prometheus = Prometheus(folder / "prometheus", desk)
            with prometheus.running():
                prometheus.await_value("rescind_open_requests", 0)
                yield "watched"
                yield from leave(folder, desk, told, prometheus)
        deployment.end(number)


def leave(folder: Path, desk: Desk, told: Inbox, prometheus: Prometheus) -> Iterator[str]:
    """Hand a request in, approve it, and fetch its certificate."""
    history, key = folder / "history", folder / "operator.key"
    run("leave", folder / "leave.json", "--key", folder / "deployment" / f"node-{LEAVER}", "--federation", FEDERATION)
    handed = desk.ask(Role.ASK, "/api/v1/requests", (folder / "leave.json").read_bytes())
    check(handed.code == 201, f"the request is answered with {handed}")
    (folder / "receipt.json").touch(mode=0o600)
    (folder / "receipt.json").write_bytes(handed.content)
    prometheus.await_value("rescind_open_requests", 1)
    wait(lambda: "request.new" in told.kinds or None, "the message of a new request")
    yield "asked"

    def look() -> bytes | None:
        answer = desk.ask(Role.APPROVE, "/api/v1/requests/1/approval")
        return answer.content if answer.code == 200 else None

    (folder / "approval.json").write_bytes(wait(look, "a plan"))
    prometheus.await_value("rescind_undecided_requests", 1)
    wait(lambda: "request.waiting" in told.kinds or None, "the message of a request that waits for approval")
    plan = desk.ask(Role.APPROVE, "/api/v1/requests/1/approval").json()["approval"]["plan"]
    unsigned = desk.ask(Role.APPROVE, "/api/v1/requests/1/approve", {"plan": plan})
    check(unsigned.code == 409, f"an approval without a signature is answered with {unsigned}")
    signed = run("key", "approve", folder / "approval.json", "--key", folder / "officer.key", "--yes")
    body = {"plan": plan, "signed": json.loads(signed.splitlines()[-1])}
    approved = desk.ask(Role.APPROVE, "/api/v1/requests/1/approve", body)
    check(approved.code == 200, f"the approval is answered with {approved}")
    yield "approved"

    wait(lambda: desk.ask(Role.READ, "/api/v1/requests/1").json()["state"] == "served" or None, "being served")
    prometheus.await_value("rescind_open_requests", 0)
    wait(lambda: "request.served" in told.kinds or None, "the message of a request that was served")
    yield "served"

    receipt = urlencode({"receipt": (folder / "receipt.json").read_text()}).encode()
    early = desk.ask(None, "/leaver/certificate", receipt)
    check(early.code == 404, f"a certificate that is not there is answered with {early}")
    run("certify", history, 1, "--key", key, "--output", folder / "certificates" / "certificate-1.json")
    wait(lambda: desk.ask(Role.READ, "/api/v1/requests/1").json()["certified"] or None, "its certificate")
    check(b"Fetch the certificate" in desk.ask(None, "/leaver", receipt).content, "the leaver's page has none")
    fetched = desk.ask(None, "/leaver/certificate", receipt)
    check(fetched.code == 200, f"the leaver is answered with {fetched}")
    (folder / "fetched.json").write_bytes(fetched.content)
    own = ("--receipt", folder / "receipt.json", "--request", folder / "leave.json")
    at_hand = ("--history", history, "--model", folder / "model.safetensors")
    verified = json.loads(run("verify", folder / "fetched.json", "--key", f"{key}.pub", *own, *at_hand, "--json"))
    predicate = verified["statement"]["predicate"]
    check(verified["verified"], f"it does not verify: {verified}")
    check(
        (predicate["mode"], predicate["asked_by"]) == ("exact", "the participant's own key"), f"it says {predicate}"
    )
    officer = fingerprint(load_public_key(folder / "officer.key.pub"))
    check(predicate["approved"]["key"] == officer, f"it names {predicate['approved']}")
    yield "certified"

    check(told.forged == [], f"messages whose signature does not hold: {told.forged}")
    kinds = [f"request.{kind}" for kind in ("new", "planned", "waiting", "served")]
    check(sorted(told.kinds) == sorted(kinds), f"the other system was told {told.kinds}")
    check(not any(name in json.dumps(told.told) for name in NAMES), f"somebody's name was told: {told.told}")
    prometheus.await_value("max_over_time(rescind_open_requests[1h])", 1)
    shown = re.findall(r'"expr": (".*")', DASHBOARD.read_text())
    blank = [query for query in shown if not prometheus.find(json.loads(query).replace('="$run"', '=~".+"'))]
    # Nothing is due any more.
    check(len(shown) > 10 and [query for query in blank if "next_deadline" not in query] == [], f"no answer: {blank}")
    yield "told"


def check(holds: bool, what: str) -> None:
    """Raise what does not hold."""
    if not holds:
        raise RuntimeError(what)


def is_trained(place: Path) -> bool:
    """Return whether a history has a model that somebody trained."""
    if not place.exists():
        return False
    with History(place, create=False) as history:
        return bool(history.timeline.branches) and history.newest.round > 0
