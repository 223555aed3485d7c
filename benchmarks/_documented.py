"""What docs/deployment.md sets up, as commands for a folder of this machine: docs/units has its units and nginx."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "docs" / "units"


def read_units() -> dict[str, str]:
    """Return the page's systemd units by their names, without the first line, which says where each belongs."""
    paths = sorted([*_FOLDER.glob("*.service"), *_FOLDER.glob("*.timer")])
    return {path.name: path.read_text("utf-8").partition("\n")[2] for path in paths}


def read_site() -> str:
    """Return the page's configuration of nginx."""
    return (_FOLDER / "federation.conf").read_text("utf-8")


def read_command(unit: str, places: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the words that a unit starts and the variables that it sets, with other places than the page's."""
    lines = re.findall(r"^(ExecStart|Environment)=(.*)$", read_units()[unit], re.MULTILINE)
    words = {name: shlex.split(_move(line, places)) for name, line in lines}
    return words["ExecStart"], dict(word.split("=", 1) for word in words.get("Environment", ()))


def find_nginx() -> str | None:
    """Return the program; Debian has it where only root looks."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


def configure_nginx(folder: Path, port: int, superlink: int) -> list[str]:
    """Write the page's configuration for these ports, and return the words that start it.

    The folder has ca.crt, server.pem and server.key. Around the page's lines stands what Debian's nginx.conf says.
    """
    places = {
        "127.0.0.1:8000": f"127.0.0.1:{superlink}",
        "listen 9090": f"listen 127.0.0.1:{port}",
        "/etc/nginx/federation/proxy": f"{folder}/server",
        "/etc/nginx/federation/": f"{folder}/",
        "/var/log/nginx/": f"{folder}/",
    }
    kept = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{name}_temp_path {folder}/nginx-{name};\n" for name in kept)
    site = _move(read_site(), places)
    whole = f"pid {folder}/nginx.pid;\ndaemon off;\nevents {{}}\nhttp {{\n{temporary}{site}}}\n"
    (folder / "nginx.conf").write_text(whole)
    return [find_nginx() or "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def _move(text: str, places: Mapping[str, str]) -> str:
    for there, here in places.items():
        text = text.replace(there, here)
    return text
