"""Does a federation serve requests without hands, whatever happens to them and to it?

A day in a few minutes. The four hospitals on a real deployment with TLS and registered keys, and one run that serves
requests as they come and waits for somebody to agree to each plan. Five requests come at random times: two hospitals
leave by files that they signed, one asks and thinks better of it, one is refused, and a patient of another withdraws,
whose row the hospital names late. What waits has to be seen, in the log and by the commands, while it waits.
While the patient is being forgotten the SuperLink is killed, with the ServerApp that it runs, and started again. In
the end every request has to stand as it should, the chain has to hold, and every certificate has to verify and say
who asked. ``wrong`` lists what does not.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

from typer.testing import CliRunner

from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser, progress
from rescind import History
from rescind.cli import app as command_line
from rescind.history.outcomes import find_outcomes

APP = Path(__file__).parents[1] / "examples" / "hospitals"
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")
FEDERATION = "Four hospitals"
PATIENCE = 400.0
# Seconds between two things that happen.
LONGEST_PAUSE = 8.0


def command(*words: object) -> str:
    """Run the command line; what it does not do is an error."""
    done = CliRunner().invoke(command_line, [str(word) for word in words])
    if done.exit_code:
        raise RuntimeError(f"rescind {' '.join(map(str, words))}: {done.output}")
    return done.output


class Day:
    """A federation that serves, and what happens to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.history = folder, folder / "history"
        self.withdrawn = folder / "withdrawn"
        self._random = random.Random(seed)
        nodes = [
            Node(name, f'data="{APP / "data" / name}.csv" withdrawn="{self.withdrawn}-{name}"') for name in NAMES
        ]
        self.deployment = Deployment(folder / "deployment", nodes)
        self._run, self.unseen = "", list[str]()

    def begin(self) -> None:
        """Start the run that serves."""
        self._run = self.deployment.run(
            APP,
            history=str(self.history),
            model=str(self.folder / "model"),
            num_rounds=3,
            serve=True,
            approval=True,
            solve=True,
        )

    def pause(self) -> None:
        """Let some time pass."""
        sleep(self._random.uniform(0, LONGEST_PAUSE))

    def wait(self, until: Callable[[History], bool], event: str) -> None:
        """Wait until the history says so."""
        end = monotonic() + PATIENCE
        while monotonic() < end:
            if self.history.exists():
                with History(self.history, create=False) as history:
                    if until(history):
                        return
            sleep(0.5)
        raise TimeoutError(f"{event}: not after {PATIENCE:.0f} s\n{self.deployment.log(self._run)[-3000:]}")

    def leave(self, name: str) -> int:
        """A hospital signs a request, and the operator takes it in."""
        file = self.folder / f"{name}.json"
        command("leave", file, "--key", self.folder / "deployment" / f"node-{name}", "--federation", FEDERATION)
        command("request", "import", self.history, file, "--receipt", self.folder / f"{name}.receipt")
        return self.newest()

    def ask(self, name: str, *words: str) -> int:
        """The operator records a request."""
        command("request", "add", self.history, name, *words)
        return self.newest()

    def newest(self) -> int:
        """Return the number of the last request."""
        with History(self.history, create=False) as history:
            return len(history.timeline.requests)

    def decide(self, number: int, *words: str) -> None:
        """Somebody looks at the plan once there is one, and decides."""
        self.wait(lambda history: number in history.timeline.plans, f"a plan for request {number}")
        self.look(f"request {number} is planned and waits", "waits for approval since", "rescind_undecided_requests")
        self.pause()
        command("request", words[0], self.history, number, "--by", "A. Officer", *words[1:])

    def look(self, logged: str, listed: str, gauge: str) -> None:
        """Look whether an operator sees that a request waits: in the log, in the list and in the metrics."""
        end = monotonic() + PATIENCE
        while logged not in self.deployment.log(self._run):
            if monotonic() > end:
                raise TimeoutError(f"the log does not say {logged!r}")
            sleep(0.5)
        metrics = command("status", self.history, "--format", "prometheus")
        counted = [line for line in metrics.splitlines() if line.startswith(f"{gauge}{{")]
        shown = (command("request", "list", self.history), command("status", self.history))
        self.unseen += [f"nobody sees {listed!r}" for words in shown if listed not in " ".join(words.split())]
        self.unseen += [f"{line}, and one waits" for line in counted or [gauge] if not line.endswith(" 1")]

    def await_served(self, number: int) -> None:
        """Wait until a request is served to its end."""
        self.wait(lambda history: number in find_outcomes(history.timeline), f"request {number} served")


def live(day: Day) -> Iterator[str]:
    """Let the day go by; yields what has happened."""
    day.begin()
    day.wait(lambda history: bool(history.timeline.branches) and history.newest.round > 0, "the first model")
    command("init", day.history, "--federation", FEDERATION)
    yield "trained"
    first = day.leave("long_beach_va")
    day.decide(first, "approve", "--yes")
    day.await_served(first)
    yield "a signed request"
    day.pause()
    second = day.ask("cleveland")
    day.pause()
    command("request", "withdraw", day.history, second, "--reason", "asked by mistake")
    yield "one withdrawn"
    day.pause()
    third = day.ask("hungary", "--records")
    day.look(f"request {third} waits until", "its rows are not named yet", "rescind_unnamed_requests")
    yield "rows that nobody has named"
    Path(f"{day.withdrawn}-hungary").write_text(f"{third} 17\n")
    day.decide(third, "approve", "--yes")
    day.wait(lambda history: history.timeline.requests[third - 1].served, "the restart")
    day.deployment.kill_superlink()
    day.pause()
    day.deployment.start_superlink()
    day.begin()
    day.await_served(third)
    yield "rows, and a kill"
    day.pause()
    fourth = day.ask("cleveland")
    day.decide(fourth, "refuse", "--reason", "a law asks to keep the data")
    yield "one refused"
    day.pause()
    fifth = day.leave("switzerland")
    day.decide(fifth, "approve", "--yes")
    day.await_served(fifth)
    yield "another signed request"


def find_wrong(day: Day) -> Iterator[str]:
    """Say what did not end as it should, or was not seen while it waited."""
    yield from day.unseen
    expected = ["served", "withdrawn", "served", "refused", "served"]
    askers = {1: "the participant's own key", 3: "the operator", 5: "the participant's own key"}
    with History(day.history, create=False) as history:
        states = [
            "withdrawn" if asked.withdrawn else "refused" if asked.refused else "served" if asked.served else "open"
            for asked in history.timeline.requests
        ]
        if states != expected:
            yield f"the requests are {states}"
        if set(history.ledger.labels().values()) != {"cleveland", "hungary"}:
            yield f"those left are {sorted(history.ledger.labels().values())}"
        yield from history.integrity.verify()
    key = day.folder / "operator.key"
    command("key", "new", key)
    for number, asker in askers.items():
        certificate = day.folder / f"certificate-{number}.json"
        command("certify", day.history, number, "--key", key, "--output", certificate)
        name = {1: "long_beach_va", 5: "switzerland"}.get(number)
        own = ("--request", day.folder / f"{name}.json", "--receipt", day.folder / f"{name}.receipt") if name else ()
        told = command("verify", certificate, "--key", f"{key}.pub", "--history", day.history, "--json", *own)
        for words in (f'"asked_by": "{asker}"', '"mode": "exact"'):
            if words not in told:
                yield f"certificate {number} does not say {words}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    seed = options.parse_args().seed
    os.environ["RESCIND_PASSPHRASE"] = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as name:
        day = Day(Path(name).resolve(), seed)
        with day.deployment:
            happened = list(progress(live(day), "day"))
            wrong = list(find_wrong(day))
    finish({"seed": seed, "happened": len(happened), "wrong": wrong, "mistakes": len(wrong)})


if __name__ == "__main__":
    main()
