"""The command line as an operator meets it."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rescind import History, __version__
from rescind.certificates.files import read_evidence
from rescind.checkpoints.tensors import save
from rescind.core.edges import ROOT
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Scratch
from rescind.testing.small import simulation
from tests.builders import BUDGET, entries_of, register, said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History(tmp_path / "history") as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").train(Rounds(2))
        history.participants.label({"clinic-3": "Clinic of the North"})
    return tmp_path / "history"


def test_a_request_is_added_listed_and_taken_back(folder: Path) -> None:
    added = said("request", "add", folder, "clinic-1", "--epsilon", 5)
    assert added.exit_code == 0
    assert "Request 1 is recorded" in added.output
    again = said("request", "add", folder, "Clinic of the North")
    assert again.exit_code == 0
    heads, *lines = said("request", "list", folder).output.splitlines()
    assert re.split("  +", heads.strip()) == ["request", "asked", "who leaves", "epsilon, delta", "state"]
    assert [re.split("  +", line)[2] for line in lines] == ["clinic-1", "Clinic of the North"]
    assert all("open, due" in line for line in lines)
    assert said("request", "withdraw", folder, 1).exit_code == 0
    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
    _, *lines = said("request", "list", folder).output.splitlines()
    assert [re.split("  +", line.strip())[4] for line in lines] == ["withdrawn", "served"]
    assert "forgotten (pseudonym 4)" in lines[1]


def test_a_request_that_is_being_served_is_not_called_served(folder: Path) -> None:
    said("request", "add", folder, "clinic-1")
    with History(folder) as history:

        class DiesError(Exception):
            pass

        def die(*_: object) -> None:
            raise DiesError

        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s", watch=die)
        with pytest.raises(DiesError):
            federation.forget(Scratch(), Rounds(2))
    assert "being served" in said("request", "list", folder).output
    assert "is being served; if that broke off, the next run" in said("status", folder).output
    for command in (("approve", folder, 1, "--by", "X", "--yes"), ("withdraw", folder, 1)):
        result = said("request", *command)
        assert result.exit_code == 1
        assert "request 1 is being served, and no longer open" in " ".join(result.output.split())
    assert "there is no open request 2" in said("request", "withdraw", folder, 2).output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("request", "add", "{folder}", "clinic-11"), "did you mean 'clinic-1'"),
        (("request", "add", "{folder}", "clinic-1", "--delta", "2"), "delta"),
        (("request", "add", "nowhere", "clinic-1"), "there is no history in nowhere"),
        (("request", "withdraw", "{folder}", "99"), "no open request 99"),
        (("request", "list", ""), "no history is named"),
    ],
)
def test_mistakes_are_told_in_a_sentence(folder: Path, words: tuple[str, ...], hint: str) -> None:
    result = said(*(word.format(folder=folder) for word in words))
    assert result.exit_code == 1
    assert hint in result.output
    assert "Traceback" not in result.output


def test_a_request_is_certified_by_two_and_verified(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    said("request", "add", folder, "clinic-1")
    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
        save(history.model(history.newest), tmp_path / "model")
    for name in ("operator", "officer"):
        assert said("key", "new", tmp_path / name).exit_code == 0
    certificate = tmp_path / "certificate.json"
    for name in ("operator", "officer"):
        result = said("certify", folder, 1, "--key", tmp_path / name, "-o", certificate)
        assert result.exit_code == 0, result.output
        assert "Certificate of forgetting" in result.output
    words = ["verify", certificate, "--key", tmp_path / "operator.pub", "--key", tmp_path / "officer.pub"]
    result = said(
        *words, "--model", tmp_path / "model", "--history", folder, "--html", tmp_path / "page.html", "--full"
    )
    assert result.exit_code == 0, result.output
    assert "signed by " in result.output
    assert "the model at hand is the one" in result.output
    assert "never computed from these participants' data" in result.output
    assert "Not claimed:" in result.output
    assert "Not checked here:" not in result.output
    assert "Not checked here:" in said(*words, "--full").output
    page = (tmp_path / "page.html").read_text()
    assert page.count("<details>") >= 5
    assert "http" not in page
    assert "never computed from these participants&#x27; data" in page


def test_a_withdrawn_request_is_not_certified(folder: Path, tmp_path: Path) -> None:
    said("request", "add", folder, "clinic-1")
    said("request", "withdraw", folder, 1)
    refused = said("certify", folder, 1, "--key", tmp_path / "key")
    assert refused.exit_code == 1
    assert "request 1 was withdrawn: nobody was forgotten by it" in refused.output


def test_what_does_not_hold_ends_with_its_own_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    assert said("certify", folder, 1, "--key", tmp_path / "key").exit_code == 1
    (tmp_path / "none").write_text("{}")
    said("key", "new", tmp_path / "key")
    assert said("key", "new", tmp_path / "key").exit_code == 10
    assert said("verify", tmp_path / "none", "--key", tmp_path / "key.pub").exit_code == 11


@pytest.fixture
def forgotten(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a history in which request 1 was served; there are two keys."""
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    said("request", "add", folder, "clinic-1")
    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
    for name in ("operator", "officer"):
        said("key", "new", tmp_path / name)
    return folder


def test_an_annex_is_written_for_its_owner_alone_and_checked(
    forgotten: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, annex = tmp_path / "certificate.json", tmp_path / "annex.json"
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app]")
    for name in ("operator", "officer"):
        words = ("certify", forgotten, 1, "--key", tmp_path / name, "-o", certificate, "--annex", annex)
        result = said(*words)
        assert result.exit_code == 0, result.output
        assert annex.stat().st_mode & 0o777 == 0o600
        assert f"'{annex}' is private" in caplog.text
    both = ("--key", tmp_path / "operator.pub", "--key", tmp_path / "officer.pub")
    result = said("verify", certificate, *both, "--annex", annex)
    assert result.exit_code == 0, result.output
    assert "the annex at hand is signed likewise" in result.output
    assert "clinic-1" not in annex.read_text()
    before = (certificate.read_bytes(), annex.read_bytes())
    with History(forgotten) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").train(Rounds(3))
    # Another head is another certificate, and has an annex of its own.
    other = tmp_path / "other.json"
    refused = said("certify", forgotten, 1, "--key", tmp_path / "operator", "-o", other, "--annex", annex)
    assert refused.exit_code == 11
    assert not other.exists()
    assert (certificate.read_bytes(), annex.read_bytes()) == before
    assert said("certify", forgotten, 1, "--key", tmp_path / "operator", "-o", other).exit_code == 0
    assert said("verify", other, "--key", tmp_path / "operator.pub", "--annex", annex).exit_code == 16


def test_the_model_in_service_is_certified_though_training_went_on(forgotten: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.safetensors" for name in ("between", "served", "before")}
    with History(forgotten) as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        save(history.model(ROOT), files["before"])
        for name, rounds in (("between", 2), ("served", 3)):
            federation.train(Rounds(rounds))
            save(history.model(history.newest), files[name])
    newest, chosen = tmp_path / "newest.json", tmp_path / "chosen.json"
    sign = ("certify", forgotten, 1, "--key", tmp_path / "operator", "-o")
    assert said(*sign, newest).output == f"Certificate of forgetting for model 1.3: {newest}\n"
    assert said(*sign, chosen, "--model", files["between"]).output.startswith(
        "Certificate of forgetting for model 1.2"
    )
    check = ("--key", tmp_path / "operator.pub", "--history", forgotten, "--model")
    for certificate, name in ((newest, "served"), (chosen, "between")):
        assert (
            "the model at hand is the one that it is about" in said("verify", certificate, *check, files[name]).output
        )
    shown = " ".join(said("verify", chosen, *check, files["served"]).output.split())
    assert "the model at hand is model 1.3, which was trained on without the forgotten" in shown
    assert said("verify", newest, *check, files["between"]).exit_code == 13
    again = said(*sign, newest, "--model", files["between"])
    assert again.exit_code == 1
    assert "is about model 1.3" in again.output
    refused = said(*sign, tmp_path / "none.json", "--model", files["before"])
    assert (refused.exit_code, (tmp_path / "none.json").exists()) == (1, False)
    assert "holds none of the models that request 1 led to: model 1.1 to model 1.3" in " ".join(
        refused.output.split()
    )


def test_a_new_key_signs_an_old_certificate_unless_it_claims_less_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    for name in ("operator", "officer"):
        said("key", "new", tmp_path / name)
    folder, certificate = tmp_path / "history", tmp_path / "certificate.json"
    with History(folder) as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        federation.train(Rounds(2))
        number = history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(1))
        said("certify", folder, number, "--key", tmp_path / "operator", "-o", certificate)
        federation.train(Rounds(3))
        again = said("certify", folder, number, "--key", tmp_path / "officer", "-o", certificate)
        assert again.exit_code == 0, again.output
        checking = ("verify", certificate, "--key", tmp_path / "officer.pub", "--history", folder)
        assert "training went on from its model 1.1 to model 1.3" in said(*checking).output
        with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
            recorder.record_other_mean()
    signed = certificate.read_bytes()
    refused = said("certify", folder, number, "--key", tmp_path / "operator", "-o", certificate)
    assert refused.exit_code == 11
    assert "nothing is proven" in refused.output
    assert certificate.read_bytes() == signed
    result = said(*checking, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "Since then:" in result.output
    assert "<h2>Since then</h2>" in (tmp_path / "page.html").read_text()


def test_evidence_is_stated_and_shown_as_no_proof(forgotten: Path, tmp_path: Path) -> None:
    certificate, evidence = tmp_path / "certificate.json", tmp_path / "evidence.json"
    measured = {"what": "an attack <b>", "found": "epsilon at least 0.1, with 95 %", "bound": "epsilon 0"}
    evidence.write_text(json.dumps([measured]))
    words = ("certify", forgotten, 1, "--key", tmp_path / "operator", "-o", certificate)
    assert said(*words, "--evidence", evidence).exit_code == 0
    checking = ("verify", certificate, "--key", tmp_path / "operator.pub", "--history", forgotten)
    result = said(*checking, "--full", "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    shown = result.output.partition("Measured, which proves nothing:\n")[2]
    assert "an attack <b>: epsilon at least 0.1, with 95 %; the certificate's bound: epsilon 0" in shown
    assert "the measured evidence: that is the signers' word" in result.output
    assert "an attack &lt;b&gt;" in (tmp_path / "page.html").read_text()
    # Whoever signs too has to say the same.
    assert said(*words).exit_code == 11


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        "no list",
        [{"what": "x", "found": "y"}],
        [{"what": "x", "found": "y", "bound": 1}],
        [{"what": "x", "found": "y", "bound": "z", "also": "z"}],
        [{"what": "x", "found": "y", "bound": ""}],
        [{"what": "x", "found": "y", "bound": "z"}] * 33,
        [{"what": "x", "found": "y", "bound": "z" * 1999}] * 32 + ["x" * 9000],
    ],
)
def test_evidence_is_read_strictly(wrong: Any) -> None:
    with pytest.raises(ValueError, match="the evidence"):
        read_evidence(json.dumps(wrong).encode())
    with pytest.raises(ValueError, match="twice"):
        read_evidence(b'[{"what": "x", "what": "x", "found": "y", "bound": "z"}]')
    for broken in (b"", b"[" * 50_000, b"\xff", b"[NaN]"):
        with pytest.raises(ValueError, match="the evidence"):
            read_evidence(broken)
    assert len(read_evidence(json.dumps([{"what": "x", "found": "y", "bound": "z"}] * 32).encode())) == 32


def test_heads_from_clients_logs_show_that_a_history_was_rolled_back(forgotten: Path, tmp_path: Path) -> None:
    certificate, heads = tmp_path / "certificate.json", tmp_path / "heads"
    said("certify", forgotten, 1, "--key", tmp_path / "operator", "-o", certificate)
    shutil.copytree(forgotten, tmp_path / "backup")
    with History(forgotten) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").train(Rounds(3))
        told = [entry.head.hex() for entry in entries_of(history)]
    heads.write_text(f"{told[0]}\n\nINFO : rescind: trained for model 1.2; the history's head was {told[-1]}\n")
    words = ("verify", certificate, "--key", tmp_path / "operator.pub", "--witness", heads)
    result = said(*words, "--history", forgotten)
    assert result.exit_code == 0, result.output
    assert "all 2 witnessed heads are in its chain" in result.output
    result = said(*words, "--history", tmp_path / "backup")
    assert (result.exit_code, f"the witnessed head {told[-1]} is not in the chain" in result.output) == (15, True)
    assert "give the history, too" in said(*words).output
    for content, hint in (
        (b"", "has no head in it"),
        (f"{told[0]}\n\x1b[2Jverified\n".encode(), "line 2 of"),
        (f"{told[0][:-1]}\n".encode(), "line 1 of"),
        (f"{told[0]}0\n".encode(), "line 1 of"),
        (f"the model was {told[0]}\n".encode(), "line 1 of"),
        (b"\xff" * 100, "line 1 of"),
        (b"\0" * (2**24 + 1), "more than 16 MiB"),
    ):
        heads.write_bytes(content)
        result = said(*words, "--history", forgotten)
        assert (result.exit_code, hint in result.output) == (1, True), result.output
        assert "\x1b" not in result.output


def test_a_sceptics_arguments_are_answered(forgotten: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.json"
    said("certify", forgotten, 1, "--key", tmp_path / "operator", "-o", certificate)
    own, kept = ("--key", tmp_path / "operator.pub"), certificate.read_bytes()
    tries = [
        ((*own, "--threshold", 0), 1, "from 1 to the number of keys"),
        ((*own, *own, "--threshold", 2), 12, "2 different keys"),
        (("--key", tmp_path / "officer.pub"), 12, "not verified: 1 different keys"),
        (("--key", tmp_path / "operator"), 10, "ends in .pub"),
        (("--key", tmp_path / "nobody.pub"), 1, "No such file or directory: "),
        ((*own, "--html", certificate), 1, "is no page"),
        ((*own, "--html", tmp_path), 1, "is no page"),
        ((*own, "--html", tmp_path / "nowhere" / "page.html"), 1, "does not exist"),
        ((*own, "--annex", certificate), 16, "not verified: the annex cannot be used"),
        ((*own, "--history", tmp_path / "nowhere"), 1, "there is no history"),
    ]
    for options, code, hint in tries:
        result = said("verify", certificate, *options)
        assert (result.exit_code, hint in result.output) == (code, True), result.output
    assert certificate.read_bytes() == kept
    # A page may be written again.
    for _ in range(2):
        assert said("verify", certificate, *own, "--html", tmp_path / "page.html").exit_code == 0
    assert "This page proves nothing by itself" in (tmp_path / "page.html").read_text()


def test_the_version_is_told() -> None:
    assert said("--version").output == f"rescind {__version__}\n"


def test_help_comes_in_less_than_half_of_flwrs_time() -> None:
    pytest.importorskip("flwr")
    beside = Path(sys.executable).parent
    best = {"rescind": float("inf"), "flwr": float("inf")}
    for _ in range(3):
        for name in best:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([beside / name, "--help"], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            # Time of the processor, as others may be using it too.
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[name] = min(best[name], spent)
    assert best["rescind"] < 0.5 * best["flwr"]


KEY, OTHER_KEY = "SHA256:pn0mSy3a", "SHA256:Bt3eM0aw"


def test_a_receipt_finds_its_client_in_a_certificate_by_name_or_key(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    with History(folder) as history:
        # A clinic whose key was replaced, and which is called as people call it.
        register(history, KEY, OTHER_KEY)
        history.participants.label(dict.fromkeys([KEY, OTHER_KEY], "Clinic of the South"))
    files = [tmp_path / "south.json", tmp_path / "one.json", tmp_path / "two.json"]
    named = [word for path in files[:2] for word in ("--receipt", path)]
    added = said("request", "add", folder, "Clinic of the South", "clinic-1", *named)
    assert added.exit_code == 0, added.output
    assert said("request", "add", folder, "clinic-2", "--receipt", files[2]).exit_code == 0
    south, one = (json.loads(path.read_text()) for path in files[:2])
    assert set(south["names"]) == {KEY, OTHER_KEY}
    assert set(one["names"]) == {"clinic-1"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    # Nothing of anybody else.
    assert "clinic-1" not in files[0].read_text()
    assert not any(word in files[1].read_text() for word in ("SHA256", "South", *south["names"].values()))
    assert not any(salt in added.output for salt in (*south["names"].values(), *one["names"].values()))

    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
    said("key", "new", tmp_path / "operator")
    certificate, page = tmp_path / "certificate.json", tmp_path / "page.html"
    assert said("certify", folder, 1, "--key", tmp_path / "operator", "-o", certificate).exit_code == 0
    words = ["verify", certificate, "--key", tmp_path / "operator.pub", "--receipt"]
    found = said(*words, files[1], "--html", page)
    assert found.exit_code == 0, found.output
    assert "clinic-1 is among the forgotten\n" in found.output
    assert "clinic-1" not in page.read_text()
    by_key = said(*words, files[0], "--json")
    assert json.loads(by_key.output)["holds"][-1] == (
        f"Clinic of the South is among the forgotten, as {KEY} and {OTHER_KEY}"
    )
    other = said(*words, files[2])
    assert other.exit_code == 17
    assert "not verified: clinic-2 is not among the forgotten: the receipt is for request 2" in other.output
    one["names"]["clinic-1"] = south["names"][KEY]
    files[1].write_text(json.dumps(one))
    assert said(*words, files[1]).exit_code == 17
    for broken in ("", "[]", json.dumps(one | {"more": 1}), json.dumps(one | {"names": {"clinic-1": "ab"}})):
        files[1].write_text(broken)
        assert "is no receipt" in said(*words, files[1]).output


def test_a_receipt_is_not_written_over_anything(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    for wrong in (["there"], ["none/receipt"], ["one", "two"]):
        files = [word for name in wrong for word in ("--receipt", tmp_path / name)]
        assert said("request", "add", folder, "clinic-1", *files).exit_code == 1
    both = said("request", "add", folder, "clinic-1", "clinic-2", "--receipt", tmp_path / "one")
    assert "2 client(s) ask, and --receipt names 1 file(s)" in both.output
    assert said("request", "list", folder).output == "no requests\n"
    assert (tmp_path / "there").read_text() == "mine"


def test_a_forgotten_client_is_readmitted_with_a_reason(forgotten: Path) -> None:
    words = ("request", "readmit", forgotten, "clinic-1", "--reason")
    assert said("request", "readmit", forgotten, "clinic-1").exit_code == 2
    for name, reason, hint in (
        ("clinic-1", " ", "give a reason"),
        ("clinic-2", "why", "nobody called 'clinic-2' was forgotten"),
    ):
        refused = said("request", "readmit", forgotten, name, "--reason", reason)
        assert refused.exit_code == 1
        assert hint in refused.output
    assert "may take part again, as a new client" in said(*words, "a new contract\x1b[2J").output
    assert "was readmitted already" in said(*words, "once more").output
    _, line = said("request", "list", forgotten).output.splitlines()
    assert line.strip().endswith("served, readmitted since")
    with History(forgotten) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").train(Rounds(2))
        assert "clinic-1" in history.participants.all()
