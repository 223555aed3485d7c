"""Write the histories of the present schema anew: ``python tests/history/frozen/make.py``.

To be run once a schema, by the version that is released with it. What is there of an older one stays as it is. The
folder ``unbounded`` was written with schema 7, by a method that began a branch with a model of its own (FedAccum).
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from benchmarks._frozen import FROZEN, RUN
from benchmarks._killing import Location
from benchmarks._objects import keep_objects
from benchmarks._postgresql import _program, server
from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.core.calibration import Budget
from rescind.core.facts import Sampling
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.schema import SCHEMA_VERSION
from rescind.methods import Last
from rescind.testing.small import simulation

# Published on purpose: it signs nothing but these, and the golden certificates.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def record(history: History) -> bytes:
    """Train, forget a client with noise, and return the certificate."""
    engine = simulation(6, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True)
    federation = Revocable(history, engine, capacity=2)
    federation.train(Rounds(3))
    keep_objects(history, {name: {"own": np.arange(4.0) + at} for at, name in enumerate(engine.clients)})
    history.name_run(operator="City Hospitals", federation="heart", model="risk head")
    history.participants.label({"clinic-2": "Clinic of the North"})
    number = history.requests.ask(["clinic-5"], Budget(5.0, 1e-5))
    federation.forget(Last(), Rounds(2))
    return sign(build_statement(history, number), [CryptoSigner(KEY)])


def dump(address: str) -> str:
    """Return the statements that make the run anew; psycopg knows no commands of psql, and settings are its own."""
    command = [_program("pg_dump"), "--inserts", "--no-owner", "--no-privileges", f"--schema=rescind_{RUN}", address]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    left_out = ("--", "\\", "SET ", "SELECT pg_catalog.set_config")
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(left_out))


def main() -> None:
    target = FROZEN / f"schema_{SCHEMA_VERSION}"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name, server() as address:
        folder = Path(name)
        places = {
            "sqlite": Location("sqlite", str(folder / "sqlite" / "history"), str(folder / "sqlite"), "history"),
            "postgresql": Location("postgresql", address, str(folder / "postgresql"), RUN),
        }
        for backend, place in places.items():
            (folder / backend).mkdir()
            with place.open() as history:
                (folder / backend / "certificate.json").write_bytes(record(history))
        # Who writes is of no interest any more.
        (folder / "sqlite" / "history" / "ledger.sqlite.lock").unlink()
        (folder / "postgresql" / "dump.sql").write_text(dump(address), "utf-8")
        shutil.copytree(folder, target)


if __name__ == "__main__":
    main()
