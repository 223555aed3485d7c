"""Texts from outside are shown as what they are: no name, label, evidence or error steers a terminal or a page."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import chdir, suppress
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from rescind import History
from rescind.cli import app
from rescind.core.aggregation import Aggregator
from rescind.core.rounds import Replies, RoundResult
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.events import TrainingDoubted
from rescind.methods import Scratch
from rescind.testing.small import simulation
from rescind.texts import is_plain, make_plain
from tests.builders import BUDGET, everybody, register

HOSTILE = {
    "a closing tag": "[/]",
    "a link": "[link=https://x.example]clinic-9[/link]",
    "an emoji code": ":smile: [conceal]x[/conceal]",
    "clears the screen": "\x1b[2J\x1b[HVerified",
    "an 8-bit control": "a\x9b2Jb",
    "right to left": "\u202e3-cinilc",
    "an isolate": "a\u2066b\u2069",
    "a line": "x\nno open requests",
    "hidden from a legend": "_hidden",
    "a tab": "x\ty",
    "zero width": "clin\u200bic-3",
    "joined": "clinic\u2060-3\ufeff",
    "a filler": "clinic\u3164-3",
    "a variant": "clinic-3\ufe0f",
    "a page": "<script>alert(1)</script>&\"'",
    "mathematics": "$x^{$",
}


def said(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"RESCIND_PASSPHRASE": "correct horse battery"})


def harmless(text: str) -> str:
    """Return a text, once it is sure that it steers nothing."""
    assert [each for each in text if each not in "\n\t" and make_plain(each) != each] == []
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with an open and a served request, a doubt, and labels that nobody checked."""
    folder = tmp_path_factory.mktemp("texts")
    with History(folder / "history") as history:
        engine = everybody(9)
        federation = Revocable(history, engine, capacity=4)
        federation.train(Rounds(4))
        number = history.requests.ask(["clinic-8"], BUDGET)
        federation.forget(Scratch(), Rounds(2))
        history.requests.ask([f"clinic-{at}" for at in range(8)], BUDGET)
        reason = "because \x1b[2J [/] \u202eof it"
        history.journal.record(TrainingDoubted(1, 1, reason))
    evidence = [{"what": "[/] a\u200breplay", "found": "[link=https://x]0[/link]", "bound": "<b>none</b>"}]
    (folder / "evidence.json").write_text(json.dumps(evidence))
    said("key", "new", folder / "key")
    words = ["certify", folder / "history", number, "--key", folder / "key", "--evidence", folder / "evidence.json"]
    assert said(*words, "-o", folder / "certificate.json").exit_code == 0
    return folder


def call(history: Path, labels: Sequence[str]) -> None:
    """Write labels as somebody would who asks nobody."""
    with History(history) as opened:
        opened.participants.label({f"clinic-{at}": label for at, label in enumerate(labels)})


@pytest.mark.parametrize("first", [0, 8])
def test_every_command_shows_hostile_labels_as_they_are_spelt(folder: Path, first: int) -> None:
    history, labels = folder / "history", list(HOSTILE.values())[first : first + 8]
    call(history, labels)
    for words in (["status"], ["clients"], ["request", "list"]):
        result = said(*words, history)
        assert result.exit_code == 0, result.output
        assert [label for label in labels if make_plain(label) not in harmless(result.output)] == []
    # Programs get what it is.
    waiting = json.loads(said("status", history, "--json").output)["open_requests"]
    assert sorted(waiting[0]["clients"]) == sorted(labels)
    for words in (
        ["request", "preview", history, *labels],
        ["doubts", history],
        ["doctor", history],
        ["erase", history, "--dry-run"],
    ):
        result = said(*words)
        assert result.exit_code == 0, result.output
        harmless(result.output)
    page = folder / "report.html"
    assert said("report", history, "--private", "-o", page).exit_code == 0
    written = harmless(page.read_text("utf-8"))
    assert [label for label in labels if unescape(written).count(make_plain(label)) < 2] == []
    assert "<script" not in written
    assert (
        sum(make_plain(label) in unescape(text) for text in re.findall("<text.*</text>", written) for label in labels)
        >= 5
    )


def test_a_terminal_is_not_steered_either(folder: Path) -> None:
    call(folder / "history", ["".join(HOSTILE.values())])
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 1000, 0, 0))
    words = [Path(sys.executable).parent / "rescind", "status", folder / "history"]
    done = subprocess.Popen(words, stdout=follower, stderr=subprocess.DEVNULL, env=os.environ | {"TERM": "xterm"})
    os.close(follower)
    seen = b""
    # A terminal whose programs have all ended is an error to read from.
    with suppress(OSError):
        while part := os.read(leader, 1 << 16):
            seen += part
    os.close(leader)
    assert done.wait(60) == 0
    # Rich's own colours are all that is left.
    text = re.sub(r"\x1b\[[\d;]*m", "", seen.decode()).replace("\r\n", "\n")
    assert make_plain("".join(HOSTILE.values())) in harmless(text)


def test_evidence_of_a_certificate_is_shown_as_it_is_spelt(folder: Path) -> None:
    words = ["verify", folder / "certificate.json", "--key", folder / "key.pub", "--html", folder / "page.html"]
    result = said(*words, "--full")
    assert result.exit_code == 0, result.output
    assert r"[/] a\u200breplay: [link=https://x]0[/link]" in harmless(result.output)
    assert r"[/] a\u200breplay: [link=https://x]0[/link]" in harmless((folder / "page.html").read_text("utf-8"))


def test_doubts_and_their_answers_are_shown_as_they_are_spelt(folder: Path) -> None:
    output = said("doubts", folder / "history").output
    assert r"because \x1b[2J [/] \u202eof it" in harmless(output)
    assert r"\u202eof it" in harmless(said("status", folder / "history").output)
    assert r"\u202eof it" in harmless(said("doctor", folder / "history").output)


@pytest.mark.parametrize(
    "odd", [HOSTILE[each] for each in ("clears the screen", "right to left", "a line", "a link")]
)
def test_errors_are_one_harmless_line(folder: Path, odd: str) -> None:
    with chdir(folder):
        for words in (
            ["status", odd],
            ["verify", odd, "--key", "key.pub"],
            ["verify", "certificate.json", "--key", odd],
            ["certify", "history", 9, "--key", odd],
            ["request", "add", "history", odd],
            ["doctor", odd, "--key", odd],
            ["report", "history", "-o", f"{odd}/x"],
        ):
            result = said(*words)
            assert result.exit_code != 0
            assert harmless(result.output)
            if words[0] != "doctor":
                assert result.output.count("\n") == 1, result.output


@pytest.mark.parametrize(
    "name", [each for each in HOSTILE.values() if not is_plain(each)] + [" clinic-3", "clinic-3 "]
)
def test_a_new_client_is_not_called_so(name: str) -> None:
    engine = simulation(2)
    with History.in_memory() as history:
        start = engine.start()
        measured = Aggregator([1.0])
        model = {key: measured.add(tensor, [tensor]) for key, tensor in start.items()}
        with history.recording(engine.facts, start) as recorder:

            def of(name: str, **options: Any) -> RoundResult:
                replies = Replies((name,), np.ones(1), (1,), {}, batch=0, **options)
                return RoundResult(replies, model, measured.result(), 1e-12)

            with pytest.raises(ValueError, match="is not a valid name for a client") as caught:
                recorder.record(of(name))
            harmless(str(caught.value))
            with pytest.raises(ValueError, match="is not a valid name for a client"):
                recorder.record(of("clinic-0", rejected={name: "why"}))
            # Whoever is called so already goes on.
            register(history, name)
            recorder.record(of(name))


def test_what_other_languages_write_is_not_touched() -> None:
    for name in ("Übriges", "שלום", "模型", "naïve café", "São João", "مستشفى", "हिन्दी", "O'Neill & Söhne", "a\\b"):
        assert make_plain(name) == name
        assert is_plain(name)
