"""The demonstration: it runs with nothing but the core install, shows what is true, and its clinics are an engine."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rescind.cli import app
from rescind.engines.clinics import Clinics
from rescind.testing.engines import EngineConformance


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The demonstration sets one, and it must not reach other tests.
    monkeypatch.setenv("RESCIND_PASSPHRASE", "")
    return tmp_path


def test_a_clinic_is_forgotten_certified_and_verified(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["demo"])
    assert shown.exit_code == 0, shown.output
    for sentence in ("(exact)", "It has the same bytes.", "Verified", "the model at hand is the one", "report.html"):
        assert sentence in shown.output
    (made,) = folder.iterdir()
    assert f"All of it is in {made}" in shown.output
    assert {"history", "model.safetensors", "certificate.json", "report.html"} <= {
        path.name for path in made.iterdir()
    }


def test_it_says_so_if_the_bytes_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is left out, so the models have to differ.
    monkeypatch.setattr(Clinics, "without", lambda clinics, _: clinics)
    shown = CliRunner().invoke(app, ["demo"])
    assert "OTHER bytes" in shown.output
    assert folder.exists()


def test_an_interruption_ends_it_and_names_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rescind.certificates.keys.create_key", interrupt)
    shown = CliRunner().invoke(app, ["demo"])
    (made,) = folder.iterdir()
    assert shown.exit_code == 130
    assert "$ rescind certify" not in shown.output
    assert shown.output.count("interrupted") == 1
    assert f"All of it is in {made}" in shown.output


def test_it_needs_neither_torch_nor_flower_nor_the_report(folder: Path) -> None:
    missing = "import sys; sys.modules.update(dict.fromkeys(['torch', 'flwr', 'matplotlib']))\n"
    program = f"{missing}from rescind.cli import app\napp(['demo'])"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "pip install matplotlib" in shown.stdout


class TestClinics(EngineConformance):
    @pytest.fixture
    def make_engine(self) -> Callable[[], Clinics]:
        return lambda: Clinics(6)


def test_the_recording_shows_what_is_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs" / "pictures")
    import record

    drawn = re.findall(r"<text[^>]*>(.*?)</text>", record.RECORDING.read_text("utf-8"), re.DOTALL)
    recorded = [html.unescape(line) for line in drawn]
    printed = [line.removeprefix(record.BOLD) for line in record.play()]
    assert folder.exists()
    # If they differ: python docs/pictures/record.py
    assert without_chance(recorded) == without_chance(printed)
    assert "the same bytes. Forgetting took 4 rounds instead of 20" in recorded[-1]


def test_the_recording_is_short_and_ends_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs" / "pictures")
    import record

    picture = record.RECORDING.read_text("utf-8")
    (seconds,) = {float(found) for found in re.findall(r"animation:\w+ ([\d.]+)s", picture)}
    assert seconds <= 12
    lines = picture.count("<text ")
    for name, last in (("scroll", record.VISIBLE - lines), ("show", lines)):
        (frames,) = re.findall(rf"@keyframes {name}{{(.*)}}", picture)
        steps = re.findall(r"([\d.]+)%{transform:translateY\((-?\d+)px\)}", frames)
        assert int(steps[-1][1]) == record.LINE * last
        # It stays there, to be read.
        assert seconds * (1 - float(steps[-1][0]) / 100) >= record.END


def without_chance(lines: Sequence[str]) -> str:
    """Return the text without what is other each time: digests, times, the folder, and so where lines fold."""
    text = re.sub(r"\s", "", "".join(lines))
    text = re.sub(r"isin[^:]*rescind-demo-\w{8}", "isinFOLDER", text)
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", text)
