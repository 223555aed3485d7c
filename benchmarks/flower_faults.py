"""Does recorded training on a real Flower federation survive what happens to federations?

A SuperLink with TLS and a database, and four authenticated SuperNodes, all processes of this machine. One fault after
the other: a client that raises, hangs past the time-out, sends NaN, wrong shapes, a thousand-fold num-examples or a
changed frozen tensor; a SuperNode that is killed in mid-round, and one that comes back under its key; the SuperLink
killed in mid-run. A fault is survived if the round that it hit was recorded once, without the faulty client, and
training went on. In the end the same rounds with the same participants are trained on a Grid in this process: the
history has to have the same numbers. ``rounds_lost`` counts rounds that were recorded and are not there any more.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import numpy as np

import rescind.flower
from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser, progress
from rescind import History
from rescind.core.edges import ModelId
from rescind.history.events import RepliesRejected
from rescind.ledger.records import Span
from rescind.testing.grid import InProcessGrid

APP = Path(__file__).parent / "faulty"
sys.path.insert(0, str(APP))

from faulty.client_app import app as client_app  # noqa: E402, the app is no part of this package
from faulty.server_app import initial, recorded  # noqa: E402

NAMES = ("ann", "bob", "cyd", "dan")
FAULTY = "cyd"
# What a client does, and what the journal says of it: a failure leaves nothing there, a rejected reply its reason.
FAULTS = {
    "raises": None,
    "hangs": None,
    "NaN": "not finite",
    "wrong shape": "another shape",
    "thousandfold num-examples": "differs from the one that it had at first",
    "frozen tensor changed": "not trained was changed",
}
PATIENCE = 300.0


class Trial:
    """A federation, its history, and how many rounds that has to have."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rounds, self.most_seen = folder, 0, 0
        nodes = [Node(name, f'client="{name}" fault="{folder / name}.fault"') for name in NAMES]
        self.deployment = Deployment(folder / "deployment", nodes)

    def begin(self, rounds: int, timeout: float = 3600.0) -> str:
        """Start a run that trains some rounds more."""
        self.rounds += rounds
        return self.again(timeout)

    def again(self, timeout: float = 3600.0) -> str:
        """Start a run that trains what is missing."""
        history = str(self.folder / "history")
        return self.deployment.run(APP, history=history, num_rounds=self.rounds, timeout=timeout)

    def train(self, rounds: int, timeout: float = 3600.0) -> str:
        """Train some rounds more, and give the run's status."""
        return self.deployment.wait(self.begin(rounds, timeout), PATIENCE)

    def tell(self, name: str, fault: str) -> None:
        """Have a client misbehave from now on."""
        Path(f"{self.folder / name}.fault").write_text(fault)

    def participants(self) -> list[set[str]]:
        """Return who took part in each round that is recorded."""
        if not (self.folder / "history").exists():
            return []
        with History(self.folder / "history", create=False) as history:
            labels = history.ledger.labels()
            rounds = list(history.ledger.rounds(Span(0, 1, 10**6)))
            assert [each.model_id for each in rounds] == [ModelId(0, at + 1) for at in range(len(rounds))]
            found = [{labels[client] for client in each.clients.tolist()} for each in rounds]
        self.most_seen = max(self.most_seen, len(found))
        return found

    def reasons(self) -> list[str]:
        with History(self.folder / "history", create=False) as history:
            return [reason for _, event in history.timeline.of(RepliesRejected) for _, reason in event.rejected]

    def wait_for(self, condition: str, name: str, run: str) -> None:
        """Wait until a node is at work in a run."""
        end = monotonic() + PATIENCE
        while f"[RUN {run}]" not in self.deployment.node_log(name):
            if monotonic() > end:
                raise TimeoutError(f"{condition}: {name} has got nothing of run {run} to do")
            sleep(0.2)


def client_fault(trial: Trial, fault: str) -> bool:
    """One round with a client that misbehaves; it is not in the round, and back in the next."""
    before = len(trial.reasons())
    trial.tell(FAULTY, fault)
    status = trial.train(1, timeout=20.0 if fault == "hangs" else 3600.0)
    trial.tell(FAULTY, "")
    expected, reasons = FAULTS[fault], trial.reasons()[before:]
    told = reasons == [] if expected is None else len(reasons) == 1 and expected in reasons[0]
    return status == "finished:completed" and trial.participants()[-1] == set(NAMES) - {FAULTY} and told


def killed_node(trial: Trial) -> bool:
    """A SuperNode is killed while its client trains; the round ends without it."""
    trial.tell(FAULTY, "slow")
    run = trial.begin(1)
    trial.wait_for("a node to kill", FAULTY, run)
    sleep(2)
    trial.deployment.kill(FAULTY)
    trial.tell(FAULTY, "")
    status = trial.deployment.wait(run, PATIENCE)
    return status == "finished:completed" and trial.participants()[-1] == set(NAMES) - {FAULTY}


def returned_node(trial: Trial) -> bool:
    """The SuperNode comes back with its key, and is the client that it was."""
    trial.deployment.start(FAULTY)
    status = trial.train(1)
    with History(trial.folder / "history", create=False) as history:
        clients = len(history.ledger.identities())
    return status == "finished:completed" and trial.participants()[-1] == set(NAMES) and clients == len(NAMES)


def killed_superlink(trial: Trial) -> bool:
    """The SuperLink and its ServerApp are killed in the second of three rounds; a new run trains what is missing."""
    before = len(trial.participants())
    trial.begin(3)
    end = monotonic() + PATIENCE
    while len(trial.participants()) == before and monotonic() < end:
        sleep(0.5)
    sleep(3)
    trial.deployment.kill_superlink()
    left = len(trial.participants())
    trial.deployment.start_superlink()
    status = trial.deployment.wait(trial.again(), PATIENCE)
    found = trial.participants()
    return status == "finished:completed" and before < left < before + 3 == len(found)


def undisturbed(trial: Trial) -> bool:
    """Train the same rounds with the same participants on a Grid in this process; the numbers have to be the same."""
    on = InProcessGrid(client_app, {name: {"client": name} for name in NAMES})
    with History.in_memory() as other, History(trial.folder / "history", create=False) as history:
        for at, names in enumerate(trial.participants()):
            on.gone = set(NAMES) - names
            rescind.flower.run(recorded(other, 1), on, initial(), num_rounds=at + 1)
        problems = history.integrity.verify()
        mine, theirs = other.model(other.newest), history.model(history.newest)
        same = all(np.allclose(tensor, theirs[name], rtol=1e-12, atol=1e-15) for name, tensor in mine.items())
        for one, two in zip(*(each.ledger.rounds(Span(0, 1, 10**6)) for each in (history, other)), strict=True):
            distances = []
            for each, ledger in ((one, history.ledger), (two, other.ledger)):
                labels = ledger.labels()
                order = np.argsort([labels[client] for client in each.clients.tolist()])
                distances.append(each.participants["distance"][order])
            same = same and np.allclose(distances[0], distances[1], rtol=1e-9)
        return same and not problems and history.newest == ModelId(0, trial.rounds)


def main() -> None:
    options = parser(__doc__)
    quick = options.parse_args().quick
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(Path(name).resolve())
        tried: dict[str, Callable[[], bool]] = {"first rounds": lambda: trial.train(2) == "finished:completed"}
        if not quick:
            tried |= {fault: partial(client_fault, trial, fault) for fault in FAULTS}
        tried |= {"SuperNode killed": lambda: killed_node(trial)}
        if not quick:
            tried |= {
                "SuperNode back": lambda: returned_node(trial),
                "SuperLink killed": lambda: killed_superlink(trial),
            }
        survived = {}
        with trial.deployment:
            for fault in progress(list(tried), "flower_faults"):
                survived[fault] = tried[fault]()
                if not survived[fault]:
                    print(f"{fault}: not survived\n{trial.deployment.superlink_log()[-3000:]}", file=sys.stderr)
        survived["same as undisturbed"] = undisturbed(trial)
        lost = trial.most_seen - len(trial.participants())
    finish(
        {
            "tried": len(survived),
            "survived": sum(survived.values()),
            "rounds_lost": lost,
            "not_survived": [fault for fault, well in survived.items() if not well],
        }
    )


if __name__ == "__main__":
    main()
