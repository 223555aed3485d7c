"""A desk's pages in Chromium: light and dark, on a phone and on a desk, with a script and without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks._desk import OPEN, OVERDUE, PROGRAM, SERVED, UNNAMED, WAITING, Desk
from rescind.desk.logins import Role

DRIVER = Path(__file__).with_name("desk_pages.mjs")


def install_driver(folder: Path) -> None:
    """Fetch what drives Chromium, and what examines pages."""
    folder.mkdir(parents=True)
    subprocess.run(["npm", "install", "--silent", "playwright-core", "axe-core"], cwd=folder, check=True)  # noqa: S607
    (folder / DRIVER.name).write_text(DRIVER.read_text())


def look(folder: Path, scripts: Path, pictures: Path) -> dict[str, Any]:
    """Look at every page of a life's desk, and do with forms what there is to be done; returns what was found."""
    kept = ("--certificates", folder / "certificates", "--accuracies", folder / "accuracies.jsonl")
    with Desk(folder / "history", *kept) as desk:
        found: dict[str, Any] = _drive(
            scripts,
            {
                "site": desk.site,
                "pictures": str(pictures.resolve()),
                "operate": desk.tokens[Role.OPERATE],
                "approve": desk.tokens[Role.APPROVE],
                "receipt": (folder / "receipt.json").read_text(),
                "key": str(folder / "officer.key"),
                "rescind": str(PROGRAM),
                "requests": {
                    "served": SERVED,
                    "waiting": WAITING,
                    "overdue": OVERDUE,
                    "open": OPEN,
                    "unnamed": UNNAMED,
                },
            },
        )
    return found


def load(desk: Desk, scripts: Path, role: Role) -> list[float]:
    """Return how many seconds the overview takes to be loaded, a few times."""
    found: list[float] = _drive(scripts, {"only": "time", "site": desk.site, "token": desk.tokens[role]})
    return found


def _drive(scripts: Path, told: dict[str, Any]) -> Any:
    chromium = shutil.which("chromium") or sys.exit("no chromium: apt install chromium")
    done = subprocess.run(
        ["node", str(scripts / DRIVER.name), json.dumps(told | {"chromium": chromium})],  # noqa: S607
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=900,
    )
    return json.loads(done.stdout.splitlines()[-1])
