"""A Flower deployment for the length of a measurement or a test: SuperLink and SuperNodes on loopback, then gone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from select import select
from time import monotonic, sleep
from types import MappingProxyType, TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks._documented import configure_nginx, read_command

_HOST = "127.0.0.1"
# From 1.40 on a SuperLink has one port for everybody; from 1.37 one for nodes and one for all others; before, three.
_VERSION = tuple(map(int, version("flwr").split(".")[:2]))
_ONE_PORT = _VERSION >= (1, 40)
_PROGRAMS = Path(sys.executable).parent
_MARK = "RESCIND_FEDERATION_MEMBER"
_SECONDS_TO_START = 120.0
# A killed node is refused until its heartbeat expires: 52 s were seen; refusals cost a start of the program each.
_SECONDS_TO_RETURN = 120.0
_SECONDS_BETWEEN_STARTS = 5.0
_SECONDS_TO_LEAVE = 10.0
_SECONDS_FOR_A_COMMAND = 180.0
_SECONDS_BETWEEN_LOOKS = 3.0


@dataclass(frozen=True)
class Node:
    """A SuperNode: the name that its key is registered under, what its ClientApps are told, and further options."""

    name: str
    config: str
    options: tuple[str, ...] = ()


class Deployment:
    """A SuperLink and its SuperNodes, with TLS and authenticated nodes or with neither; or with ``simulated`` nodes.

    A ``guarded`` one is started as docs/deployment.md says: nginx in front, ServerApps started by another program.
    Every process sees the variables of this one, works in the folder, and is gone at the end with all it started.
    A ClientApp is a process of its own that Flower asks for, as always; but a node loads Flower once for all of them.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Node] = (),
        *,
        secure: bool = True,
        simulated: int = 0,
        guarded: bool = False,
    ) -> None:
        self._folder = folder.resolve()
        self._nodes = {node.name: node for node in nodes}
        if len(self._nodes) < len(nodes):
            raise ValueError("two nodes have the same name")
        self._simulated = simulated
        self._secure = secure and not simulated
        self._guarded = guarded
        self._port = free_port()
        self._open_port = free_port() if guarded or not _ONE_PORT else self._port
        self._app_port = free_port()
        self._registered: dict[str, int] = {}
        self._environment = os.environ | {
            "PATH": os.pathsep.join([str(self._folder), str(_PROGRAMS), os.environ.get("PATH", os.defpath)]),
            "FLWR_HOME": str(self._folder / "flwr-home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        self._commands = _Commands(self._folder, self._environment)
        self._superlink = _Member(self._folder / "superlink.log", self._environment)
        self._server_app = _Member(self._folder / "serverapp.log", self._environment)
        self._proxy = _Member(self._folder / "proxy.log", self._environment)
        self._members = {name: self._member(name) for name in self._nodes}

    def __enter__(self) -> Self:
        (self._folder / "flwr-home").mkdir(parents=True)
        trust = "insecure = true"
        if self._secure:
            make_certificates(self._folder)
            trust = f"root-certificates = {json.dumps(str(self._folder / 'ca.crt'))}"
        configuration = f'[superlink.fed]\naddress = "{_HOST}:{self._port}"\n{trust}\n'
        (self._folder / "flwr-home" / "config.toml").write_text(configuration)
        (self._folder / "flwr-clientapp").write_text(_CLIENT_APP)
        (self._folder / "flwr-clientapp").chmod(0o700)
        try:
            self.start_superlink()
            if self._secure:
                for name in self._nodes:
                    self._register(name)
            for name in self._nodes:
                self._launch(name)
            for name in self._nodes:
                self._await_node(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, app: Path, **config: str | int | float) -> str:
        """Start a run of an app and give its id; an underscore in a key stands for Flower's hyphen."""
        words: list[str] = []
        if config:
            # A file, because on the command line Flower takes no text with quotes in it. TOML reads JSON's scalars.
            chosen = self._folder / "run-config.toml"
            lines = (f"{k.replace('_', '-')} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in config.items())
            chosen.write_text("".join(lines))
            words = ["--run-config", str(chosen)]
        if self._simulated:
            words += ["--federation-config", f"num-supernodes={self._simulated}"]
        return str(self._ask("run", app.resolve(), "fed", *words)["run-id"])

    def status(self, run: str) -> str:
        """Return a run's status in Flower's words, such as finished:completed."""
        (known,) = self._ask("list", "fed", "--run-id", run)["runs"]
        return str(known["status"])

    def wait(self, run: str, seconds: float) -> str:
        """Wait for a run to finish and give its status, whichever that is."""
        end = monotonic() + seconds
        while True:
            sleep(_SECONDS_BETWEEN_LOOKS)
            # As long as its ServerApp runs there is nothing to ask.
            while self.server_apps() and monotonic() < end:
                sleep(0.5)
            if (status := self.status(run)).startswith("finished"):
                return status
            if monotonic() > end:
                raise TimeoutError(f"run {run} is {status} after {seconds:.0f} s:\n{_tail(self.log(run))}")

    def end(self, run: str) -> None:
        """End a run that would go on."""
        self._command("stop", run, "fed")

    def log(self, run: str) -> str:
        """Return what a run's ServerApp has logged."""
        return self._command("log", run, "fed", "--show")

    def register(self, name: str) -> Path:
        """Register a key for somebody who is not started here, and return the file of its private half."""
        self._register(name)
        return self._folder / f"node-{name}"

    def number(self, name: str) -> int:
        """Return the number by which Flower knows a registered node."""
        return self._registered[name]

    def kill(self, name: str) -> None:
        """End a node and the ClientApp that it runs at once: it says no goodbye."""
        self._members[name].kill()

    def start(self, name: str) -> None:
        """Start a node that does not run, with the key that it had."""
        self._launch(name)
        self._await_node(name)

    def restart(self, name: str, config: str, options: tuple[str, ...] = ()) -> None:
        """End a node in good order, and start it with another configuration and the key that it had."""
        member, end = self._members[name], monotonic() + _SECONDS_TO_LEAVE
        member.terminate()
        while not member.ended() and monotonic() < end:
            sleep(0.05)
        member.kill()
        self._nodes[name] = Node(name, config, options)
        self.start(name)

    def join(self, node: Node) -> None:
        """Add a node while the federation runs, and start it; it is there in its own time."""
        if node.name in self._nodes:
            raise ValueError(f"there is a node called {node.name} already")
        if self._secure:
            self._register(node.name)
        self._nodes[node.name], self._members[node.name] = node, self._member(node.name)
        self._launch(node.name)

    @contextmanager
    def slowed(self) -> Iterator[None]:
        """Let ClientApps take two seconds longer, for whoever wants something to happen meanwhile."""
        mark = self._folder / "flwr-clientapp.slow"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()

    def revive(self, name: str) -> None:
        """Start a node if it does not run, without waiting: one that is refused ends, and is to be revived again."""
        if self._members[name].ended():
            self._launch(name)

    def node_id(self, name: str) -> int:
        """Return Flower's number of a registered node."""
        return self._registered[name]

    def superlink(self) -> list[int]:
        """Return the process of the SuperLink, if it runs."""
        return self._superlink.running("flower-superlink")

    def server_apps(self) -> list[int]:
        """Return the processes of the ServerApps that run."""
        return (self._server_app if self._guarded else self._superlink).running("flwr-serverapp")

    @property
    def address(self) -> str:
        """The address that nodes connect to."""
        return f"{_HOST}:{self._open_port}"

    @property
    def hidden_address(self) -> str:
        """The address of the SuperLink itself, which is another one where it is guarded."""
        return f"{_HOST}:{self._port}"

    @property
    def authority(self) -> Path:
        """The certificate that everybody who connects has."""
        return self._folder / "ca.crt"

    def kill_superlink(self) -> None:
        """End the SuperLink and the ServerApp that it runs at once."""
        self._superlink.kill()

    def start_superlink(self) -> None:
        """Start a SuperLink that does not run; nodes that were connected to the last one find it by themselves."""
        words = ["--database", str(self._folder / "state.db")]
        if not _ONE_PORT:
            words += ["--fleet-api-address", self.address]
        if _VERSION >= (1, 37):
            words += ["--host", _HOST, "--port", str(self._port)]
        else:
            words += ["--control-api-address", self.hidden_address]
            words += _listen("--serverappio-api-address", self._app_port)
        if self._secure:
            words += ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
            words += ["--enable-supernode-auth"]
        else:
            words += ["--insecure", *(["--simulation"] if self._simulated else [])]
        words += ["--disable-runtime-dependency-installation"]
        if self._guarded:
            return self._start_as_documented()
        self._superlink.start("flower-superlink", *words)
        try:
            self._superlink.wait(self._is_healthy, _SECONDS_TO_START)
        except TimeoutError as hung:
            # Seen once on a busy machine: it hung before it listened. Its log says where; the next one need not.
            print(hung, file=sys.stderr)
            self._superlink.start("flower-superlink", *words)
            self._superlink.wait(self._is_healthy, _SECONDS_TO_START)

    def _start_as_documented(self) -> None:
        (self._folder / "superexec").write_bytes(os.urandom(32))
        places = {
            "/usr/local/lib/federation/venv/bin": str(_PROGRAMS),
            "%d/key": str(self._folder / "server.key"),
            "%d/superexec": str(self._folder / "superexec"),
            "/etc/rescind/superlink": str(self._folder / "server"),
            "/etc/rescind": str(self._folder),
            "/var/lib/superlink": str(self._folder),
            "/srv/federation": str(self._folder),
            "--port 8000": f"--port {self._port}",
            "127.0.0.1:8000": self.hidden_address,
        }
        for member, unit in ((self._superlink, "superlink"), (self._server_app, "serverapp")):
            words, variables = read_command(f"federation-{unit}.service", places)
            member.start(*words, environment={"PATH": variables.get("PATH", "/usr/bin:/bin")})
            member.wait(self._is_healthy, _SECONDS_TO_START)
        self._proxy.start(*configure_nginx(self._folder, self._open_port, self._port))
        self._proxy.wait(lambda: is_open(self._open_port), _SECONDS_TO_START)

    def unregister(self, name: str) -> None:
        """Bar a node's key for good: a node that runs is refused from now on and ends itself."""
        self._command("supernode", "unregister", str(self._registered.pop(name)), "fed")

    def stop(self) -> None:
        """End everything; what is on the disk stays."""
        # The nodes first: they say goodbye to the SuperLink, and wait for one that has gone.
        nodes, others = list(self._members.values()), [self._server_app, self._proxy, self._superlink]
        members = [*nodes, *others]
        try:
            for group in (nodes, others):
                for member in group:
                    member.terminate()
                end = monotonic() + _SECONDS_TO_LEAVE
                while not all(member.ended() for member in group) and monotonic() < end:
                    sleep(0.05)
        finally:
            self._commands.stop()
            for member in members:
                member.kill()

    def node_log(self, name: str) -> str:
        return self._members[name].log.read_text(errors="replace")

    def superlink_log(self) -> str:
        return self._superlink.log.read_text(errors="replace")

    def _member(self, name: str) -> _Member:
        return _Member(self._folder / f"node-{name}.log", self._environment)

    def _register(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP384R1())
        _write_key(self._folder / f"node-{name}", key, serialization.PrivateFormat.OpenSSH)
        public = self._folder / f"node-{name}.pub"
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        )
        # Before 1.38 a key is registered under no name.
        named = ["--name", name] if _VERSION >= (1, 38) else []
        self._registered[name] = int(self._ask("supernode", "register", public, "fed", *named)["node-id"])

    def _launch(self, name: str) -> None:
        words = ["--superlink", self.address, *_listen("--clientappio-api-address", free_port())]
        if self._secure:
            words += ["--root-certificates", "ca.crt", "--auth-supernode-private-key", f"node-{name}"]
        else:
            words += ["--insecure"]
        node = self._nodes[name]
        self._members[name].start("flower-supernode", *words, *node.options, "--node-config", node.config)

    def _await_node(self, name: str) -> None:
        member, end = self._members[name], monotonic() + _SECONDS_TO_RETURN
        while True:
            try:
                return member.wait(lambda: "SuperNode ID:" in member.output(), _SECONDS_TO_START)
            except ChildProcessError:
                # A key that was unregistered is refused in the same words, and for good.
                refused = "Failed to activate SuperNode" in member.output()
                if not refused or name not in self._registered or monotonic() > end:
                    raise
            sleep(_SECONDS_BETWEEN_STARTS)
            self._launch(name)

    def _is_healthy(self) -> bool:
        if not _ONE_PORT:
            return is_open(self._port) and is_open(self._open_port)
        connection = HTTPConnection(_HOST, self._port, timeout=2)
        if self._secure:
            trusted = ssl.create_default_context(cafile=self._folder / "ca.crt")
            connection = HTTPSConnection(_HOST, self._port, timeout=2, context=trusted)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _ask(self, *words: object) -> dict[str, Any]:
        printed = self._command(*words, "--format", "json")
        answer: dict[str, Any] = json.loads(printed)
        if not answer.get("success"):
            raise RuntimeError(f"flwr {' '.join(map(str, words))} failed: {printed}")
        return answer

    def _command(self, *words: object) -> str:
        try:
            return self._commands.run([str(word) for word in words])
        except (RuntimeError, TimeoutError) as error:
            raise type(error)(f"{error}\nSuperLink:\n{_tail(self._superlink.output())}") from error


# In place of Flower's own program. The first of a node loads Flower, which takes longest, and waits at a pipe for
# what it and the others were started with; each is a process of its own.
_CLIENT_APP = f"""#!/bin/sh
if [ -e "$0.slow" ]; then sleep 2; fi
if mkfifo "${_MARK}.apps" 2>/dev/null; then
  {shlex.quote(sys.executable)} -c '
import os, signal, sys
from flwr.supernode.cli import flwr_clientapp
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in os.fdopen(os.open(sys.argv[1], os.O_RDWR)):
    if not os.fork():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.argv[:] = ["flwr-clientapp", *line.split()]
        sys.exit(flwr_clientapp())
' "${_MARK}.apps" &
fi
echo "$@" >"${_MARK}.apps"
"""


class _Commands:
    """Flower's command line, loaded once because that takes longest; each command is a process of its own."""

    _LOADED = """
import json, os, sys
from flwr.cli.app import app
for line in sys.stdin:
    sys.argv[1:] = json.loads(line)
    if not (child := os.fork()):
        for stream, name in ((1, "command.out"), (2, "command.err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        app()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[str]) -> str:
        """Return what a command prints."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._LOADED],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        if not select([self._process.stdout], [], [], _SECONDS_FOR_A_COMMAND)[0]:
            self.stop()
            raise TimeoutError(f"flwr {' '.join(words)} takes more than {_SECONDS_FOR_A_COMMAND:.0f} s")
        ended = self._process.stdout.readline().strip()
        if not ended:
            raise RuntimeError("Flower's command line cannot be loaded")
        printed, complained = (
            (self._folder / f"command.{name}").read_text(errors="replace") for name in ("out", "err")
        )
        if ended != "0":
            raise RuntimeError(f"flwr {' '.join(words)} ended with {ended}:\n{_tail(printed + complained)}")
        return printed

    def stop(self) -> None:
        if self._process is not None:
            # Leaving it closes the pipes, and waits.
            with self._process, suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None


class _Member:
    """A program of the deployment with all that it starts, and their log."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self.log = log
        # SuperLink starts its children in sessions of their own: they are known by what they inherit, not by a group.
        self._mark = f"{_MARK}={log}".encode()
        self._environment = environment | {_MARK: str(log)}
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0

    def start(self, program: str, *words: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        if not self.ended():
            raise RuntimeError(f"{self.log.stem} runs already")
        self.kill()
        with self.log.open("ab") as output:
            self._begin = output.tell()
            self._process = subprocess.Popen(
                [str(_PROGRAMS / program), *words],
                cwd=self.log.parent,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def output(self) -> str:
        """Return what the log has got since the last start."""
        return self.log.read_bytes()[self._begin :].decode(errors="replace") if self.log.exists() else ""

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        end = monotonic() + seconds
        while not ready():
            if self.ended():
                raise ChildProcessError(f"{self.log.stem} ended before it was ready:\n{_tail(self.output())}")
            if monotonic() > end:
                self._show_stacks()
                raise TimeoutError(f"{self.log.stem} is not ready after {seconds:.0f} s:\n{_tail(self.output())}")
            sleep(0.1)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def _show_stacks(self) -> None:
        """End a program that hangs, so that its log ends with where it does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_LEAVE)

    def kill(self) -> None:
        """Kill what runs, with its children and theirs."""
        if self._process is not None:
            self._process.kill()
            # Flower takes a process that nobody has waited for as alive.
            self._process.wait()
        # Whoever is started while this looks is found the next time.
        while alive := self._alive():
            for process in alive:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            sleep(0.01)
        self.log.with_name(f"{self.log.name}.apps").unlink(missing_ok=True)

    def running(self, program: str) -> list[int]:
        """Return the processes that run a program for this member."""
        running = []
        for process in self._alive():
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:2]
                if any(Path(word.decode(errors="replace")).name == program for word in words):
                    running.append(process)
        return running

    def _alive(self) -> list[int]:
        alive = []
        for folder in Path("/proc").glob("[0-9]*"):
            # Processes end while this looks; those of others are not for us to read. A zombie has no variables.
            with suppress(OSError):
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    alive.append(int(folder.name))
        return alive


def make_certificates(folder: Path) -> None:
    """Write an authority's certificate (ca.crt) and one for loopback that it has signed (server.pem, server.key)."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    address = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(_HOST))])
    for file, subject, key, extension in (
        ("ca.crt", "rescind test authority", authority, x509.BasicConstraints(ca=True, path_length=0)),
        ("server.pem", _HOST, server, address),
    ):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(subject))
            .issuer_name(_named("rescind test authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
            .not_valid_after(datetime.now(UTC) + timedelta(days=7))
            .add_extension(extension, critical=file == "ca.crt")
            .sign(authority, hashes.SHA384())
        )
        (folder / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _listen(option: str, port: int) -> list[str]:
    """Return where a program of Flower listens for its apps, in the words of this version."""
    return ["--host", _HOST, "--port", str(port)] if _VERSION >= (1, 36) else [option, f"{_HOST}:{port}"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=2):
        return True
    return False


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-30:])
