"""The hospitals app on a real federation, and the same numbers wherever it runs."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from safetensors.numpy import load_file
from typer.testing import CliRunner

from benchmarks._federation import Deployment, Node
from rescind import History
from rescind.certificates.leaving import sign_request
from rescind.cli import app as command_line
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, Source
from rescind.core.sums import Wanted, flatten
from rescind.engines.heads import sum_head
from rescind.engines.rows import check_row
from rescind.forgetting import Revocable
from rescind.history.outcomes import Outcome
from rescind.ledger.records import RoundRecord
from rescind.simulation import Federation, LogisticHead, Shard, Simulation
from rescind.testing.grid import InProcessGrid
from tests.builders import labels_of, objects_of, rounds_of
from tests.hospitals import (
    APP,
    NAMES,
    ROUNDS,
    SECONDS,
    check_parity,
    config,
    differences,
    hospital,
    module,
)

NOISED_APP = Path(__file__).parent / "noised"
STAGED = Path(__file__).parent / "staged"
RIDGE = Path(__file__).parent / "ridge"
HUNGARY = "hungary"
ANCHORS = ("cleveland", HUNGARY)


@dataclass(frozen=True)
class Trained:
    """What the first training left behind; ``known`` is what everybody was sent, and knows all four."""

    model: dict[str, Any]
    rounds: list[RoundRecord]
    labels: dict[int, str]
    sources: Any
    known: list[bytes]
    log: str


@dataclass(frozen=True)
class Happened:
    """What the federation left behind once Switzerland was gone, and what its logs said."""

    folder: Path
    outcome: Outcome
    newest: ModelId
    rows_of: list[set[str]]
    problems: list[str]
    second_log: str
    third_log: str
    node_log: str
    answered: int
    refused: str


@dataclass(frozen=True)
class Ridge:
    """What a head on kept sums left behind, and the ``canaries``: what the leaver had sent."""

    folder: Path
    log: str
    joined: list[set[str]]
    told: dict[str, Any]
    canaries: list[bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("federation")


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[Deployment]:
    """One federation for all: starting it takes longer than any test on it."""
    nodes = [Node(name, f'data="{hospital(name)}"') for name in NAMES]
    nodes[1] = Node(HUNGARY, f'data="{hospital(HUNGARY)}" withdrawn="{withdrawn(folder)}"')
    with Deployment(folder / "deployment", nodes) as deployment:
        yield deployment


def withdrawn(folder: Path) -> Path:
    """Return the file at Hungary that lists who withdrew."""
    return folder / "withdrawn"


def run(deployment: Deployment, folder: Path, **changes: Any) -> str:
    """Let a run come to its end, and return its log."""
    return finish(deployment, deployment.run(APP, **config(folder, **changes)))


def finish(deployment: Deployment, number: str) -> str:
    status, log = deployment.wait(number, SECONDS), deployment.log(number)
    assert status == "finished:completed", log
    return log


@pytest.fixture(scope="module")
def trained(deployment: Deployment, folder: Path) -> Trained:
    log = run(deployment, folder)
    with History(folder / "history") as history:
        rounds = rounds_of(history, 0, 1, ROUNDS)
        labels, sources = labels_of(history), history.run.facts.sources
        known = [history.model(ModelId(0, at))["weight"].tobytes() for at in range(1, ROUNDS)]
    # Hospitals leave more than once, each time in another way.
    for own in ("story", "asked"):
        shutil.copytree(folder / "history", folder / own / "history")
        shutil.copy2(folder / "history.secret", folder / own)
    return Trained(load_file(folder / "model.safetensors"), rounds, labels, sources, known, log)


def command(*words: object) -> str:
    """Run the command line, and return what it says."""
    done = CliRunner().invoke(command_line, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def solve_simulated(left_out: Mapping[str, Sequence[int]], *names: str) -> tuple[int, dict[str, Any]]:
    """Return how many rounds the simulator takes to solve for some hospitals, less some rows, and the solution."""
    shards = {name: Shard(*rows_without(name, left_out.get(name, ()))) for name in names}
    head, training = LogisticHead(module("patients").FEATURES), module("server_app").TRAINING
    engine = Simulation(Federation(shards, shards[names[0]], 2), head, training, secret=b"none is used")
    with History.in_memory() as history:
        newest = Revocable(history, engine).solve()
        return newest.round, history.model(newest)


def rows_without(name: str, left_out: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = module("patients").load(hospital(name))
    return np.delete(rows, left_out, axis=0), np.delete(labels, left_out)


# A story: a hospital leaves, then a patient, then another one while a SuperNode dies


def certify(folder: Path, number: int) -> dict[str, Any]:
    """Sign what became of a request, let an auditor verify it with all there is, and return what it says."""
    key, certificate = folder / "operator.key", folder / f"certificate-{number}.json"
    if not key.exists():
        command("key", "new", key)
    command("certify", folder / "history", number, "--key", key, "--output", certificate)
    at_hand = ("--model", folder / "model.safetensors", "--history", folder / "history")
    verified = json.loads(command("verify", certificate, "--key", f"{key}.pub", *at_hand, "--json"))
    assert verified["verified"]
    predicate: dict[str, Any] = verified["statement"]["predicate"]
    return predicate


def whose_rows(history: History, branch: int) -> list[set[str]]:
    """Return of each round of a branch whose rows it was about, as the ledger has it."""
    labels, last = labels_of(history), history.newest_of(branch).round
    rounds = rounds_of(history, branch, 1, last)
    return [{labels[client] for client in record.clients.tolist()} for record in rounds]


def gradient_norm(model: dict[str, Any], left_out: Mapping[str, Sequence[int]], *names: str) -> float:
    """Return the norm of the loss's gradient over the rows of some hospitals, less some of them."""
    loss = module("server_app").TRAINING.loss
    sums = [sum_head(model, *rows_without(name, left_out.get(name, ())), loss, Wanted.GRADIENT) for name in names]
    gradient = sum(own.gradient for own in sums) / sum(own.rows for own in sums)
    return float(np.linalg.norm(gradient + loss.l2 * flatten(model)))


def test_a_hospital_leaves_then_a_patient_then_another_while_a_node_dies(
    deployment: Deployment, trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a passphrase for tests")
    own = folder / "story"
    history, model = own / "history", own / "model.safetensors"
    remaining = ("cleveland", HUNGARY, "long_beach_va")
    assert len(trained.rounds) == ROUNDS

    # Switzerland leaves.
    command("request", "add", history, "switzerland")
    run(deployment, own, solve=True)
    first = certify(own, 1)
    assert (first["mode"], first["scope"]) == ("exact", "group")
    rounds, solution = solve_simulated({}, *remaining)
    assert differences(load_file(model), solution) <= 1e-9
    with History(history) as opened:
        assert whose_rows(opened, 1) == [set(remaining)] * rounds

    # A patient of Hungary withdraws.
    withdrawn(folder).write_text("2 17\n")
    command("request", "add", history, HUNGARY, "--records")
    run(deployment, own, solve=True)
    second = certify(own, 2)
    assert (second["mode"], second["scope"]) == ("exact", "records")
    receipts = withdrawn(folder).with_name("withdrawn.receipts.json")
    kept = json.loads(receipts.read_bytes())["2"]
    assert [named["root"] for named in second["rows"]] == [kept["root"]]
    (receipt,) = kept["rows"]
    rows, labels = module("patients").load(hospital(HUNGARY))
    assert check_row(kept["root"], 2, receipt, rows[17], int(labels[17]))
    assert not check_row(kept["root"], 2, receipt, rows[18], int(labels[18]))
    rounds, solution = solve_simulated({HUNGARY: [17]}, *remaining)
    assert differences(load_file(model), solution) <= 1e-9
    with History(history) as opened:
        assert whose_rows(opened, 2) == [set(remaining)] * rounds

    # Another one, and Cleveland's SuperNode dies while the server solves.
    withdrawn(folder).write_text("2 17\n3 40\n")
    command("request", "add", history, HUNGARY, "--records")
    number = deployment.run(APP, **config(own, solve=True))
    end = monotonic() + SECONDS
    while "answered for model 3.2" not in deployment.node_log("cleveland"):
        assert monotonic() < end, deployment.log(number)
        sleep(0.1)
    deployment.kill("cleveland")
    try:
        log = finish(deployment, number)
    finally:
        deployment.start("cleveland")
    assert "with 2 of 3 clients that were drawn (0 rejected, 1 silent)" in log
    assert "failed" not in log
    third = certify(own, 3)
    assert (third["mode"], third["scope"]) == ("exact", "records")
    with History(history) as opened:
        about = whose_rows(opened, 3)
        assert [outcome.mode for outcome in opened.outcomes()] == [Mode.EXACT] * 3
        assert opened.integrity.verify() == []
    left = about.index({HUNGARY, "long_beach_va"})
    assert left in (1, 2)
    assert about == [set(remaining)] * left + [{HUNGARY, "long_beach_va"}] * (len(about) - left)
    # It is the solution for those who stayed, and not for all three.
    saved, left_out = load_file(model), {HUNGARY: [17, 40]}
    assert (
        gradient_norm(saved, left_out, HUNGARY, "long_beach_va") <= 1e-5 < gradient_norm(saved, left_out, *remaining)
    )

    # Every view names Cleveland, and the next run solves for it, and for Switzerland, which is back.
    assert "cleveland (last took part" in log.split("left out of model 3.")[1]
    assert [outsider["client"] for outsider in json.loads(command("status", history, "--json"))["outsiders"]] == [
        "cleveland"
    ]
    listed = json.loads(command("clients", history, "--json"))["clients"]
    assert {row["label"] for row in listed if row["left_out"]} == {"cleveland"}
    assert 'rescind_clients_outside{run="' in command("status", history, "--format", "prometheus")
    command("report", history, "-o", own / "report.html")
    assert "Left out of it, though they may take part: cleveland" in (own / "report.html").read_text()
    command("request", "readmit", history, "switzerland", "--reason", "a new contract")
    run(deployment, own, solve=True)
    with History(history) as opened:
        assert whose_rows(opened, 3)[-1] == set(NAMES)
        assert opened.newest in opened.timeline.solved
    assert json.loads(command("status", history, "--json"))["outsiders"] == []
    assert certify(own, 3)["mode"] == "exact"


# Hospitals ask themselves: one by its node's configuration, one by a request that its key has signed


def refused(*words: object) -> int:
    return CliRunner().invoke(command_line, [str(word) for word in words]).exit_code


def test_hospitals_ask_by_themselves_and_their_certificates_say_so(
    deployment: Deployment, trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a passphrase for tests")
    own = folder / "asked"
    history, signed, receipt = own / "history", own / "leave.json", own / "cleveland.json"
    assert len(trained.rounds) == ROUNDS
    withdrawn(folder).unlink(missing_ok=True)
    command("init", history, "--federation", "Four hospitals")

    # Long Beach signs with the key that its SuperNode has.
    key = folder / "deployment" / "node-long_beach_va"
    command("leave", signed, "--key", key, "--federation", "Four hospitals")
    command("leave", own / "foreign.json", "--key", key, "--federation", "Four banks")
    (own / "stale.json").write_bytes(sign_request(key, "Four hospitals", time=datetime.now(UTC) - timedelta(days=40)))
    envelope = json.loads(signed.read_text())
    forged = base64.b64decode(envelope["payload"]).replace(b'"scope":"group"', b'"scope":"records"')
    (own / "forged.json").write_text(json.dumps(envelope | {"payload": base64.b64encode(forged).decode()}))
    for name, code in (("forged", 12), ("foreign", 19), ("stale", 21)):
        assert refused("request", "import", history, own / f"{name}.json") == code
    command("request", "import", history, signed, "--receipt", own / "long_beach.json")
    assert refused("request", "import", history, signed) == 18

    # Cleveland's SuperNode hands its own over, and the same run forgets both.
    handed = own / "cleveland-leave.json"
    command("leave", handed, "--key", folder / "deployment" / "node-cleveland", "--federation", "Four hospitals")
    usual = f'data="{hospital("cleveland")}"'
    deployment.restart("cleveland", f'{usual} rescind-leave="{handed}" rescind-receipt="{receipt}"')
    try:
        log = run(deployment, own, solve=True)
    finally:
        deployment.restart("cleveland", usual)
    assert "a participant's own key asks that it be forgotten" in log
    assert "cleveland" not in log
    for number, shown in (
        (1, ("--receipt", own / "long_beach.json", "--request", signed)),
        (2, ("--receipt", receipt, "--request", handed)),
    ):
        predicate = certify(own, number)
        assert (predicate["mode"], predicate["asked_by"]) == ("exact", "the participant's own key")
        command("verify", own / f"certificate-{number}.json", "--key", own / "operator.key.pub", *shown)
    with History(history) as opened:
        assert set(labels_of(opened).values()) == {HUNGARY, "switzerland"}
        assert opened.integrity.verify() == []


# A network in two stages, on the same federation


def start_second_round(deployment: Deployment, names: Sequence[str], app: Path, own: Mapping[str, Any]) -> str:
    """Start a run, and return its number as soon as these nodes work at its second round."""

    def count_received() -> list[int]:
        # A node may be asked for other things before its first round, and its ClientApp may be started in between.
        trained = re.compile(r"Receiving: train message .*\n(?:(?!.*Receiving: ).*\n)*?.*Received successfully")
        return [len(trained.findall(deployment.node_log(name))) for name in names]

    wanted, end = [received + 2 for received in count_received()], monotonic() + SECONDS
    with deployment.slowed():
        number = deployment.run(app, **own)
        # A node that waits for a message's arrays when the ServerApp dies would wait for them for most of a minute.
        while count_received() != wanted:
            assert monotonic() < end, deployment.log(number)
            sleep(0.05)
    return number


def kill_server_app(deployment: Deployment) -> None:
    (server_app,) = deployment.server_apps()
    os.kill(server_app, signal.SIGKILL)


def test_a_network_in_two_stages_forgets_and_survives_the_death_of_its_server(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a passphrase for tests")
    history = tmp_path / "history"
    own = {"history": str(history), "model": str(tmp_path / "model.safetensors")}

    # The ServerApp dies in the body's second round; the next run goes on there.
    start_second_round(deployment, ANCHORS, STAGED, own)
    kill_server_app(deployment)
    with History(history) as opened:
        assert opened.newest == ModelId(0, 1)
    finish(deployment, deployment.run(STAGED, **own))
    first = load_file(own["model"])
    with History(history) as opened:
        about, newest = whose_rows(opened, 0), opened.newest
    assert about == [set(ANCHORS)] * 2 + [set(NAMES)] * (newest.round - 2)

    # Switzerland is no anchor, and leaves. The ServerApp dies while it solves.
    command("request", "add", history, "switzerland")
    remaining = tuple(name for name in NAMES if name != "switzerland")
    start_second_round(deployment, remaining, STAGED, own)
    kill_server_app(deployment)
    with History(history) as opened:
        assert opened.newest == ModelId(1, 1)
    finish(deployment, deployment.run(STAGED, **own))
    statement = certify(tmp_path, 1)
    assert (statement["mode"], statement["body"]) == ("exact", {"model": "0.2", "anchors": 2})
    second = load_file(own["model"])
    assert second["body"].tobytes() == first["body"].tobytes()
    assert differences(second, first, "head.weight", "head.bias") >= 0.1
    with History(history) as opened:
        assert opened.timeline.branches[1].parent == ModelId(0, 2)
        assert whose_rows(opened, 1) == [set(remaining)] * opened.newest.round
    # An undisturbed federation that never had it trains the same body, and solves for the same head.
    others = train_here(tmp_path / "here", *remaining)
    assert differences(second, others, "body") <= 1e-12
    assert differences(second, others, "head.weight", "head.bias") <= 1e-3

    # An anchor leaves: the body's rounds are made again, without it.
    command("request", "add", history, HUNGARY)
    finish(deployment, deployment.run(STAGED, **own))
    statement = certify(tmp_path, 2)
    assert (statement["mode"], statement["body"]) == ("exact", {"model": "2.2", "anchors": 1})
    with History(history) as opened:
        assert opened.timeline.branches[2].parent == ModelId(0, 0)
        about = whose_rows(opened, 2)
        assert opened.integrity.verify() == []
    assert about == [{"cleveland"}] * 2 + [{"cleveland", "long_beach_va"}] * (len(about) - 2)
    third, others = load_file(own["model"]), train_here(tmp_path / "there", "cleveland", "long_beach_va")
    assert differences(third, second, "body") >= 0.01
    assert differences(third, others, "body") <= 1e-12
    assert differences(third, others, "head.weight", "head.bias") <= 1e-3


def train_here(folder: Path, *names: str, module: str = "tests.staged.staged.apps") -> dict[str, Any]:
    """Run an app in this process with some hospitals only, and return the model."""
    folder.mkdir()
    own = {"history": str(folder / "history"), "model": str(folder / "model.safetensors")}
    app = importlib.import_module(module)
    nodes = {name: {"data": str(hospital(name)), "client-id": name} for name in names}
    app.main(InProcessGrid(app.client, nodes), Context(1, 1, {}, RecordDict(), own))
    return load_file(own["model"])


# A ridge head on sums that are kept, on the same federation


@pytest.fixture(scope="module")
def ridge(deployment: Deployment, folder: Path) -> Ridge:
    """Hungary leaves by its own key, and everybody is switched off before it is forgotten."""
    own = folder / "ridge"
    own.mkdir()
    history, model = own / "history", own / "model.safetensors"
    config = {"history": str(history), "model": str(model)}
    command("init", history, "--federation", "Four hospitals")
    log = finish(deployment, deployment.run(RIDGE, **config))
    with History(history) as opened:
        (client,) = opened.participants.find([HUNGARY])
        sums = opened.objects.load(objects_of(opened)[client])
        joined = whose_rows(opened, 0)
    signed = own / "leave.json"
    command("leave", signed, "--key", folder / "deployment" / f"node-{HUNGARY}", "--federation", "Four hospitals")
    command("request", "import", history, signed, "--receipt", own / "hungary.json")
    for name in NAMES:
        deployment.kill(name)
    told = json.loads(command("request", "forget", history, "--save-to", model, "--json"))
    for name in NAMES:
        deployment.start(name)
    canaries = [part.tobytes() for tensor in sums.values() for part in (tensor.reshape(-1)[:12],) if len(part) == 12]
    return Ridge(own, log, joined, told, canaries)


def test_a_head_forgets_from_kept_sums_while_everybody_is_switched_off(
    ridge: Ridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a passphrase for tests")
    others = [name for name in NAMES if name != HUNGARY]
    assert ridge.joined == [set(NAMES)]
    assert "model 0.1 with 4 of 4 clients that were drawn" in ridge.log
    assert ridge.told["served"] == [{"request": 1, "mode": "exact"}]
    assert (ridge.told["waiting"], ridge.told["missing"]) == ([], [])
    with History(ridge.folder / "history") as opened:
        assert whose_rows(opened, 1) == [set(others)]
        assert opened.integrity.verify() == []
    never = train_here(ridge.folder / "never", *others, module="tests.ridge.ridge.apps")
    model = load_file(ridge.folder / "model.safetensors")
    assert {name: tensor.tobytes() for name, tensor in model.items()} == {
        name: tensor.tobytes() for name, tensor in never.items()
    }
    predicate = certify(ridge.folder, 1)
    assert (predicate["mode"], predicate["asked_by"]) == ("exact", "the participant's own key")
    key = ridge.folder / "operator.key.pub"
    shown = command(
        *("verify", ridge.folder / "certificate-1.json", "--key", key, "--history", ridge.folder / "history"),
        *("--model", ridge.folder / "model.safetensors"),
    )
    assert "the kept sums of the 3 participants that its round names" in " ".join(shown.split())
    assert len(ridge.canaries) == 2
    stored = b"".join(path.read_bytes() for path in ridge.folder.rglob("*") if path.is_file())
    assert [canary for canary in ridge.canaries if canary in stored] == []


def test_who_withdrew_is_left_out_of_the_evaluation_too(tmp_path: Path) -> None:
    (tmp_path / "withdrawn").write_text("2 17\n3 40\n")
    own = {"data": str(hospital(HUNGARY)), "withdrawn": str(tmp_path / "withdrawn")}
    grid = InProcessGrid(module("client_app").app, {HUNGARY: own})
    arrays = ArrayRecord({"weight": Array(np.zeros((1, module("patients").FEATURES))), "bias": Array(np.zeros(1))})
    message = Message(RecordDict({"arrays": arrays}), grid.ids[HUNGARY], MessageType.EVALUATE)
    (reply,) = grid.send_and_receive([message])
    _, labels = rows_without(HUNGARY, [17, 40])
    metrics = reply.content.metric_records["metrics"]
    assert (metrics["num-examples"], metrics["accuracy"]) == (len(labels), np.mean(labels == 0))


# Noise in every round


def test_a_hospital_is_forgotten_strictly_by_a_whole_network_whose_rounds_are_noised(
    deployment: Deployment, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a passphrase for tests")
    own = folder / "noised"
    own.mkdir()

    def go(rounds: int) -> str:
        return finish(deployment, deployment.run(NOISED_APP, **config(own, num_rounds=rounds)))

    go(1)
    command("request", "add", own / "history", "long_beach_va", "--epsilon", "8", "--delta", "0.01")
    log = go(0)
    assert "request 1 is served (strict): back to model 0.1, 0 rounds since" in log
    statement = certify(own, 1)
    assert (statement["mode"], statement["model"]) == ("strict", "1.0")
    assert statement["facts"]["sources"]["training"] == Source.DECLARED.value
    rounds = statement["rounds"]
    assert (rounds["rounds"], rounds["participations"]) == (1, 1)
    z = rounds["sigma"] * rounds["denominator"] / rounds["clip"] * (1 - 1e-4)
    assert rounds["noise_multiplier"] == pytest.approx(z, rel=1e-12)
    assert rounds["mu"] == pytest.approx(1 / z, rel=1e-6)
    with History(own / "history") as history:
        assert history.integrity.verify() == []


@pytest.fixture(scope="module")
def happened(deployment: Deployment, trained: Trained, ridge: Ridge, folder: Path) -> Happened:
    assert trained.rounds
    assert ridge.told
    # Who withdrew in the story did not here.
    withdrawn(folder).unlink(missing_ok=True)
    # To other apps, which have histories of their own.
    answered = deployment.node_log("switzerland").count("answered for model")
    command("request", "add", folder / "history", "switzerland", "--epsilon", "10", "--delta", "0.01")
    second_log = run(deployment, folder, num_rounds=1)
    # Switzerland's SuperNode is still connected. Cleveland's is killed while it trains.
    number = start_second_round(deployment, ["cleveland"], APP, config(folder, num_rounds=3))
    deployment.kill("cleveland")
    third_log = finish(deployment, number)
    deployment.unregister("switzerland")
    deployment.kill("switzerland")
    with pytest.raises(ChildProcessError) as refusal:
        deployment.start("switzerland")
    node_log = deployment.node_log("switzerland")
    deployment.stop()
    with History(folder / "history") as history:
        (outcome,) = history.outcomes()
        newest, problems, rows_of = history.newest, history.integrity.verify(), whose_rows(history, 1)
    refused = str(refusal.value)
    return Happened(folder, outcome, newest, rows_of, problems, second_log, third_log, node_log, answered, refused)


def test_all_hospitals_train_and_are_known_by_their_keys(trained: Trained) -> None:
    assert [len(record.clients) for record in trained.rounds] == [4] * ROUNDS
    assert sorted(trained.labels.values()) == sorted(NAMES)
    assert trained.sources.identity is Source.CHECKED
    assert trained.sources.training is Source.EXECUTED
    assert f"model 0.{ROUNDS} with 4 of 4 clients" in trained.log


def test_one_hospital_leaves_by_a_plan_with_noise_from_a_later_round(happened: Happened) -> None:
    assert happened.outcome.mode is Mode.INSTANCE
    assert happened.outcome.restart is not None
    candidate = happened.outcome.restart.planned.candidate
    assert candidate.node.round > 0
    assert candidate.sigma > 0
    assert happened.outcome.rounds == 1
    assert f"request {happened.outcome.asked.number} is served (instance)" in happened.second_log
    assert "flwr supernode unregister" in happened.second_log


def test_who_left_is_not_asked_again_though_it_is_connected(happened: Happened) -> None:
    assert happened.newest == ModelId(1, 3)
    assert "model 1.2 with 3 of 3 clients" in happened.third_log
    assert happened.third_log.count("a forgotten participant is connected (node ") == 1
    # The first run's id is in the node's log; those of the runs after the request are not.
    assert happened.node_log.count("rescind: trained for model 0.") == ROUNDS
    assert "trained for model 1." not in happened.node_log
    assert happened.node_log.count("answered for model") == happened.answered


def test_whose_node_is_killed_while_it_trains_is_not_in_the_round(happened: Happened) -> None:
    assert "model 1.3 with 2 of 3 clients that were drawn (0 rejected, 1 silent)" in happened.third_log
    remaining = {"cleveland", HUNGARY, "long_beach_va"}
    assert happened.rows_of == [remaining, remaining, remaining - {"cleveland"}]


def test_who_left_is_refused_once_its_key_is_barred(happened: Happened) -> None:
    assert "Failed to activate SuperNode" in happened.refused


def test_what_was_erased_is_gone_and_the_chain_holds(happened: Happened) -> None:
    assert happened.problems == []
    assert happened.outcome.left == ()
    stored = b"".join(path.read_bytes() for path in (happened.folder / "history").rglob("*") if path.is_file())
    assert b"switzerland" not in stored
    assert b"cleveland" in stored


def test_flowers_log_does_not_name_who_left(happened: Happened, trained: Trained) -> None:
    superlink = (happened.folder / "deployment" / "superlink.log").read_text()
    for log in (trained.log, happened.second_log, happened.third_log, superlink):
        assert "rescind" in log or log is superlink
        assert "switzerland" not in log


def test_flowers_database_keeps_a_name_and_once_it_is_cleaned_no_model(
    happened: Happened, trained: Trained, ridge: Ridge
) -> None:
    """Stopped and cleaned as docs/erasure.md says."""
    database = happened.folder / "deployment" / "state.db"
    with closing(sqlite3.connect(database)) as connection:
        for statement in ("PRAGMA secure_delete = ON", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(statement)
        query = "SELECT name FROM node WHERE unregistered_at IS NOT NULL"
        assert connection.execute(query).fetchall() == [("switzerland",)]
    stored = b"".join(path.read_bytes() for path in database.parent.glob("state.db*"))
    assert b"switzerland" in stored
    assert len(trained.known) == ROUNDS - 1
    assert [at for at, model in enumerate(trained.known, start=1) if model in stored] == []
    assert [canary for canary in ridge.canaries if canary in stored] == []


def test_the_released_model_is_saved(happened: Happened) -> None:
    saved = load_file(happened.folder / "model.safetensors")
    with History(happened.folder / "history") as history:
        for name, tensor in history.model(history.newest).items():
            np.testing.assert_array_equal(saved[name], tensor)


# Parity: what the federation trained is what everybody else trains


def test_the_simulator_trains_the_same(trained: Trained) -> None:
    check_parity(trained.model, trained.rounds, trained.labels)
