"""Randomness by words, and a bar that is quiet where nobody looks."""

from __future__ import annotations

import numpy as np
import pytest

from rescind.engines.seeds import derive_number, random_stream, toss_coin
from rescind.engines.stops import format_accuracy
from rescind.engines.training import show_rounds


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


def test_off_a_terminal_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with show_rounds("branch 1", 10) as show:
        show(3, -1.0, ())
        show(4, 0.5, ("[/]", "\x1b[2Jb", "c", "d"))
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_rounds_and_accuracy_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    with show_rounds("branch 1", 10) as show:
        show(4, 0.5, ("[/]", "\x1b[2Jb", "c", "d"))
    shown = capsys.readouterr().err
    assert "branch 1" in shown
    assert "4/10" in shown
    assert "accuracy 50.0%" in shown
    assert r"no answer: [/], \x1b[2Jb, c and 1 more" in shown


@pytest.mark.parametrize(
    ("accuracy", "shown"), [(0.77, "77.0%"), (0.76999, "76.9%"), (1.0, "100.0%"), (0.0, "0.0%"), (0.57, "57.0%")]
)
def test_an_accuracy_below_the_threshold_does_not_look_like_it(accuracy: float, shown: str) -> None:
    assert format_accuracy(accuracy) == shown
