"""The page of a certificate: what an officer reads, whatever the certificate says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rescind.certificates.predicate import Names
from rescind.certificates.verification import VerifiedCertificate
from rescind.certificates.wording import format_share
from rescind.core.facts import Mode
from rescind.pages.certificate import render_certificate
from rescind.pages.fragments import draw_chances, draw_days
from rescind.pages.summary import day_of, summarise
from tests.certificates.golden_statements import MODES, golden

SIGNED = "signed by " + "5" * 64


def page(mode: Mode, **changes: Any) -> str:
    statement = golden(mode)
    stated = statement.model_copy(update={"predicate": statement.predicate.model_copy(update=changes)})
    return render_certificate(
        VerifiedCertificate(stated, (SIGNED, "its numbers follow"), ("the plan: ask",)), "Checked today."
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_verdict_and_its_three_facts_come_first(mode: Mode) -> None:
    text = page(mode)
    found = golden(mode).predicate
    limit = "no limit is proven" if mode is Mode.HEURISTIC else "no more than guessing"
    if found.guarantee is not None:
        limit = f"at most {format_share(found.guarantee.powers[-1].true_positive_rate)}"
    banner = text[text.index('<section class="banner') : text.index("</section>")]
    for fact in (limit, "in time", "signed"):
        assert f"<strong>{fact}</strong>" in banner
    tone = {Mode.EXACT: "fine", Mode.HEURISTIC: "wrong"}.get(mode, "fine")
    assert f'class="banner {tone}"' in banner
    order = ["</section>", "<dt>Who asked", ">asked</text>", "guessing: 1%</text>", "<details>"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert (
        "City Hospitals, which runs the federation heart, recorded a request for the model to forget 2 participants."
        in text
    )
    assert "cccccccc, dddddddd" in text
    assert f"Confirm the fingerprint with City Hospitals by phone or letter: {SIGNED}." in text
    assert "<li>the plan: ask</li>" in text
    assert text.count("<svg") == text.count('role="img" aria-label="') == 2
    assert all(line in text for line in (found.not_claimed[0], found.erasure.stays[0]))
    assert re.findall(r"<(?:script|link|img|iframe)|(?:src|href)=", text) == []


def test_what_has_changed_since_is_told_before_the_answers() -> None:
    found = VerifiedCertificate(golden(Mode.EXACT), (SIGNED,), (), ("nothing is proven any more",))
    text = render_certificate(found, "today")
    assert text.index("</section>") < text.index("<li>nothing is proven any more</li>") < text.index("<dl>")
    assert "Nothing is left that this page says" in text


def test_names_are_left_out_where_there_are_none() -> None:
    nobody = Names(operator=None, federation=None, model=None)
    assert "the operator recorded a request for the model to forget 2 participants." in page(Mode.EXACT, names=nobody)
    assert "the operator of the federation heart recorded a request" in page(
        Mode.EXACT, names=nobody.model_copy(update={"federation": "heart"})
    )
    assert "None" not in page(Mode.EXACT, names=nobody)


def test_what_a_certificate_says_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    text = page(Mode.HEURISTIC, names=Names(operator=evil, federation=evil, model=evil), reasons=(evil, "x" * 9000))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 3
    assert "x" * 2001 not in text


def test_rows_are_told_from_participants() -> None:
    text = page(Mode.EXACT, scope="records")
    assert "Forgotten: the model was made without these rows" in text
    assert "for the model to forget some rows of 2 participants, who stay." in text


@pytest.mark.parametrize(
    ("by", "signed", "words"),
    [
        ("the operator", None, "recorded a request for the model to forget a participant."),
        ("the participant's own node", None, "request by the participant&#x27;s own node for the model to forget a "),
        (
            "the participant's own key",
            "5" * 64,
            "a participant asked City Hospitals, which runs the federation heart,",
        ),
        ("the client's own key", "5" * 64, "to be forgotten by the model, by the client&#x27;s own key."),
    ],
)
def test_a_participant_asked_only_where_its_own_key_did(by: str, signed: str | None, words: str) -> None:
    text = page(Mode.EXACT, asked_by=by, signed_request=signed, forgotten=("c" * 64,))
    assert words in text
    assert ("a participant asked" in text) is (signed is not None)


@pytest.mark.parametrize(
    ("chance", "grade", "judged"),
    [
        (0.0198, "fine", "hardly better than guessing"),
        (0.054, "fine", "a small advantage"),
        (0.1141, "fine", "protects little"),
        (0.7011, "weak", "hardly anything about one participant"),
    ],
)
def test_a_high_chance_is_called_weak(chance: float, grade: str, judged: str) -> None:
    found = golden(Mode.INSTANCE).predicate
    assert found.guarantee is not None
    power = found.guarantee.powers[-1].model_copy(update={"true_positive_rate": chance})
    weaker = found.guarantee.model_copy(update={"powers": (found.guarantee.powers[0], power)})
    summary = summarise(found.model_copy(update={"guarantee": weaker}), SIGNED)
    assert summary.grade == grade
    assert judged in dict(summary.answers)["Is that enough?"]
    assert any("smaller epsilon" in step for step in summary.steps) is (grade == "weak")
    assert summarise(found, "").grade == "weak"


def test_days_are_drawn_in_order_and_lateness_is_seen() -> None:
    days = {"asked": day_of("2026-11-01T23:30:00-05:00"), "served": day_of("2026-12-05"), "due": day_of("2026-12-01")}
    picture = draw_days(days)
    assert picture.text == "In this order: asked 2026-11-02, due 2026-12-01, served 2026-12-05."
    assert [picture.svg.index(f">{part}</text>") for part in ("asked", "29 days", "due", "4 days", "served")]
    assert picture.svg.count('stroke="#c9453b"') == 1
    assert draw_days({**days, "served": days["asked"]}).svg.count('stroke="#c9453b"') == 0


def test_chances_are_drawn_to_one_scale() -> None:
    picture = draw_chances({"<one>": 0.5, "two": None, "three": 0.01}, 0.01)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="16" fill="#', picture.svg)]
    assert widths == pytest.approx([6.4, 320, 640, 6.4])
    assert (
        "guessing: 1%; <one>: at most 50.0%; two: not known, nothing limits it; three: no more than" in picture.text
    )
    assert "<one>" not in picture.svg
