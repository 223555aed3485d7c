"""Files that come from outside or must be private: refused when they are too long, or open to others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from flwr.cli.build import build_fab_from_disk
from typer.testing import CliRunner

from rescind import History
from rescind.certificates.envelope import read_content, read_statement
from rescind.certificates.errors import NotACertificateError, UnusableKeyError
from rescind.certificates.keys import create_key, load_public_key, load_signer
from rescind.certificates.predicate import Statement
from rescind.checkpoints.tensors import read
from rescind.cli import app
from rescind.core.calibration import Budget
from rescind.engines.accuracies import Accuracies
from rescind.engines.rows import commit_rows
from rescind.engines.stops import Rounds
from rescind.errors import DamagedCheckpointError, LockedError, UnsafePermissionsError
from rescind.forgetting import Revocable
from rescind.testing.small import simulation

EXAMPLES = Path(__file__).parents[1] / "examples"
PASSPHRASE = "correct horse battery"  # noqa: S105
LARGE = 3 * 2**30
WRITER = """
import sys
from rescind import History
with History(sys.argv[1]) as history, history.held():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History(tmp_path / "history") as history:
        Revocable(history, simulation(10, secret_noise=True)).train(Rounds(2))
        history.requests.ask(["clinic-1"], Budget(3.0, 1e-5))
    return tmp_path / "history"


def hollow(path: Path, size: int = LARGE) -> Path:
    """Make a file of that size, of which nothing is on the disk."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_what_is_too_long_is_refused_before_it_is_read(folder: Path, tmp_path: Path) -> None:
    public = create_key(tmp_path / "key", PASSPHRASE)
    large = hollow(tmp_path / "large")
    large.chmod(0o600)
    tracemalloc.start()
    try:
        for words, code, said in (
            (["verify", large, "--key", public], 11, "at most 2097152 bytes"),
            (["verify", large, "--key", large], 10, "more than 16384 bytes"),
            (["certify", folder, 5, "--key", tmp_path / "key", "--evidence", large], 1, "more than 65536 bytes"),
            (["doctor", "--key", large], 1, "more than 16384 bytes"),
        ):
            result = CliRunner().invoke(app, list(map(str, words)), env={"RESCIND_PASSPHRASE": PASSPHRASE})
            assert (result.exit_code, said in result.output) == (code, True), result.output
        for refused in (lambda: load_signer(large, PASSPHRASE), lambda: load_public_key(large)):
            with pytest.raises(UnusableKeyError, match="more than 16384 bytes"):
                refused()
        # A certificate that is to be signed once more.
        with pytest.raises(NotACertificateError, match="at most 2097152 bytes"):
            read_statement(Statement, read_content(large))
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


def test_a_header_of_88_megabytes_is_not_parsed(tmp_path: Path) -> None:
    claimed = 88_000_000
    path = hollow(tmp_path / "model.safetensors", claimed + 1000)
    with path.open("r+b") as file:
        file.write(claimed.to_bytes(8, "little"))
    tracemalloc.start()
    try:
        with path.open("rb") as file, pytest.raises(DamagedCheckpointError, match="at most 10000000 are read"):
            next(read(file))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o640, 0o602])
def test_a_history_whose_files_are_open_to_others_is_refused(mode: int, folder: Path) -> None:
    (folder / "ledger.sqlite").chmod(mode)
    with pytest.raises(UnsafePermissionsError, match=rf"mode {mode:o}\): run chmod 600 .*ledger\.sqlite"):
        History(folder)
    result = CliRunner().invoke(app, ["doctor", str(folder)])
    assert (result.exit_code, "chmod 600" in result.output) == (1, True)
    (folder / "ledger.sqlite").chmod(0o600)
    with History(folder) as history:
        model = next((folder / "checkpoints").glob("*.safetensors"))
        history.models.load(model.stem)
        model.chmod(mode)
        with pytest.raises(UnsafePermissionsError, match="run chmod 600"):
            history.models.load(model.stem)


def test_a_deleted_lock_file_lets_no_second_writer_in(folder: Path) -> None:
    writer = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(writer, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with History(folder) as history:
                with pytest.raises(LockedError, match=f"process {process.pid} on"), history.held():
                    pass
                (folder / "ledger.sqlite.lock").unlink()
                with pytest.raises(LockedError, match="another process"), history.held():
                    pass
                process.kill()
                process.wait()
                with history.held():
                    pass
        finally:
            process.kill()


# What is private stays out of what a Flower app sends to its participants

APP = '[project]\nname = "app"\nversion = "1.0.0"\n[tool.flwr.app]\npublisher = "us"\n'
OUTSIDE = "is private, and lies in the folder of a Flower app"


def make_private_files(folder: Path) -> set[str]:
    """Write one private file of each kind that the library writes, and return their names."""
    create_key(folder / "operator.key", PASSPHRASE)
    with History(folder / "history") as history:
        Accuracies(folder / "accuracies.jsonl", history, simulation(3))
    commit_rows(folder / "receipts.json", 1, np.zeros((1, 2)), np.zeros(1, np.int64), np.ones(1, np.bool_))
    return {"operator.key", "history/ledger.sqlite", "history.secret", "accuracies.jsonl", "receipts.json"}


@pytest.mark.parametrize(
    ("project", "warned"),
    [
        (APP, True),
        # What Flower makes of it is not looked at.
        (APP + 'fab-include = ["app/**/*.py"]\n', True),
        ('[project]\nname = "something else"\n', False),
        ("no project [", False),
    ],
)
def test_a_private_file_that_flower_may_send_is_warned_of(
    project: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "out").mkdir()
    files = make_private_files(tmp_path / "out")
    said = {line.split("'")[1] for line in caplog.messages if OUTSIDE in line}
    assert said == ({str(tmp_path / "out" / name) for name in files} if warned else set())


def test_a_command_says_it_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(APP)
    command = [sys.executable, "-c", "from rescind.cli import app; app()", "init", "history"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stderr.count(OUTSIDE) == 2
    assert OUTSIDE not in done.stdout


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
@pytest.mark.parametrize("name", ["hospitals", "images"])
def test_an_example_sends_its_code_and_nothing_that_was_left_in_its_folder(name: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    make_private_files(tmp_path / name)
    for left in ("annex.json", "certificate.json", "report.html", "flwr-home/config.toml", "keys/names.json"):
        (tmp_path / name / left).parent.mkdir(exist_ok=True)
        (tmp_path / name / left).write_text("{}")
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(tmp_path / name))) as packed:
        sent = {Path(entry) for entry in packed.namelist()} - {Path("pyproject.toml"), Path(".info/CONTENT")}
    code = {path.relative_to(EXAMPLES / name) for path in (EXAMPLES / name / name).glob("*.py")}
    assert sent == {*code, Path("LICENSE")}
