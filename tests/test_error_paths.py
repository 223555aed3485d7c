"""What goes wrong, command by command: each with an exit code and a sentence that says what to do."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.keys import create_key, load_signer
from rescind.cli import app
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Scratch
from tests.builders import BUDGET, everybody, said

PASSPHRASE = "correct horse battery"  # noqa: S105


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a history in which request 1 was served, two keys, and a certificate."""
    place = tmp_path_factory.mktemp("made")
    engine = everybody(6)
    with History(place / "history") as history:
        federation = Revocable(history, engine)
        federation.train(Rounds(6))
        assert history.requests.ask(["clinic-1"], BUDGET) == 1
        federation.forget(Scratch(), Rounds(2), level=ErasureLevel.OUTPUT)
        own = create_key(place / "operator", PASSPHRASE)
        create_key(place / "stranger", PASSPHRASE)
        content = sign(build_statement(history, 1), [load_signer(own.with_suffix(""), PASSPHRASE)])
        (place / "certificate.json").write_bytes(content)
    return place


@pytest.fixture
def scene(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of it, and go there."""
    monkeypatch.setenv("RESCIND_PASSPHRASE", PASSPHRASE)
    shutil.copytree(made, tmp_path / "scene")
    monkeypatch.chdir(tmp_path / "scene")
    return tmp_path / "scene"


MISSING = "there is no history in nowhere: check the path, or record a run there first"
VERIFY = ("verify", "certificate.json", "--key")
TABLE = [
    # Missing history
    (("status", "nowhere"), 1, MISSING),
    (("request", "preview", "nowhere", "clinic-2"), 1, MISSING),
    (("request", "add", "nowhere", "clinic-2"), 1, MISSING),
    (("request", "list", "nowhere"), 1, MISSING),
    (("request", "extend", "nowhere", 1, "--days", 3, "--reason", "r"), 1, MISSING),
    (("request", "withdraw", "nowhere", 1), 1, MISSING),
    (("erase", "nowhere"), 1, MISSING),
    (("certify", "nowhere", 1, "--key", "operator"), 1, MISSING),
    ((*VERIFY, "operator.pub", "--history", "nowhere"), 1, MISSING),
    (("doctor", "nowhere"), 1, MISSING),
    (("status", "operator"), 1, "operator is a file: give the folder of a history"),
    (("init", "operator"), 1, "operator is a file: give the folder of a history"),
    (("status", "."), 1, "holds other files and no history: check the path"),
    # Unknown client or request
    (("request", "preview", "history", "clinic-22"), 1, "did you mean 'clinic-2'"),
    (("request", "add", "history", "klinic-2"), 1, "did you mean 'clinic-2'"),
    (("request", "add", "history", "clinic-1"), 1, "was forgotten, and its name erased"),
    (("request", "withdraw", "history", 1), 1, "no open request 1"),
    (("request", "extend", "history", 77, "--days", 3, "--reason", "r"), 1, "no open request 77"),
    (("certify", "history", 77, "--key", "operator", "-o", "other.json"), 1, "there is no request 77"),
    (("request", "add", "history", "clinic-2", "--epsilon", 0), 1, "epsilon is 0.0"),
    (("request", "preview", "history", "clinic-2", "--delta", 2), 1, "delta is 2.0"),
    (("request", "preview", "history", "clinic-2", "clinic-2"), 1, "'clinic-2' is there more than once"),
    (("request", "add", "history", "clinic-2", "clinic-2"), 1, "'clinic-2' is there more than once"),
    # Keys
    (
        ("certify", "history", 1, "--key", "operator.pub", "-o", "other.json"),
        10,
        "is the public key: sign with the private one, operator",
    ),
    (("certify", "history", 1, "--key", "nobody", "-o", "other.json"), 1, "No such file or directory: nobody"),
    (("key", "new", "operator"), 10, "keys are not overwritten"),
    ((*VERIFY, "stranger.pub"), 12, "not verified: 1 different keys have to have signed"),
    ((*VERIFY, "operator"), 10, "holds no public key: give the file that ends in .pub"),
    ((*VERIFY, "operator.pub", "--model", "operator"), 13, "not verified: operator is no safetensors file"),
    (
        ("certify", "history", 1, "--key", "operator", "-o", "other.json", "--model", "operator"),
        1,
        "operator is no safetensors file that can be read: the header",
    ),
    (("verify", "operator.pub", "--key", "operator.pub"), 11, "not verified: the file is cut off"),
    (("certify", "history", 1, "--key", "operator", "-o", "operator.pub"), 11, "the file is cut off"),
]


@pytest.mark.parametrize(
    ("words", "code", "hint"), TABLE, ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else ""
)
def test_a_mistake_is_answered(scene: Path, words: tuple[object, ...], code: int, hint: str) -> None:
    result = said(*words)
    assert (result.exit_code, hint in result.output) == (code, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("statu",), "status"), (("request", "ad"), "add"), (("key", "nw"), "new"), (("verfy",), "verify")],
)
def test_a_mistyped_command_is_answered_once(words: tuple[str, ...], meant: str) -> None:
    result = said(*words)
    assert result.exit_code == 2
    assert f"No such command '{words[-1]}'." in result.output
    assert result.output.count("Did you mean") <= 1
    assert f"'{meant}'" in result.output


def test_a_wrong_passphrase_opens_no_key(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "incorrect horse battery")
    result = said("certify", "history", 1, "--key", "operator", "-o", "other.json")
    assert (result.exit_code, "that this passphrase opens" in result.output) == (10, True)
    assert "incorrect horse" not in result.output


def test_a_history_that_is_held_is_read_and_not_erased(scene: Path) -> None:
    with History("history") as history, history.held():
        assert said("status", "history").exit_code == 0
        assert said("request", "preview", "history", "clinic-2").exit_code == 0
        result = said("erase", "history", "--yes")
    assert result.exit_code == 1
    assert f"being written by process {os.getpid()}" in result.output
    assert "wait until it ends, or stop it. A SuperLink that was killed leaves its app running" in result.output


def test_a_checkpoint_that_is_gone_is_named(scene: Path) -> None:
    shutil.rmtree("history/checkpoints")
    result = said("request", "preview", "history", "clinic-2")
    assert (result.exit_code, "is not in" in result.output) == (1, True), result.output


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of a megabyte with nothing free."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", place], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    # A refused command's error holds its files open until it is collected.
    gc.collect()
    subprocess.run(["/bin/umount", place], check=True)


def filled(place: Path) -> None:
    with (place / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_told_and_nothing_is_lost(scene: Path, full_disk: Path) -> None:
    shutil.copytree("history", full_disk / "history")
    shutil.copy2("history.secret", full_disk)
    (full_disk / "history").chmod(0o700)
    filled(full_disk)
    result = said("request", "add", full_disk / "history", "clinic-2")
    full = "No space left on device; free some, and do the same again: {}"
    assert result.exit_code == 1
    assert full.format(full_disk / "history" / "ledger.sqlite") in result.output
    for made, words in (
        ("key.pub", ["key", "new", full_disk / "key"]),
        ("report.html", ["report", "history", "--output", full_disk / "report.html"]),
    ):
        result = said(*words)
        assert (result.exit_code, full.format(full_disk / made) in result.output) == (1, True), result.output
    result = said("certify", "history", 1, "--key", "operator", "-o", full_disk / "certificate.json")
    assert (result.exit_code, "No space left on device" in result.output) == (1, True), result.output
    with pytest.raises(OSError, match=f"free some, and do the same again: '{full_disk}/history/ledger.sqlite'"):
        History(full_disk / "history")
    (full_disk / "ballast").unlink()
    with History(full_disk / "history") as history:
        federation = Revocable(history, everybody(6))
        filled(full_disk)
        with pytest.raises(OSError, match=f"free some, and do the same again: '{full_disk}/history/"):
            federation.train(Rounds(9))
        with pytest.raises(OSError, match=f"free some, and do the same again: '{full_disk}/model'"):
            federation.release(full_disk / "model")
    assert not list(full_disk.glob(".*"))
    (full_disk / "ballast").unlink()
    assert said("report", "history", "--output", full_disk / "report.html").exit_code == 0
    assert said("request", "add", full_disk / "history", "clinic-2").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_somebody_else_may_not_look(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Loads what is needed, which somebody else might not be able to.
    assert said("status", "history").exit_code == 0
    monkeypatch.chdir("/")
    os.seteuid(65534)
    try:
        result = said("status", scene / "history")
    finally:
        os.seteuid(0)
    assert (result.exit_code, "Permission denied" in result.output) == (1, True), result.output
    assert "Traceback" not in result.output


def test_an_interruption_ends_in_a_sentence(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(History, "erase", interrupted)
    result = said("erase", "history", "--yes")
    assert (result.exit_code, "give the same command again" in result.output) == (130, True)
    monkeypatch.undo()
    monkeypatch.chdir(scene)
    assert said("erase", "history", "--yes").exit_code == 0


def test_a_bucket_out_of_reach_is_told_without_a_traceback(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCIND_CHECKPOINTS", "s3://nobody/nothing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    result = said("status", "history")
    assert result.exit_code == 1
    assert "the bucket cannot be used" in result.output
    assert "Traceback" not in result.output


def test_a_traceback_would_show_no_variables() -> None:
    assert not app.pretty_exceptions_enable
