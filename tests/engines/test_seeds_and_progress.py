"""Randomness by words, and a bar that is quiet where nobody looks."""

from __future__ import annotations

import numpy as np
import pytest

from rescind import progress
from rescind.core.rounds import Replies
from rescind.engines.seeds import derive_number, random_stream, toss_coin
from rescind.engines.stops import format_accuracy
from rescind.engines.training import describe_round, show_rounds
from rescind.progress import open_bar, tell_listener


def test_words_decide_and_no_two_lists_of_words_meet() -> None:
    assert derive_number(b"s", "a", 1) == derive_number(b"s", "a", 1)
    lists = [("a", 1), ("a", 2), ("b", 1), ("a1",), ("a", 1, ""), ("", "a", 1), ("a", "1", "1"), ("a", 11)]
    assert len({derive_number(b"s", *words) for words in lists}) == len(lists)
    assert derive_number(b"s", "a") != derive_number(b"t", "a")
    first, again = random_stream(b"s", "x", 3).random(5), random_stream(b"s", "x", 3).random(5)
    assert (first == again).all()


def test_coins_are_uniform() -> None:
    coins = np.array([toss_coin(b"secret", "sampling", f"client-{at}", 0, 1) for at in range(20_000)])
    assert ((coins >= 0) & (coins < 1)).all()
    counts, _ = np.histogram(coins, bins=20, range=(0, 1))
    # Chi squared with 19 degrees of freedom: beyond 55 once in 30,000 secrets, and this one is fixed.
    assert ((counts - 1000) ** 2 / 1000).sum() < 55


NO_TENSORS = {"weights": np.ones(0), "steps": (), "tensors": {}, "batch": 0}
WORDS = describe_round(Replies((), silent=("[/]", "\x1b[2Jb", "c", "d"), **NO_TENSORS), "accuracy 50.0%")


def test_off_a_terminal_nothing_is_printed_and_a_line_a_round_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 130.0, 160.0, 200.0])
    monkeypatch.setattr("rescind.engines.training.monotonic", lambda: next(clock))
    with caplog.at_level("INFO", "flwr"), show_rounds("branch 1", 10, 2) as show:
        show(3, describe_round(Replies(("a",), rejected={"b": "odd"}, **NO_TENSORS)))
        show(4, WORDS)
    with show_rounds("branch 1, solving", 100, public=False) as show, caplog.at_level("INFO", "flwr"):
        monkeypatch.undo()
        show(1, "gradient 0.1")
    assert capsys.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == [
        "rescind: branch 1, round 3 of 10, about 0:03:30 left: 2 of 2 replied",
        "rescind: branch 1, round 4 of 10, about 0:03:00 left: 0 of 4 replied, accuracy 50.0%; no answer: [/], "
        r"\x1b[2Jb, c and 1 more",
        "rescind: branch 1, solving, round 1 of at most 100: gradient 0.1",
    ]


def test_on_a_terminal_rounds_accuracy_and_who_is_waited_for_are_shown(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    with caplog.at_level("INFO", "flwr"), show_rounds("branch 1", 10) as show:
        show(4, WORDS)
    shown = capsys.readouterr().err
    assert "branch 1" in shown
    assert "4/10" in shown
    assert "accuracy 50.0%" in shown
    assert r"no answer: [/], \x1b[2Jb, c and 1 more" in shown
    with show_rounds("branch 1", 10):
        tell_listener("waiting for client 'a'; replied", 3, 4)
    assert "branch 1: waiting for client 'a'; replied, 3 of 4" in capsys.readouterr().err
    assert not caplog.records


@pytest.mark.parametrize("widgets", [False, True])
def test_a_notebook_shows_bars_where_it_can(widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    # rich warns where they are not installed, which they are not here.
    monkeypatch.setattr("rich.live.Live.refresh", lambda _: None)
    monkeypatch.setattr(progress, "find_spec", lambda _: object() if widgets else None)
    with open_bar() as bar:
        assert bar.disable is not widgets


def test_a_command_in_a_notebook_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    # ipykernel's: a command is to colour what it prints.
    monkeypatch.setenv("FORCE_COLOR", "1")
    with open_bar() as bar:
        assert not bar.disable
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    with open_bar() as bar:
        assert bar.disable


@pytest.mark.parametrize(
    ("accuracy", "shown"), [(0.77, "77.0%"), (0.76999, "76.9%"), (1.0, "100.0%"), (0.0, "0.0%"), (0.57, "57.0%")]
)
def test_an_accuracy_below_the_threshold_does_not_look_like_it(accuracy: float, shown: str) -> None:
    assert format_accuracy(accuracy) == shown
