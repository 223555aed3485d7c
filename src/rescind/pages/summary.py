"""A request in short, for somebody who has never seen a certificate: everything follows from what is stated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from rescind.certificates.predicate import Names, Predicate
from rescind.certificates.wording import format_exactly, format_share
from rescind.ledger.records import Asker

# Up to which chance, at 1% of outsiders wrongly accused, an attack's advantage is called so; see docs/guarantees.md.
_JUDGED = (
    (0.025, "That is hardly better than guessing."),
    (0.06, "That is a small advantage: an attack that wants to be sure finds next to nothing."),
    (0.15, "That protects little where an attacker cares about this very participant. Ask whether it has to be so."),
)
_WEAK = "That is weak: it says something about the average, hardly anything about one participant. Ask for more."

# How many rounds were trained, and so to which kept model training could go back, may follow the leaver's data.
_GIVEN = ", given the listed constants"

LEVELS = {
    "purge": "all that was computed from the data that had to go is deleted, but for what is listed as still there",
    "output": "only what is not needed any more is deleted: models and numbers from before are still there",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a page says first.

    ``grade`` is fine, weak or wrong; ``chance`` is the most that an attack reaches where it wrongly accuses ``rate``
    of outsiders, None where nothing limits it.
    """

    grade: str
    verdict: str
    chance: float | None
    rate: float
    limit: str
    in_time: bool
    served: str
    answers: tuple[tuple[str, str], ...]
    steps: tuple[str, ...]


def summarise(predicate: Predicate, signed: str) -> Summary:
    """Say what was asked, done and promised, whether it is enough and in time; ``signed`` says by whom, if at all."""
    rate, chance = _power(predicate)
    asked, served, due = list_days(predicate).values()
    in_time = served <= due
    judged = _judge(predicate, chance)
    weak = judged == _WEAK
    grade = "wrong" if chance is None else "weak" if weak or not in_time or not signed else "fine"
    stays = len(predicate.erasure.stays + predicate.erasure.unreachable)
    return Summary(
        grade=grade,
        verdict=_verdict(predicate, weak),
        chance=chance,
        rate=rate,
        limit=_limit(predicate, chance),
        in_time=in_time,
        served=_waited(asked, due, served),
        answers=(
            ("Who asked, and for what?", _asked(predicate, asked)),
            ("What was done?", _done(predicate)),
            ("What is promised?", _promised(predicate)),
            ("What could an attacker still tell?", _left(predicate, chance, rate)),
            ("Is that enough?", judged),
            (
                "Was it in time?",
                f"{'Yes' if in_time else 'No'}. It was asked on {asked}, due on {due} and served on {served}: "
                f"{_waited(asked, due, served)}.",
            ),
            (
                "What is left of the forgotten?",
                f"{count(stays, 'kind')} of traces, listed below as still there. Copies that were handed out before "
                "remain, too: nobody can call those back.",
            ),
            (
                "What belongs in your own file?",
                f"The ground of GDPR art. 17, who the controller is, and that this is request {predicate.request} of "
                f"history {predicate.run}: a certificate has neither ground nor controller nor your ticket's number. "
                "Its authors know of no independent audit of rescind.",
            ),
        ),
        steps=tuple(_steps(predicate, chance is None or weak, in_time, signed)),
    )


def _describe_operator(names: Names) -> str:
    """Say who runs which federation, as far as that has a name."""
    if names.operator is None:
        return "the operator" + (f" of the federation {names.federation}" if names.federation else "")
    return names.operator + (f", which runs the federation {names.federation}," if names.federation else "")


def day_of(time: str) -> date:
    """Return the day of a recorded time, in UTC as all days of a page are."""
    return datetime.fromisoformat(time).astimezone(UTC).date()


def list_days(predicate: Predicate) -> dict[str, date]:
    """Return when a request was asked, served and due."""
    return {
        "asked": day_of(predicate.asked),
        "served": day_of(predicate.erasure.completed),
        "due": day_of(predicate.deadline),
    }


def count(number: int, one: str) -> str:
    """Return a number of things in words."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def _power(predicate: Predicate) -> tuple[float, float | None]:
    if predicate.guarantee is not None:
        stated = predicate.guarantee.powers[-1]
        return stated.false_positive_rate, stated.true_positive_rate
    # Whoever was never in a model is found by guessing only.
    return 0.01, None if predicate.mode == "heuristic" else 0.01


def _limit(predicate: Predicate, chance: float | None) -> str:
    if chance is None:
        return "no limit is proven"
    return "no more than guessing" if predicate.mode == "exact" else f"at most {format_share(chance)}"


def _judge(predicate: Predicate, chance: float | None) -> str:
    if chance is None:
        return "No. Nothing is proven, so do not count this as forgotten."
    if predicate.mode == "exact":
        return "Yes, for the model itself, under the listed conditions."
    return next((words for most, words in _JUDGED if chance <= most), _WEAK)


def _verdict(predicate: Predicate, weak: bool) -> str:
    if predicate.mode == "heuristic":
        return "Not proven: nobody can say what the model still knows"
    if predicate.mode == "exact":
        whom = "these rows" if predicate.scope == "records" else "the data of those who left"
        return f"Forgotten: the model was made without {whom}"
    return (
        "Forgotten weakly: the bound on the residual risk is high"
        if weak
        else "Forgotten, with a bounded residual risk"
    )


def _asked(predicate: Predicate, asked: date) -> str:
    several, names, rows = len(predicate.forgotten), predicate.names, predicate.scope == "records"
    who = "a participant" if several == 1 else f"{several} participants"
    model = f"the model {names.model}" if names.model else "the model"
    by = "" if predicate.asked_by == Asker.OPERATOR.value else f" by {predicate.asked_by}"
    if predicate.signed_request is not None:
        wish = f"that {model} forgets some of its rows; it stays" if rows else f"to be forgotten by {model}"
        begun = f"{who} asked {_describe_operator(names)} {wish},{by}"
    else:
        # Who told the operator, and how, is in nobody's record.
        whom = f"some rows of {who}, who stay" if rows else who
        begun = f"{_describe_operator(names)} recorded a request{by} for {model} to forget {whom}"
    called = ", ".join(digest[:8] for digest in predicate.forgotten[:3]) + (", and so on" if several > 3 else "")
    return (
        f"On {asked} {begun}.{'' if rows else ' Names are erased.'} A certificate shows {called} instead of the "
        f"name{'' if several == 1 else 's'}: a participant's receipt proves which entry is its own."
    )


def _done(predicate: Predicate) -> str:
    if predicate.mode == "heuristic":
        done = f"Something was tried that no proof covers: {predicate.reasons[0]}."
    elif predicate.mode == "exact":
        whom = "these rows were never used" if predicate.scope == "records" else "the forgotten never took part"
        done = f"The model in use comes from a line of training in which {whom}."
    elif predicate.rounds is not None:
        done = (
            "In every round of training each contribution was kept short and random noise was added, which hides "
            "those who left. Training then went on with the others."
        )
    else:
        done = (
            "Training went back to an earlier model. Random noise was added to it, which hides what was left of the "
            "forgotten. Then the others trained on."
        )
    if predicate.solving is not None:
        done += " The last layer was computed from sums over the others' rows."
    return f"{done} Here {LEVELS[predicate.erasure.level]}."


def _promised(predicate: Predicate) -> str:
    stated = predicate.guarantee
    if stated is None:
        return predicate.claim
    return (
        "A limit on how well anybody who has the released model can tell whether they ever took part. In the "
        f"certificate's words: {predicate.claim} Epsilon is {format_exactly(stated.epsilon)}, delta "
        f"{format_exactly(stated.delta)}, for {count(stated.releases, 'released model')}. The next answer says what "
        "that comes to."
    )


def _left(predicate: Predicate, chance: float | None, rate: float) -> str:
    guessing = f"{100 * rate:g}%"
    if chance is None:
        return "That is not known: nothing limits it."
    if predicate.mode == "exact":
        return (
            "From this model nothing, provided the listed constants were chosen without looking at the forgotten "
            "participants' data: then an attacker can do no better than guess."
        )
    condition = _GIVEN if predicate.constants else ""
    return (
        f"Whoever has the model and wrongly accuses {guessing} of outsiders recognises a forgotten participant with "
        f"a chance of at most {format_share(chance)}{condition}. Guessing: {guessing}."
    )


def _waited(asked: date, due: date, served: date) -> str:
    took = (
        "on the day it was asked" if served == asked else f"{count((served - asked).days, 'day')} after it was asked"
    )
    spare = (due - served).days
    return f"{took}, {count(abs(spare), 'day')} {'before it was due' if spare >= 0 else 'too late'}"


def _steps(predicate: Predicate, too_little: bool, in_time: bool, signed: str) -> Iterator[str]:
    operator = predicate.names.operator or "the operator"
    if too_little:
        yield (
            f"Ask {operator} to retrain without the data (exact), or for a smaller epsilon. What is here is not "
            "enough to call somebody forgotten."
        )
    if not in_time:
        yield "Tell whoever asked why it took longer, and note it: the law gives a month, or three with a reason."
    if signed:
        yield f"Confirm the fingerprint with {operator} by phone or letter: {signed}."
    else:
        yield f"Ask {operator} for something signed and its public key, and have it checked: rescind verify."
    yield (
        f"Ask {operator} where backups lie, and models that were handed out earlier. They are not covered, and have "
        "to be dealt with apart. Whoever was given such a model has to be told (GDPR art. 19); no record says who."
    )
    yield "Tell whoever asked what was done. With its receipt it finds itself here."
    yield "Keep this page with what was signed."
