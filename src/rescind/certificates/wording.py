"""From facts to words: whoever issues a certificate and whoever verifies it take every text from here.

What a version said once it says for ever. A sentence is one text, in which version 1 says client and version 2
participant; where version 2 says it otherwise, it is both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Context
from typing import Any, cast

from rescind.certificates.predicate import Approval, Assumption, Predicate
from rescind.core.facts import Mode, PrivacyScope, Sampling, Source

NOISE_SOURCE = "the operating system's generator, through ChaCha20; drawn once, kept nowhere"
SEED = "a seed: whoever has it can take the noise away again"

Sentence = str | tuple[str, str]

_TITLE = "Certificate of forgetting"
_TITLE_OF_A_REPORT = "Report on an attempt to forget. This is not a certificate: nothing is proven"
_CLAIMS: Mapping[Mode, Sentence] = {
    Mode.EXACT: (
        "The released model was never computed from these clients' data, with what is listed taken as constants.",
        "The released model was never computed from these participants' data, with the listed constants taken as "
        "given.",
    ),
    Mode.STRICT: (
        "Whatever the data are, the released model is (epsilon, delta)-indistinguishable from one that never saw "
        "these clients; what is listed as public is not hidden.",
        "The released model is (epsilon, delta)-indistinguishable from one that never saw these participants, "
        "whatever the data are; the facts listed as public are not hidden.",
    ),
    Mode.INSTANCE: (
        "For this federation, and with what is listed taken as constants, the released model is (epsilon, "
        "delta)-indistinguishable from one that never saw these clients.",
        "For this federation, and with the listed constants taken as given, the released model is (epsilon, "
        "delta)-indistinguishable from one that never saw these participants.",
    ),
    Mode.HEURISTIC: "Nothing is claimed.",
}
_SCOPES = {
    PrivacyScope.INDIVIDUAL: "each of the clients alone is hidden, not their leaving together",
    PrivacyScope.GROUP: "all clients of the request are hidden together",
    PrivacyScope.SEQUENCE: (
        "all clients of this request and of those that were served before it are hidden together, as they were then"
    ),
    PrivacyScope.RECORDS: (
        "the group is these clients as they were: they take part again, without the rows that they named"
    ),
}
_RECORDS_CLAIM = (
    "The released model was never computed from the rows that these clients named and left out, nor from anything "
    "that these clients did while they had them, with what is listed taken as constants.",
    "The released model was never computed from the rows that these participants named and left out, nor from "
    "anything that these participants did while they had them, with the listed constants taken as given.",
)
_NOT_CLAIMED = (
    "that models which were released, or sent to participants, before the restart are called back",
    "that copies of data or models elsewhere, such as backups, are erased",
    "that the guarantee holds for requests which were chosen by looking at released models",
    "that anybody is anonymous, or that it is hidden that the clients once took part",
)
_WHOLE_CLIENTS = "anything about single records of a client: whole clients are forgotten"
_NAMED_ROWS = (
    (
        "that the rows which a client left out are those that somebody asked about: only the client sees its rows",
        "that the rows which a participant left out are those that the request meant: only the participant sees its "
        "rows",
    ),
    (
        "that the rows are hidden from who has models, or at the server sums, from before and from after: the "
        "difference can tell a row",
        "that the rows are hidden from an attacker who has models, or at the server sums, from before and from "
        "after: the difference can tell a row",
    ),
)
_SUMS_SEEN = (
    "that what the server saw on the way tells little: sums over one client's rows say more of them than an update"
)
_SUMS_HELD = "that little is kept of clients who stay: the server keeps each one's sums, until it leaves"
_ADDED = (
    "the size of the restart's noise, which hides none of these clients, was chosen without looking at their data"
)
_ROUNDS = "the numbers of rounds that were trained"
_FIXED = "clients are sent the recorded models, settings that were fixed beforehand, and nothing else"
_NOTHING_KEPT = (
    "the server's own code keeps nothing of one line of training for another, and what it sends beside the models "
    "follows from public numbers and from the rounds of that line alone"
)
_SOLVED = (
    "that a solve ended with the solution; not in how many rounds: the other world's takes as many as it needs",
    "that a solve ended with the solution, not in how many rounds: a solve in the other world takes as many as it "
    "needs",
)
_CONSTANTS: Mapping[Mode, tuple[Sentence, ...]] = {
    Mode.EXACT: (
        (
            "to which model from before these clients training went back, and that this was preferred to a later "
            "model with noise: predicted rounds decide that, which look at recorded models (where no noise was "
            "added, the model follows from who took part and from numbers of rounds only)",
            "the restart point (a model from before these participants took part), and its choice over a later "
            "one with noise: decided by predicting rounds from recorded models (where no noise was added, the "
            "restart point follows from who took part and from numbers of rounds only)",
        ),
        "earlier and later restarts, with their noise",
        _ROUNDS,
    ),
    Mode.INSTANCE: (
        "the round to which training went back",
        "the noise level",
        "the noise level and the round of earlier and later requests",
        _ROUNDS,
    ),
}


def say(version: int, sentence: Sentence) -> str:
    """Return a sentence, or the name of who asked or vouches, as a version says it."""
    if not isinstance(sentence, str):
        return sentence[version - 1]
    return sentence if version == 1 else sentence.replace("client", "participant")


def write_texts(stated: Predicate) -> dict[str, Any]:
    """Return every text of a certificate by the name of its field; all else that it states has to be there."""
    mode, facts, records = Mode(stated.mode), stated.facts, stated.scope == PrivacyScope.RECORDS.value
    version = stated.version

    def each(*sentences: Sentence) -> tuple[str, ...]:
        return tuple(say(version, sentence) for sentence in sentences)

    return {
        "title": _TITLE_OF_A_REPORT if mode is Mode.HEURISTIC else _TITLE,
        "claim": say(version, _RECORDS_CLAIM if records and mode is Mode.EXACT else _CLAIMS[mode]),
        "counterfactual": "; ".join(
            each(Sampling[facts.sampling.upper()].value, _SCOPES[PrivacyScope(stated.scope)], *_solves(mode, stated))
        ),
        "sampling": facts.sampling + ("" if facts.sample is None else f", {facts.sample:g}"),
        "constants": each(*_CONSTANTS.get(mode, ()), *([_SOLVED] if facts.solved and mode is Mode.INSTANCE else [])),
        "public": each(*_public(stated)) if mode is Mode.STRICT else (),
        "assumptions": tuple(
            Assumption(what=say(version, assumed), basis=cast(Any, say(version, basis)))
            for assumed, basis in (() if mode is Mode.HEURISTIC else _assumptions(mode, stated))
        ),
        "not_claimed": each(
            *_NOT_CLAIMED,
            *(_NAMED_ROWS if records else [_WHOLE_CLIENTS]),
            *([_SUMS_SEEN] if facts.solved else []),
            *([_SUMS_HELD] if facts.keeps_sums else []),
        ),
    }


def write_predicate(**stated: Any) -> Predicate:
    """Return what a certificate says: what is stated, by its fields, and every text that follows from it."""
    return Predicate(**stated, **write_texts(Predicate.model_construct(**stated)))


def describe_names(names: Mapping[str, str | None]) -> str:
    """Say what people call operator, federation, model and protocol; empty where nothing was said."""
    return "; ".join(f"{role} {name}" for role, name in names.items() if name is not None)


def describe_approver(approval: Approval) -> str:
    """Say what shows who agreed to a plan."""
    if approval.key is not None:
        return f"signed with the key {approval.key}"
    return "not signed: a login at the operator's desk, on the operator's word" if approval.login else "not signed"


def format_share(share: float) -> str:
    """Return a share in percent, rounded up: "at most" has to stay true."""
    return f"{math.ceil(1000 * share) / 10:.1f}%"


def format_exactly(value: float) -> str:
    """Return a number in all its digits: a rounded epsilon would claim more than was proven."""
    return repr(value).removesuffix(".0")


def format_at_most(value: float) -> str:
    """Return a number in three digits, rounded up."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(value)):g}"


def _solves(mode: Mode, stated: Predicate) -> Iterator[Sentence]:
    """Say what the other world does where this one solved the head."""
    if stated.facts.solved and mode in (Mode.STRICT, Mode.INSTANCE):
        yield (
            "where the head was solved it is solved there for the others, to the same norm of the gradient",
            "where the head was solved, the other world solves it for the others, to the same norm of the gradient",
        )
    if stated.facts.stages:
        yield "in both worlds anchors alone train the body, for as many rounds, and then the head alone is solved"
    if stated.solving and stated.facts.keeps_sums:
        yield (
            "after the restart the head was solved from the sums of everybody else who did not wait to leave, as "
            "sent last; where a body was trained anew, of everybody else who could be reached",
            "after the restart the head was solved from the sums that all other participants had sent last, without "
            "those who waited to leave; where a body was retrained, from those of all others who could be reached",
        )
    elif stated.solving:
        yield (
            "after the restart everybody else who could be reached was asked in the solve; who stopped is left out",
            "after the restart all other participants who could be reached were asked in the solve; those who "
            "stopped are left out",
        )


def _public(stated: Predicate) -> Iterator[Sentence]:
    """Say what a strict claim does not hide, because the restart and the noise follow from it."""
    yield "who took part in which round"
    if stated.facts.equal_weights or stated.rounds:
        yield "not public: how many examples each client has, which is not used, as all participants weigh the same"
    else:
        yield (
            "how many examples each client has (n_i): whoever must keep its number of examples private trains with "
            "equal weights",
            "how many examples each participant has (n_i): a participant that must keep this number private trains "
            "with equal weights",
        )
    if not stated.rounds:
        yield "how many local steps each client makes"
    yield _ROUNDS
    if stated.facts.solved:
        yield _SOLVED


def _assumptions(mode: Mode, stated: Predicate) -> Iterator[tuple[Sentence, str]]:
    """Say what a claim rests on, the weakest word for each; rows that were left out come last."""
    facts, sources = stated.facts, stated.facts.sources
    yield _by("who the clients are", sources.identity)
    yield _by("who took part in which round", Source.CHECKED)
    yield _by("the first model is public and depends on nobody's data", Source.DECLARED)
    if stated.frozen:
        yield _by(f"the tensors that are never trained, SHA-256 {stated.frozen}, are public", Source.DECLARED)
    if facts.body:
        public = (
            f"the body that makes the features, {json.dumps(facts.body.name, ensure_ascii=False)}, with weights of "
            f"SHA-256 {facts.body.digest}, is public and was chosen without looking at these "
        )
        # A pair, for in the body's own name no word is replaced.
        yield _by((f"{public}clients' data", f"{public}participants' data"), Source.DECLARED)
        yield _by("every client's features come from that body, and each row's from that row alone", Source.REPORTED)
    yield _by(
        "who could be reached in a round, and when the server's process ended, did not depend on the forgotten "
        "clients",
        sources.reachable,
    )
    checked = sources.server == Source.CHECKED.value
    yield _by(_FIXED if checked else _NOTHING_KEPT, sources.server)
    if mode is Mode.EXACT and stated.noise:
        yield _by(_ADDED, Source.DECLARED)
    if facts.stages:
        yield _by(
            "the anchors, the tensors of the head and the number of the body's rounds were chosen without looking at "
            "these clients' data",
            Source.DECLARED,
        )
    # Also where a later restart trained: the claim still rests on the solve before it.
    if facts.solved:
        stage = facts.stages or stated.training
        chosen = stage.ridge is not None and stage.ridge.l2_choices is not None
        choices = say(stated.version, (", those to choose from instead", "s to choose from")) if chosen else ""
        limits = ", the target norm, the limits of rows and clients" if stage.loss == "SquaredL2" else ""
        yield _by(
            f"the L2 term{choices}, the row norm{limits} and the solver's settings were fixed without these clients",
            Source.DECLARED,
        )
        if chosen:
            suits = (
                "of the L2 terms to choose from that one was taken which suits the sums of those in the model best",
                "the L2 term is, of those to choose from, the one that suits the sums of those in the model best",
            )
            yield _by(suits, Source.CHECKED)
        anew = (
            "the solver began anew, and saw sums over the rows of those who answered and nothing else",
            "the solver started afresh, and saw sums over the rows of those who answered and nothing else",
        )
        yield _by(anew, Source.CHECKED)
        if facts.keeps_sums:
            yield _by(
                "who sent sums, and when, was decided without the forgotten clients, and there was room for all",
                Source.DECLARED,
            )
    if mode is Mode.EXACT:
        yield _by("clients keep nothing of one line of training for another", Source.DECLARED)
    else:
        yield from _noised(mode, stated)
    if stated.scope == PrivacyScope.RECORDS.value:
        # On a client's own word where our helper asked it for that.
        ours = sources.training == Source.EXECUTED.value
        rows = (
            "since the restart these clients leave out the rows that they named, in evaluation too, and keep nothing "
            "made of them"
        )
        yield _by(rows, Source.REPORTED if ours else Source.DECLARED)


def _noised(mode: Mode, stated: Predicate) -> Iterator[tuple[Sentence, str]]:
    """Say what a guarantee by noise rests on besides."""
    yield _by("clients execute the stated training, each with randomness of its own", stated.facts.sources.training)
    if stated.rounds:
        yield _by("updates are clipped and noised in every round", Source.CHECKED)
    else:
        yield from _bound(mode, stated)
    yield _by("requests were not chosen by looking at released models", Source.DECLARED)
    times = "in every round" if stated.rounds else "once"
    yield _by(f"the noise was drawn as stated, {times}", Source.CHECKED)
    generator = (
        "nobody can tell the operating system's generator and ChaCha20 from chance, and the inverse of the "
        "normal distribution is accurate to 1.8e-15 of its value",
        "the operating system's generator and ChaCha20 cannot be told from chance, and the inverse of the normal "
        "distribution is accurate to 1.8e-15 of its value",
    )
    yield _by(generator, "assumed")


def _bound(mode: Mode, stated: Predicate) -> Iterator[tuple[Sentence, str]]:
    """Say what the bound on a round rests on; nothing is proven of code that is not ours."""
    facts, training = stated.facts, stated.training
    ours = facts.sources.training in (Source.EXECUTED.value, Source.CHECKED.value)
    curvature = "the loss's curvature, and with it B"
    if ours and training.loss in ("SoftmaxL2", "LogisticL2"):
        yield _by(curvature, "proven")
    else:
        yield _by(curvature, Source.DECLARED)
    solver = ", or what the solver made of their sums" if facts.solved else ""
    yield _by(f"every model is the weighted mean of its round's replies{solver}", Source.CHECKED)
    if mode is Mode.INSTANCE:
        yield _by("how far every participant was from the mean of its round", facts.sources.distances)
    if facts.sources.distances == say(stated.version, Source.REPORTED.value):
        masks = "the masks cancel in the mean; what is left of them by rounding is not in the bound"
        yield _by(masks, Source.DECLARED)
    if ours:
        yield _by(
            "the machine's exp and log are accurate to 16 units in the last place: the one part of the rounding "
            "term that is not proven",
            "assumed",
        )
    else:
        stand_in = "" if training.gradient_bound else ", in which the longest update stands in for the gradients"
        yield _by(
            f"what floating point adds in the clients' own code stays below its term{stand_in}", Source.DECLARED
        )


def _by(assumed: Sentence, basis: Any) -> tuple[Sentence, str]:
    return assumed, basis.value if isinstance(basis, Source) else basis
