"""Four runs on MNIST that end in the four modes, their reports, and what a browser finds wrong with them.

Each is trained, forgets, is certified with evidence, and reported through the command line, for the officer and for
the operator. Debian's Chromium loads every page in light and dark, takes a picture of it, and runs axe-core on it
(`npm install axe-core`). Last of all it is one JSON object on standard output; the pictures are for looking at:

    python -m benchmarks.report_pages --output pages
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
from benchmarks.falsify import digits
from experiments.data import partitions
from rescind import History, LocalTraining, SoftmaxL2
from rescind.audit import RecordingEngine, compare_worlds
from rescind.audit.evidence import describe_replay, to_json
from rescind.core.calibration import Budget
from rescind.core.facts import PublicHead
from rescind.engines.accuracies import Accuracies
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import FineTuning, Method, Scratch, Sifu, StrictSifu
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

CASES: dict[str, tuple[Method, Budget]] = {
    "exact": (Scratch(), Budget(1.0, 1e-5)),
    "strict": (StrictSifu(), Budget(10.0, 0.01)),
    "instance": (Sifu(), Budget(3.0, 1e-5)),
    "heuristic": (FineTuning(), Budget(3.0, 1e-5)),
}
CLIENTS, EXAMPLES, COLUMNS = 200, 50, 32
LEAVER, CANARY, NEXT = "client-7", "client-11", "client-13"
GRAVE = ("serious", "critical")
_AXE = """<script>{source}</script><script>
axe.run().then(found => {{ const told = document.createElement("pre"); told.id = "axe";
told.textContent = JSON.stringify(found.violations.map(each => [each.impact, each.id, each.nodes[0].html]));
document.body.append(told); }});</script>"""


def engine(folder: str | None) -> Simulation:
    train, test = digits(folder, COLUMNS)
    parts = partitions.iid(train.labels, CLIENTS, EXAMPLES, 0)
    shards = {f"client-{at}": Shard(train.features[part], train.labels[part]) for at, part in enumerate(parts)}
    head = SoftmaxHead(COLUMNS, 10)
    parameters = sum(tensor.numel() for tensor in head.start().values())
    return Simulation(
        Federation(shards, test, 10),
        head,
        LocalTraining(steps=5, learning_rate=1.0, loss=SoftmaxL2(l2=0.01, row_norm=1.0)),
        secret=b"reports",
        public=PublicHead(0.0, parameters, batch=EXAMPLES),
        public_schedule=True,
    )


def rescind(folder: Path, *words: str) -> None:
    command = [str(Path(sys.executable).parent / "rescind"), *words]
    subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env={"RESCIND_PASSPHRASE": "a passphrase"}
    )


def made(mode: str, folder: Path, data: str | None, rounds: int) -> list[Path]:
    """Run a case and write its two reports."""
    folder.mkdir(parents=True)
    method, budget = CASES[mode]
    tape = RecordingEngine(engine(data))
    with History(folder / "history") as history:
        history.name_run(operator="City Post", federation="letters", model="digits")
        watch = Accuracies(folder / "accuracies.jsonl", history, tape, forget=[LEAVER])
        federation = Revocable(history, tape, watch=watch)
        federation.train(Rounds(rounds))
        evidence = to_json([describe_replay(compare_worlds(history, tape, [CANARY]))])
        number = history.requests.ask([LEAVER], budget)
        federation.forget(method, Rounds(rounds // 2))
        federation.plan(method, history.requests.ask([NEXT], budget))
    (folder / "evidence.json").write_text(evidence)
    rescind(folder, "key", "new", "operator.key")
    rescind(folder, "certify", "history", str(number), "--key", "operator.key", "--evidence", "evidence.json")
    shown = ["--certificate", "certificate.json", "--key", "operator.key.pub", "--accuracies", "accuracies.jsonl"]
    rescind(folder, "report", "history", *shown, "-o", "officer.html")
    rescind(folder, "report", "history", *shown, "-o", "operator.html", "--private")
    return [folder / "officer.html", folder / "operator.html"]


def browser(scratch: Path, page: Path, *words: str, dark: bool = False) -> str:
    chromium = shutil.which("chromium") or sys.exit("no chromium: apt install chromium")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    theme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, *theme, *words]
    profile = f"--user-data-dir={scratch / 'profile'}"
    done = subprocess.run(
        [*command, profile, page.resolve().as_uri()], check=True, timeout=120, capture_output=True, text=True
    )
    return done.stdout


def violations(scratch: Path, page: Path, axe: str, *, dark: bool) -> list[list[str]]:
    """Return what axe-core finds: how grave it is, which rule, and the first place."""
    examined = scratch / "examined.html"
    examined.write_text(page.read_text("utf-8").replace("</body>", _AXE.format(source=axe) + "</body>"), "utf-8")
    printed = browser(scratch, examined, "--dump-dom", "--virtual-time-budget=30000", dark=dark)
    told = re.search(r'<pre id="axe">(.*?)</pre>', printed, re.DOTALL)
    if told is None:
        raise RuntimeError(f"axe-core told nothing of {page}")
    found: list[list[str]] = json.loads(unescape(told[1]))
    return found


def main() -> None:
    given = parsed(__doc__, output="where to keep pages and pictures, a new folder")
    rounds = 8 if given.quick else 40
    grave: list[str] = []
    lesser: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        kept: Path = given.output or scratch / "pages"
        subprocess.run(["npm", "install", "--silent", "axe-core"], cwd=scratch, check=True)  # noqa: S607
        axe = (scratch / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
        pages = [page for mode in progress(CASES, "cases") for page in made(mode, kept / mode, given.data, rounds)]
        pictures = 0
        for page in progress(pages, "pages"):
            for dark in (False, True):
                picture = page.with_name(f"{page.stem}-{'dark' if dark else 'light'}.png").resolve()
                browser(scratch, page, "--window-size=1000,5200", f"--screenshot={picture}", dark=dark)
                pictures += picture.stat().st_size > 10_000
                for impact, rule, place in violations(scratch, page, axe, dark=dark):
                    told = f"{page.parent.name}/{page.name}: {rule}: {place[:120]}"
                    if impact in GRAVE:
                        grave.append(told)
                    else:
                        lesser.add(told)
        # A page with a fault, to see that faults are found.
        faulty = scratch / "faulty.html"
        faulty.write_text(
            pages[0].read_text("utf-8").replace("</main>", '<p style="color: #eee">pale words</p></main>'), "utf-8"
        )
        caught = any(impact in GRAVE for impact, *_ in violations(scratch, faulty, axe, dark=False))
    for told in [*grave, *sorted(lesser)]:
        print(told)
    found: dict[str, object] = {"pages": len(pages), "pictures": pictures, "grave": len(grave), "lesser": len(lesser)}
    finish(found | {"fault_caught": int(caught)})


if __name__ == "__main__":
    main()
