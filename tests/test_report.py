"""The report: everything on one page, private numbers only where they belong."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from rescind import Goal, History
from rescind.cli import app
from rescind.core.calibration import Budget, attack_power
from rescind.core.edges import ModelId
from rescind.core.facts import PublicHead
from rescind.core.solver import Solving
from rescind.engines.accuracies import Accuracies, read_accuracies
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history import codec
from rescind.history.events import RequestWithdrawn
from rescind.methods import FineTuning, Method, Scratch, Sifu, StrictSifu
from rescind.pages.pictures import powers
from rescind.pages.report import render_report
from rescind.views.overview import overview
from tests.builders import BUDGET, everybody, said

HEAD = PublicHead(initial_norm=0.0, parameters=21, batch=15)
METHODS: dict[str, Method] = {
    "exact": Scratch(),
    "strict": StrictSifu(),
    "instance": Sifu(),
    "heuristic": FineTuning(),
}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def federation(history: History, clients: int = 30) -> Revocable:
    engine = everybody(clients, public=HEAD, public_schedule=True)
    return Revocable(history, engine)


def test_an_axis_label_is_as_long_as_its_axis_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Figure] = []
    save = Figure.savefig

    def note(figure: Figure, *arguments: Any, **options: Any) -> None:
        save(figure, *arguments, **options)
        figure.draw_without_rendering()
        saved.append(figure)

    monkeypatch.setattr(Figure, "savefig", note)
    powers({f"request {number}: epsilon 1": partial(attack_power, BUDGET.mu) for number in range(1, 6)})
    (figure,) = saved
    label = figure.axes[0].yaxis.label.get_window_extent()
    assert figure.bbox.y0 <= label.y0 < label.y1 <= figure.bbox.y1


@pytest.mark.parametrize("mode", METHODS)
def test_it_says_what_may_be_claimed_and_is_one_file(mode: str) -> None:
    with History.in_memory() as history:
        made = federation(history)
        made.train(Rounds(12))
        number = history.requests.ask(["clinic-3"], BUDGET)
        made.forget(METHODS[mode], Rounds(2))
        history.requests.ask(["clinic-4"], BUDGET)
        page = render_report(history, private=False, now=NOON)
        private = render_report(history, private=True, now=NOON)
        assert page == render_report(history, private=False, now=NOON)
        influences = overview(history).influences
    assert f"<td>{mode}: " in page
    assert f"Request {number}: " in page
    assert "clinic-4) is open, due" in page
    assert "clinic-3" not in page + private
    assert ("This is not a certificate" in page) is (mode == "heuristic")
    for text in (page, private):
        links = re.findall(r"""(?:src|href)=["'](?!#)([^"']*)|url\((?!#)([^)]*)""", text)
        assert links == []
        assert "<script" not in text
        assert text.count("<svg") == text.count('role="img" aria-label="') >= 1
        # The tree names its colours.
        assert "in use</text>" in text
    assert "erased</text>" in private
    # Psi is the operator's alone.
    if mode != "heuristic":
        assert all(f"{each.sensitivity:.3g}" in private for each in influences)
        assert all(f"{each.client} {each.sensitivity:.3g}" in private for each in influences[:4])
        assert not any(f">{each.sensitivity:.3g}<" in page for each in influences)
        assert "went back to</th>" in private
    assert "went back to</th>" not in page
    assert "rounds of training before the model" not in page


def test_a_report_can_be_written_before_anybody_leaves(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation(history).train(Rounds(3))
    done = CliRunner().invoke(app, ["report", str(tmp_path / "history"), "-o", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    assert "Nobody has been forgotten yet" in (tmp_path / "report.html").read_text("utf-8")
    words = ["report", str(tmp_path / "history"), "--private", "-o", str(tmp_path / "private.html")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (tmp_path / "private.html").stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history that forgot somebody, its certificate with evidence, and accuracies over time."""
    folder = tmp_path_factory.mktemp("signed")
    with History(folder / "history") as history:
        made = federation(history)
        watch = Accuracies(folder / "accuracies.jsonl", history, made.engine, forget=["clinic-3"], interval=2)
        made = replace(made, watch=watch, goal=Goal(BUDGET, 0.125))
        made.train(Rounds(6))
        number = history.requests.ask(["clinic-3"], BUDGET)
        made.forget(Sifu(), Rounds(2))
        made.plan(Sifu(), history.requests.ask(["clinic-4"], BUDGET))
    evidence = [{"what": "a replay", "found": "0 of 7 above", "bound": "at none"}]
    (folder / "evidence.json").write_text(json.dumps(evidence))
    run(folder, "key", "new", "operator.key")
    run(folder, "certify", "history", str(number), "--key", "operator.key", "--evidence", "evidence.json")
    return folder


def run(folder: Path, *words: str, code: int = 0) -> str:
    with chdir(folder):
        done = CliRunner().invoke(app, list(words), env={"RESCIND_PASSPHRASE": "a passphrase"})
    assert done.exit_code == code, done.output
    return done.output


SIGNED = ["--certificate", "certificate.json", "--key", "operator.key.pub"]


def test_a_certificate_is_shown_with_its_verification_and_what_was_measured(signed: Path) -> None:
    run(signed, "report", "history", *SIGNED, "--accuracies", "accuracies.jsonl")
    page = (signed / "report.html").read_text("utf-8")
    assert "its certificate was verified for this page" in page
    assert "the history at hand is unbroken" in page
    assert "<td>a replay</td><td>0 of 7 above</td><td>at none</td>" in page
    assert "Noise against guarantee" in page
    assert "Deletion log" in page
    assert "on held-out data" in page
    # What is measured on clients' data is the operator's alone.
    assert "of the remaining " not in page
    assert "would go back to" not in page
    run(signed, "report", "history", *SIGNED, "--accuracies", "accuracies.jsonl", "--private", "-o", "private.html")
    private = (signed / "private.html").read_text("utf-8")
    for part in ("of the remaining", "of the forgotten", "on held-out data"):
        assert f">{part}</text>" in private
    for label in ("restarted", "would go back to", "hidden by the goal&#x27;s noise", "hidden by the noise planned"):
        assert label.replace("&#x27;", "'") in private
    run(signed, "report", "history")
    assert "Nothing signed about it" in (signed / "report.html").read_text("utf-8")


def test_a_certificate_that_does_not_hold_is_not_shown(signed: Path) -> None:
    run(signed, "key", "new", "other.key")
    wrong = ["--certificate", "certificate.json", "--key", "other.key.pub"]
    assert "no valid signature" in run(signed, "report", "history", *wrong, "-o", "none.html", code=12)
    assert "--key" in run(signed, "report", "history", "--certificate", "certificate.json", code=1)
    assert not (signed / "none.html").exists()


def test_accuracies_are_read_as_they_were_written(signed: Path) -> None:
    found = read_accuracies(signed / "accuracies.jsonl")
    assert list(found) == [ModelId(0, 2), ModelId(0, 4), ModelId(0, 6), ModelId(1, 2)]
    assert all(None not in (each.retain, each.forget, each.test) for each in found.values())
    assert (signed / "accuracies.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no json", "not a line such as"),
        ('{"retain": 0.5}', "not a line such as"),
        ("[]", "not a line such as"),
        ('{"model": "0.1", "test": NaN}', "between 0 and 1"),
        ('{"model": "0.1", "test": 95}', "between 0 and 1"),
    ],
)
def test_a_wrong_line_of_accuracies_is_named(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "measured").write_text('{"model": "0.1", "test": 0.5}\n' + line + "\n")
    with pytest.raises(ValueError, match=f"line 2: .*{said}"):
        read_accuracies(tmp_path / "measured")


def test_names_and_reasons_are_escaped_and_bounded() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        history.name_run(operator="<script>1</script>", federation="<script>2</script>", model="<script>3</script>")
        everybody = {f"clinic-{number}": f"$ \\frac{{{number}" for number in range(30)}
        history.participants.label({**everybody, "clinic-4": "<script>alert(1)</script>"})
        history.requests.ask(["clinic-4"], BUDGET)
        history.requests.extend(1, 3, "<script>later</script>\u202e")
        history.requests.withdraw(history.requests.ask(["clinic-5"], BUDGET), "<script>never</script>\n")
        # Longer than anybody can say it to the command line: the database was written by somebody else.
        withdrawn = history.requests.ask(["clinic-6"], BUDGET)
        history.journal.record(RequestWithdrawn(withdrawn, "z" * 10_000))
        federation(history).forget(Scratch(), Rounds(2))
        page = render_report(history, private=True, now=NOON)
    assert "<script" not in page
    for name in ("1", "2", "3", "later", "never"):
        assert f"&lt;script&gt;{name}&lt;/script&gt;" in page
    assert "\u202e" not in page
    assert "\\n" in page
    assert "z" * 1900 in page
    assert "z" * 2001 not in page


def test_a_broken_history_is_named_first() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        digest = history.kept()[history.newest]
        history.models.delete(digest)
        page = render_report(history, private=False, now=NOON)
    assert page.index("The history contradicts itself") < page.index("still in the model")


# What an officer asks


NAMES = {"operator": "City Hospitals", "federation": "heart", "model": "risk head", "protocol": "ethics vote 2026/14"}
VERDICTS = {
    "exact": "forgotten: the model was made without the data of those who left",
    "strict": "forgotten weakly: the bound on the residual risk is high",
    "instance": "forgotten, with a bounded residual risk",
    "heuristic": "not proven: nobody can say what the model still knows",
}
QUESTIONS = (
    *("Who asked, and for what?", "What was done?", "What is promised?", "What could an attacker still tell?"),
    *("Is that enough?", "Was it in time?", "What is left of the forgotten?", "What was not checked?"),
    "What do I do now?",
)


def asked_and_served(history: History, mode: str, days: int = 6) -> None:
    """Train, let somebody ask on the first of November, and serve it some days later."""
    history.journal.clock = lambda: NOON
    history.name_run(**NAMES)
    made = federation(history, 120)
    made.train(Rounds(8))
    history.requests.ask(["clinic-3"], BUDGET if mode == "strict" else Budget(3.0, 1e-5))
    history.journal.clock = lambda: NOON + timedelta(days=days)
    made.forget(METHODS[mode], Rounds(2))


def answer(page: str, question: str) -> str:
    """Return what a page answers, as it is read."""
    found = re.search(rf"<dt>{re.escape(question)}</dt><dd>(.*?)</dd>", page, re.DOTALL)
    assert found is not None, question
    return unescape(re.sub(r"<[^>]+>", " ", found[1]))


@pytest.mark.parametrize("mode", METHODS)
def test_an_officer_finds_every_answer_on_the_page(mode: str) -> None:
    with History.in_memory() as history:
        asked_and_served(history, mode)
        page = render_report(history, private=False, now=NOON + timedelta(days=7))
        digest = history.timeline.requests[0].forgotten[0]
    assert [page.index(f"<dt>{question}</dt>") for question in QUESTIONS] == sorted(
        page.index(f"<dt>{question}</dt>") for question in QUESTIONS
    )
    assert f"<h3>Request 1: {VERDICTS[mode]}</h3>" in page
    who = answer(page, "Who asked, and for what?")
    # That a participant asked is the operator's word: no key of its own signed.
    assert who.lstrip().startswith(
        "On 2026-11-01 City Hospitals, which runs the federation heart, recorded a request for the model risk head "
        f"to forget a participant. Names are erased. A certificate shows {digest[:8]} instead of the name: "
    )
    assert "Yes. It was asked on 2026-11-01, due on 2026-12-01 and served on 2026-11-07" in answer(
        page, "Was it in time?"
    )
    tells, enough = answer(page, "What could an attacker still tell?"), answer(page, "Is that enough?")
    if mode in ("strict", "instance"):
        assert re.search(r"with a chance of at most \d+\.\d%[^.]*\. Guessing: 1%\.", tells)
        assert ("given the listed constants" in tells) is (mode == "instance")
        assert ("weak" in enough) is (mode == "strict")
        assert "Epsilon is " in answer(page, "What is promised?")
    else:
        assert ("can do no better than guess" in tells) is (mode == "exact")
        assert ("provided the listed constants were chosen without looking at" in tells) is (mode == "exact")
        assert ("under the listed conditions" in enough) is (mode == "exact")
        assert ("do not count this as forgotten" in enough) is (mode == "heuristic")
    assert "kinds of traces, listed below as still there" in answer(page, "What is left of the forgotten?")
    assert "nothing signed was given" in answer(page, "What was not checked?")
    now = answer(page, "What do I do now?")
    assert "Ask City Hospitals for something signed" in now
    assert ("Ask City Hospitals to retrain" in now) is (mode in ("strict", "heuristic"))


def test_what_was_served_too_late_is_called_so() -> None:
    with History.in_memory() as history:
        asked_and_served(history, "exact", days=33)
        page = render_report(history, private=False, now=NOON + timedelta(days=40))
    assert "<strong>too late</strong> 33 days after it was asked, 3 days too late" in page
    assert answer(page, "Was it in time?").startswith("No. ")
    assert "Tell whoever asked why it took longer" in page
    assert 'stroke="#c9453b"' in page


def test_the_page_reads_top_down(signed: Path) -> None:
    run(signed, "report", "history", *SIGNED, "--accuracies", "accuracies.jsonl", "-o", "top.html")
    page = (signed / "top.html").read_text("utf-8")
    order = [
        *('class="banner', "<strong>at most ", "<strong>in time", "<strong>signed", "<dt>Who asked", "<h2>When</h2>"),
        *(
            ">asked</text>",
            "guessing: 1%</text>",
            "before and after</h2>",
            "<summary>Rests on",
            "<summary>Still there",
        ),
        *("<summary>Not claimed", "<h2>For specialists</h2>"),
    ]
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    for day in ("asked", "served", "certified", "due"):
        assert f">{day}</text>" in page
    # The lists, and what is for specialists, are folded; on paper they are not.
    assert " open" not in "".join(re.findall("<details[^>]*>", page))
    assert "::details-content { content-visibility: visible; }" in page


def test_words_are_explained_where_they_stand_and_no_class_of_ours_is_named(signed: Path) -> None:
    run(signed, "report", "history", *SIGNED, "-o", "words.html", "--private")
    run(signed, "verify", *SIGNED[1:], "--html", "page.html")
    for name in ("words.html", "page.html"):
        page = (signed / name).read_text("utf-8")
        for explained in (
            *("instance: the limit holds for this federation", "purge: all that was computed from the data"),
            *("<h3>Proven: it is mathematics</h3>", "<h3>Declared by the operator: it is the operator&#x27;s word"),
            '<span class="word">pseudonym: the number by which the history calls a participant</span>',
        ):
            assert explained in page
            if "span" in explained:
                assert page.count(explained) == 1
        body = re.sub(r"<svg.*?</svg>", "", page.partition("</style>")[2], flags=re.DOTALL)
        # What the operator could do about it is told in the operator's own words.
        told = body.partition("What a stronger claim lacks")[0]
        ours = [name for name in codec._CLASSES if name != name.capitalize()]
        assert [name for name in ours if re.search(rf"\b{name}\b", told)] == []


def test_withdrawn_and_extended_requests_are_shown_with_their_reasons() -> None:
    with History.in_memory() as history:
        asked_and_served(history, "exact")
        history.requests.withdraw(history.requests.ask(["clinic-8"], Budget(1.0, 1e-5)), "asked by mistake")
        history.requests.withdraw(history.requests.ask(["clinic-8"], Budget(1.0, 1e-5)))
        history.requests.extend(history.requests.ask(["clinic-9"], Budget(1.0, 1e-5)), 20, "many requests at once")
        page = render_report(history, private=False, now=NOON + timedelta(days=8))
    assert "Request 2 (clinic-8; asked on 2026-11-07) was withdrawn on 2026-11-07: asked by mistake." in page
    assert "Request 3 (clinic-8; asked on 2026-11-07) was withdrawn on 2026-11-07, and no reason was given." in page
    assert "days left. On 2026-11-07 its deadline was moved to 2026-12-27: many requests at once." in page


def test_accuracies_before_and_after_are_compared(signed: Path) -> None:
    run(signed, "report", "history", "--accuracies", "accuracies.jsonl", "-o", "compared.html")
    page = (signed / "compared.html").read_text("utf-8")
    found = read_accuracies(signed / "accuracies.jsonl")
    before, after = found[ModelId(0, 6)], found[ModelId(1, 2)]
    assert f"<td>1</td><td>on held-out data</td><td>{before.test:.0%}</td><td>{after.test:.0%}</td>" in page
    run(signed, "report", "history", "--accuracies", "accuracies.jsonl", "-o", "private.html", "--private")
    private = (signed / "private.html").read_text("utf-8")
    assert f"<td>of the remaining</td><td>{before.retain:.1%}</td><td>{after.retain:.1%}</td>" in private


def test_what_several_requests_have_in_common_is_said_once() -> None:
    with History.in_memory() as history:
        asked_and_served(history, "exact")
        alone = render_report(history, private=False, now=NOON)
        history.requests.ask(["clinic-5"], Budget(3.0, 1e-5))
        federation(history, 120).forget(Scratch(), Rounds(2))
        page = render_report(history, private=False, now=NOON)
    assert "have in common" not in alone
    assert "What all 2 requests have in common" in page
    for line in (
        "such as backups, are erased",
        "the first model is public and depends",
        "numbers of rounds that were",
    ):
        assert page.count(line) == alone.count(line) == 1
    assert page.count("<h3>Request ") == 2
    # The answers are folded, so that all verdicts are seen at once.
    assert page.count("<summary>Questions and answers about request") == 2


def test_of_many_requests_the_newest_are_drawn() -> None:
    with History.in_memory() as history:
        trained = federation(history, 120)
        trained.train(Rounds(4))
        for number in range(7):
            history.requests.ask([f"clinic-{number}"], Budget(20.0, 0.01))
            trained.forget(Sifu(), Rounds(1))
        page = render_report(history, private=True, now=NOON)
        figure = page[page.index("What an attack could reach, by how many") :].partition("</details>")[0]
        assert [number for number in range(1, 8) if f"request {number}" in figure] == [3, 4, 5, 6, 7]
        asked = [history.requests.ask([f"clinic-{number}"], Budget(20.0, 0.01)) for number in range(20, 35)]
        for request in asked:
            trained.plan(Sifu(), request)
        # Where the names leave no room for the picture, a warning says so, and fails this test.
        page = render_report(history, private=True, now=NOON)
        assert "request 22 would go back to" in page
        assert "request 8 would go back to" not in page


def test_a_restart_for_many_requests_names_the_first_ones() -> None:
    with History.in_memory() as history:
        trained = federation(history)
        trained.train(Rounds(2))
        for number in range(8):
            history.requests.ask([f"clinic-{number}"], Budget(20.0, 0.01))
        trained.forget(Scratch(), Rounds(1), together=True)
        page = render_report(history, private=True, now=NOON)
    assert "request 1, 2, 3, 4, 5 and 3 more: no noise" in page


def test_a_distance_that_nothing_bounds_is_no_number_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with History(folder) as history:
        Revocable(history, everybody(4)).solve(Solving(most_rounds=2))
        page = render_report(history, private=True, now=NOON)
    for command in (("status", folder), ("request", "preview", folder, "clinic-1")):
        page += said(*command).output
    assert page.count("not bounded yet") > 2 * 4
    assert "e+" not in re.sub(r"base64,[^\"]*", "", page)
