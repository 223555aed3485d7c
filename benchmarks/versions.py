"""Does the installed version of Flower carry what rescind promises: a federation that trains, forgets and certifies?

Four hospitals, as processes with TLS and registered keys, train. One asks to be forgotten, the next run serves it,
and the certificate is verified against history and model. ``forgotten`` counts those who left, ``inside`` those who
are in the newest model. ``identity`` says on whose word it is known who a client is: ``checked`` by its key, or
``reported`` by itself, where Flower shows the server no keys.
"""

from __future__ import annotations

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from typer.testing import CliRunner

from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser, progress
from rescind import History
from rescind.cli import app as command_line

HOSPITALS = Path(__file__).parents[1] / "examples" / "hospitals"
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")
LEAVER = "hungary"
SECONDS = 400.0


def command(*words: object) -> str:
    """Run the command line; what it does not do is an error."""
    done = CliRunner().invoke(command_line, [str(word) for word in words])
    if done.exit_code:
        raise RuntimeError(f"rescind {' '.join(map(str, words))}: {done.output}")
    return done.output


def measure(folder: Path) -> dict[str, object]:
    """Let a federation train, and train again after somebody asked to leave; return what came of it."""
    nodes = [Node(name, f'data="{HOSPITALS / "data" / name}.csv"') for name in NAMES]
    history, model = folder / "history", folder / "model.safetensors"
    with Deployment(folder / "deployment", nodes) as deployment:
        for asked in progress([False, True], "runs"):
            if asked:
                command("request", "add", history, LEAVER)
            run = deployment.run(HOSPITALS, history=str(history), model=str(model), num_rounds=3)
            if (status := deployment.wait(run, SECONDS)) != "finished:completed":
                raise RuntimeError(f"the run ended as {status}:\n{deployment.log(run)}")
    key, certificate = folder / "operator.key", folder / "certificate.json"
    command("key", "new", key)
    command("certify", history, 1, "--key", key, "--model", model, "--output", certificate)
    words = ("verify", certificate, "--key", f"{key}.pub", "--model", model, "--history", history, "--json")
    verified = json.loads(command(*words))
    clients = json.loads(command("clients", history, "--json"))["clients"]
    with History(history) as recorded:
        identity = recorded.run.facts.sources.identity
    return {
        "flwr": version("flwr"),
        "identity": identity.value,
        "mode": verified["statement"]["predicate"]["mode"],
        "inside": sum(client["in_model"] for client in clients),
        "forgotten": sum(client["state"] == "forgotten" for client in clients),
    }


def main() -> None:
    """Print the result."""
    parser(__doc__).parse_args()
    os.environ.setdefault("RESCIND_PASSPHRASE", "a key for one measurement")
    with tempfile.TemporaryDirectory() as folder:
        finish(measure(Path(folder)))


if __name__ == "__main__":
    main()
