"""A desk's interface against its own description: what schemathesis sends it, and what it answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks._desk import BUDGET, FEDERATION, KEYED, Desk, make_engine
from rescind import Exact, History, Revocable
from rescind.certificates.leaving import sign_request
from rescind.desk.logins import Role, add_login
from rescind.errors import StalePlanError

HOOKS = Path(__file__).with_name("desk_hooks.py")
# So many logins of each role: one login may change something once a second, and 30 times at once.
_LOGINS = 100
_SIGNED = 200
# Starlette names the methods of one route alone, where two share an address. And a token that is nobody's may meet
# 429, as documented; the hooks have a check of their own in place of that.
_LEFT_OUT = ("allow_header_conformance", "ignored_auth")


@contextmanager
def asking_and_planning(folder: Path) -> Iterator[None]:
    """Ask by and by in the name of others, and plan what is open, as a run does that waits for approvals."""
    ended = Event()

    def go_on() -> None:
        while not ended.wait(1):
            with History(folder / "history", create=False) as history:
                federation = Revocable(history, make_engine(folder))
                # Who has asked already cannot ask again, and what is planned may have been withdrawn meanwhile.
                for name in ("clinic-0", "clinic-8", "clinic-9", "clinic-14"):
                    with suppress(ValueError):
                        history.requests.ask([name], BUDGET)
                for number in list(history.timeline.open_requests)[-4:]:
                    with suppress(ValueError, StalePlanError):
                        federation.plan(Exact(), number)

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(go_on)
        try:
            yield
        finally:
            ended.set()
        going_on.result()


def examine_interface(folder: Path, examples: int, seed: int) -> dict[str, Any]:
    """Let schemathesis send what it makes of the description, ``examples`` for each operation; return what came back.

    429 is documented, and is what receipts mostly get: that many strangers at once there are not. The hooks say how
    the rest is reached.
    """
    program = shutil.which("schemathesis") or sys.exit("no schemathesis: pip install schemathesis, anywhere on PATH")
    now = datetime.now(UTC)
    with Desk(folder / "history", "--certificates", folder / "certificates", "--logins-approve") as desk:
        tokens = {
            role.value: [add_login(desk.logins, f"{role.value} {at}", role) for at in range(_LOGINS)] for role in Role
        }
        signed = [
            sign_request(
                folder / f"{KEYED[at % len(KEYED)]}.key", FEDERATION, time=now - timedelta(seconds=_SIGNED - at)
            )
            for at in range(_SIGNED)
        ]
        told = {
            "seed": seed,
            "tokens": tokens,
            "signed": [json.loads(each) for each in signed],
            "receipt": json.loads((folder / "receipt.json").read_text()),
            "site": desk.site,
        }
        (folder / "hooks.json").write_text(json.dumps(told))
        (folder / "schemathesis.toml").write_text(f"hooks = {json.dumps(str(HOOKS))}\n")
        description = json.loads(desk.ask(None, "/api/v1/openapi.json").content)
        with asking_and_planning(folder):
            done = subprocess.run(
                [
                    *(program, "run", f"{desk.site}/api/v1/openapi.json", "--no-color"),
                    *("--max-examples", str(examples)),
                    *("--seed", str(seed), "--exclude-checks", ",".join(_LEFT_OUT), "--continue-on-failure"),
                    # Otherwise half of the requests are about tokens alone.
                    *("--generation-with-security-parameters", "false"),
                ],
                cwd=folder,
                env=os.environ | {"RESCIND_DESK_HOOKS": str(folder / "hooks.json")},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
        if done.returncode not in (0, 1) or "Test cases:" not in done.stdout:
            raise RuntimeError(f"schemathesis ended with {done.returncode}:\n{done.stdout[-3000:]}")
        up = desk.ask(None, "/health").code
    if done.returncode:
        print(done.stdout)
    answers = [line.rsplit(" ", 1) for line in (folder / "codes").read_text().splitlines()]
    codes = Counter(code for _, code in answers)
    reached = Counter(operation for operation, code in answers if code not in ("401", "403", "422", "429"))
    succeeded = {operation for operation, code in answers if code.startswith("2")}
    operations = {f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods}
    return {
        "requests": len(answers),
        "codes": dict(sorted(codes.items())),
        "server_errors": sum(number for code, number in codes.items() if code.startswith("5")),
        "unlike_description": int(done.returncode),
        "operations": len(operations),
        "never_done": len(operations - succeeded),
        "least_reached": min(reached[operation] for operation in operations),
        "healthy": int(up == 200),
    }
