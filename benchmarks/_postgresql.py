"""A PostgreSQL server for the length of a measurement or a test run: its own folder, its own port, then gone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Debian keeps the server's programs out of the path, in a folder for each version.
_DEBIAN = Path("/usr/lib/postgresql")
_SECONDS_TO_START = 60


@dataclass(frozen=True)
class Server:
    """A server that runs: its address, and the command that controls it."""

    address: str
    control: tuple[object, ...]

    def restart(self, mode: str) -> None:
        """Stop it in one of PostgreSQL's modes (``fast``; ``immediate`` is a crash), and start it as it was."""
        _run([*self.control, "-m", mode, "restart"])


@contextmanager
def server(settings: dict[str, str] | None = None) -> Iterator[str]:
    """Start a server and give its address; at the end it is stopped and its folder deleted."""
    with restartable(settings) as running:
        yield running.address


@contextmanager
def restartable(settings: dict[str, str] | None = None) -> Iterator[Server]:
    """Start a server that can be restarted; at the end it is stopped and its folder deleted."""
    with tempfile.TemporaryDirectory(prefix="rescind-postgresql-") as folder:
        data, as_user = Path(folder) / "data", _unprivileged(Path(folder))
        # No password: the folder and the socket's address are this machine's and live as long as the run.
        _run([*as_user, _program("initdb"), "-D", data, "-U", "rescind", "-A", "trust", "-E", "UTF8", "--no-sync"])
        port = _free_port()
        chosen = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": "", "fsync": "on"}
        options = " ".join(f"-c {name}={value!r}" for name, value in (chosen | (settings or {})).items())
        control = (*as_user, _program("pg_ctl"), "-D", data, "-w", "-s", "-t", str(_SECONDS_TO_START))
        control = (*control, "-l", data / "server.log")
        _run([*control, "-o", options, "start"])
        try:
            yield Server(f"postgresql://rescind@127.0.0.1:{port}/postgres", control)
        finally:
            _run([*control, "-m", "immediate", "stop"])


def _program(name: str) -> str:
    versions = sorted(_DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*map(str, versions), os.environ.get("PATH", "")]))
    if found is None:
        raise FileNotFoundError(
            f"{name} is not there: install PostgreSQL's server (Debian: apt install postgresql), or set "
            "RESCIND_TEST_POSTGRESQL to the address of a running one"
        )
    return found


def _unprivileged(folder: Path) -> list[str]:
    """Return the words before a command that PostgreSQL would refuse to run as root; the folder goes to that user."""
    if os.getuid() != 0:
        return []
    user = "nobody"
    shutil.chown(folder, user)
    return ["runuser", "-u", user, "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(command: Sequence[object]) -> None:
    # Not a pipe: the server inherits it and would keep it open, and whoever reads it would wait for the server's end.
    with tempfile.TemporaryFile() as output:
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(words)} failed: {output.read().decode(errors='replace')}")
