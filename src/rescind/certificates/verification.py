"""Checking a certificate: what can be recomputed is recomputed, and the rest is named."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import wrap

from pydantic import BaseModel, ValidationError
from securesystemslib.signer import Key

from rescind.certificates.annex import Annex, check_annex, is_same_annex
from rescind.certificates.annex import build_annex as annex_of
from rescind.certificates.envelope import fingerprint, open_envelope
from rescind.certificates.errors import (
    AnnexMismatchError,
    HistoryMismatchError,
    InconsistentCertificateError,
    ModelMismatchError,
    NotACertificateError,
    RequestMismatchError,
    UnsignedCertificateError,
    UnusableKeyError,
)
from rescind.certificates.issue import (
    build_guarantee,
    describe_noised_rounds,
    describe_training,
    gather_claims,
    read_request,
)
from rescind.certificates.leaving import open_request
from rescind.certificates.models import (
    find_by_digest,
    find_covered,
    find_path,
    find_unfounded,
    has_touched,
    read_model_id,
    read_parts,
)
from rescind.certificates.predicate import (
    Approval,
    Evidence,
    NoisedRounds,
    Predicate,
    RecordedFacts,
    Statement,
    Training,
    name_type,
)
from rescind.certificates.time_stamps import check_stamps, read_authorities
from rescind.certificates.wording import (
    NOISE_SOURCE,
    SEED,
    describe_approver,
    describe_names,
    format_at_most,
    format_exactly,
    format_share,
    say,
    write_texts,
)
from rescind.checkpoints.tensors import digest
from rescind.core.edges import ErasedStretch, ModelId
from rescind.core.facts import Mode, PrivacyScope, Source
from rescind.core.noise import GRID, is_public_sigma, sigma_limits
from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, Loss, NetworkLoss, SoftmaxL2, SquaredL2
from rescind.core.strict import HeadBound, participations
from rescind.core.sums import head_names
from rescind.core.training import LocalTraining
from rescind.errors import BrokenHistoryError, HistoryError
from rescind.history.history import History
from rescind.history.journal import find_steps_back, is_usual_time, parse_time
from rescind.history.outcomes import groups_of, outcome_of
from rescind.history.participants import blind_name
from rescind.ledger.records import Asker, ErasureLevel
from rescind.views.models import DIGEST, HEAD, MODEL, RUN, read_remarks

# What a file that was not given would have checked.
_UNGIVEN = ": give the "
SIGNER_UNSHOWN = (
    "that whoever signed the request is who was forgotten: give its receipt, or the history with its secret file"
)
# The losses of linear heads that can be trained, by the name that is stated.
_HEADS: dict[str, type[SoftmaxL2 | LogisticL2]] = {"SoftmaxL2": SoftmaxL2, "LogisticL2": LogisticL2}
# Another machine's special functions may differ in the last digits.
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class VerifiedCertificate:
    """A certificate that holds: what was checked, and what could not be without more at hand.

    Attributes:
        statement: what was signed.
        holds: what was checked, in words.
        unchecked: what could not be checked, and what it would take.
        since: what the history has changed about the claim since it was signed.
    """

    statement: Statement
    holds: tuple[str, ...]
    unchecked: tuple[str, ...]
    since: tuple[str, ...] = ()


def verify(
    content: bytes,
    keys: Sequence[Key],
    *,
    threshold: int = 1,
    model: str | os.PathLike[str] | None = None,
    history: History | None = None,
    witnessed: Collection[bytes] = (),
    annex: bytes | None = None,
    request: bytes | None = None,
    stamps: Sequence[bytes] = (),
    authorities: bytes | None = None,
) -> VerifiedCertificate:
    """Check a certificate with everything that is at hand.

    A ``CertificateError`` says what does not hold; each kind below but ``ValueError`` is one.

    Args:
        content: the certificate's bytes.
        keys: the public keys of those who may have signed it.
        threshold: how many of the keys have to have signed it.
        model: the file of the model that it should be about.
        history: the history that it should be about.
        witnessed: heads of the history that clients were handed while they trained; they need ``history``.
        annex: the bytes of the certificate's annex.
        request: the bytes of the request that the client signed itself.
        stamps: the bytes of time stamps of it, or of heads of the history; they need ``authorities``.
        authorities: the certificates of time-stamp authorities, in PEM; with them there has to be a stamp, among
            these or in the history.

    Returns:
        what holds, and what could not be checked.

    Raises:
        NotACertificateError: the content is no signed statement of ours.
        UnsignedCertificateError: fewer than ``threshold`` of the keys signed it.
        UnusableKeyError: a key cannot be used.
        InconsistentCertificateError: its texts do not follow from its facts, or its numbers from one another or from
            the history's.
        ModelMismatchError: the model is not the one that it is about.
        HistoryMismatchError: the history is broken or another one, or does not say what the certificate says.
        AnnexMismatchError: the annex does not belong to the certificate, or does not fit it.
        RequestMismatchError: the signed request is not the one that the certificate is about.
        TimeStampError: a time stamp is missing, is of something else, or not by the authorities.
        ValueError: ``threshold`` is not from 1 to the number of keys, there are ``witnessed`` heads and no
            ``history``, or ``stamps`` and no ``authorities``, or these or what reads stamps is missing.
    """
    if stamps and authorities is None:
        raise ValueError("time stamps are checked with their authority's certificates: give these, too")
    if witnessed and history is None:
        raise ValueError("witnessed heads are looked for in a history: give the history, too")
    statement = open_envelope(Statement, content, keys, threshold)
    predicate = statement.predicate
    for wrong in _contradictions(statement):
        raise InconsistentCertificateError(wrong)
    signers = ", ".join(sorted({fingerprint(key) for key in keys}))
    holds = [
        f"signed by {threshold} of the keys {signers}" if threshold < len(keys) else f"signed by {signers}",
        "its claim, counterfactual and assumptions follow from the stated facts; its numbers follow from one another",
    ]
    unchecked = []
    untold = [] if history is None else _check_history(statement, history, witnessed)
    recomputed, doubtful = ([], []) if history is None else _recompute(statement, history)
    if model is not None:
        of_model, odd = _check_model(statement, Path(model), history)
        holds += of_model
        unchecked += odd
    else:
        unchecked.append("which model it is about: give the model's file")
    if history is not None:
        unchecked += [*untold, *doubtful]
        holds.append("the history at hand is unbroken, and said the same when it was signed")
        if predicate.approved is not None:
            holds.append(_describe_approval(predicate.approved))
        holds += recomputed
        if witnessed:
            heads = "the witnessed head is" if len(witnessed) == 1 else f"all {len(witnessed)} witnessed heads are"
            holds.append(f"{heads} in its chain: up to there it was not rewritten or rolled back since")
    else:
        unchecked += [
            "the stated facts: who took part, how participants were drawn and weighed, what they trained, how a head "
            "was solved, on whose word each of these is known: give the history",
            "the plan and the noise level, what was erased and what is still there: give the history",
            "what it states of the request: names, run, number, model and dates; who asked, and whose key approved; "
            "who was forgotten, and what commits to their rows; mode and reasons; whose removal is hidden; epsilon, "
            "delta and releases: give the history",
        ]
        if predicate.body is not None:
            unchecked.append("which body the model has, and how many anchors trained it: give the history")
    erased = history is not None or predicate.erasure.level == ErasureLevel.PURGE.value
    inputs = "computed by the operator; the inputs were erased since" if erased else "give the history"
    if predicate.rounds is not None and not _took_part_as_stated(statement, history):
        unchecked.append(f"how often the forgotten participants took part: {inputs}")
    noised = predicate.noise is not None and predicate.guarantee is not None
    own = _own_annex(history, statement) if history is not None and (noised or annex is not None) else None
    if noised and not _is_enough(statement, own):
        unchecked.append(f"that the noise is enough for what it hides: {inputs}")
    if annex is not None:
        try:
            told = open_envelope(Annex, annex, keys, threshold)
        except (NotACertificateError, UnsignedCertificateError) as refusal:
            raise AnnexMismatchError(f"the annex cannot be used: {refusal}") from refusal
        check_annex(told, statement)
        if own is not None and not is_same_annex(told, own):
            raise AnnexMismatchError("the history says something else than the annex")
        holds.append("the annex at hand is signed likewise, belongs to it, and its numbers agree")
    if request is not None:
        holds.append(_check_request(predicate, request, history))
        if history is None or history.integrity.secret_problem() is not None:
            unchecked.append(SIGNER_UNSHOWN)
    if authorities is not None:
        stamped, unstamped = check_stamps(content, statement, stamps, read_authorities(authorities), history)
        holds += stamped
        unchecked += unstamped
    unchecked += _find_untold(predicate, request is not None)
    since = () if history is None else (*find_superseded(predicate, history), *find_weakened(predicate, history))
    return VerifiedCertificate(statement, tuple(holds), tuple(unchecked), since)


def explain(verified: VerifiedCertificate, *, full: bool = True) -> Iterator[str]:
    """Say in plain words what holds, on what it rests, and what is not claimed.

    Args:
        verified: what ``verify`` returned.
        full: whether every line is given; else what holds, and in a line each what to keep in mind.

    Yields:
        lines of a terminal's width.
    """
    predicate = verified.statement.predicate
    extent = ", as far as can be told from what is at hand" if verified.unchecked else ""
    yield from _wrapped("", f"Verified{extent}: {predicate.title}")
    asked, due, completed = (text[:10] for text in (predicate.asked, predicate.deadline, predicate.erasure.completed))
    own = "" if predicate.asked_by == Asker.OPERATOR.value else f" by {predicate.asked_by}"
    yield from _wrapped("  ", f"request {predicate.request}: asked {asked}{own}, due {due}, completed {completed}")
    if names := describe_names(dict(predicate.names)):
        yield from _wrapped("  ", names)
    report = predicate.mode == Mode.HEURISTIC.value
    asking = "asked to be " if report else ""
    yield from _wrapped("  ", f"{len(predicate.forgotten)} {asking}forgotten. {predicate.claim}")
    if not report:
        yield from _wrapped("  ", f"compared with: {predicate.counterfactual}")
    if predicate.guarantee is not None:
        stated, power = predicate.guarantee, predicate.guarantee.powers[-1]
        releases = "1 release" if stated.releases == 1 else f"{stated.releases} releases"
        yield f"  epsilon {format_exactly(stated.epsilon)}, delta {format_exactly(stated.delta)}, for {releases}"
        rate = f"{power.false_positive_rate:.1%}"
        constants = ", given the listed constants" if predicate.constants else ""
        yield from _wrapped(
            "  ",
            f"an attack that wrongly accuses {rate} of outsiders recognises a forgotten participant with a chance of "
            f"at most {format_share(power.true_positive_rate)}{constants}; guessing: {rate}",
        )
    if predicate.rounds is not None:
        yield from _wrapped("  ", describe_noise(predicate.rounds))
    if not full:
        yield from _list(("Why it is no certificate", predicate.reasons), ("Holds", verified.holds))
        yield from _list(("Since then", verified.since), ("Keep in mind", tuple(_name_caveats(verified))))
        yield "All of it: --full, or a page by --html FILE"
        return
    yield from _list(
        ("Why it is no certificate", predicate.reasons),
        ("Taken as constants", predicate.constants),
        ("Public, and not hidden", predicate.public),
        ("Holds", verified.holds),
        ("Since then", verified.since),
        ("Not checked here", verified.unchecked),
        ("Rests on", tuple(f"{assumption.what} ({assumption.basis})" for assumption in predicate.assumptions)),
        ("Measured, which proves nothing", tuple(map(describe_evidence, predicate.evidence))),
        ("Not claimed", predicate.not_claimed),
        ("Still there", predicate.erasure.stays + predicate.erasure.unreachable),
    )
    if verified.unchecked:
        yield "What is not checked here is the word of whoever signed."


def _list(*parts: tuple[str, tuple[str, ...]]) -> Iterator[str]:
    """Write a title above each list that has lines."""
    for title, lines in parts:
        if lines:
            yield f"{title}:"
            for line in lines:
                yield from _wrapped("  - ", line)


def _name_caveats(verified: VerifiedCertificate) -> Iterator[str]:
    """Say what matters most of all that does not simply hold: a line each."""
    predicate = verified.statement.predicate
    # What a file more would check is counted; what nothing at hand can check is said.
    untold = [line for line in verified.unchecked if _UNGIVEN in line]
    yield from (f"not checked: {line}" for line in verified.unchecked if _UNGIVEN not in line)
    if untold:
        yield f"not checked here, but the word of whoever signed: {_count(len(untold), 'point')}"
    bases = [assumption.basis for assumption in predicate.assumptions]
    told = [basis for basis in bases if basis.startswith(("declared", "reported", "assumed"))]
    taken = f"; {_count(len(predicate.constants), 'choice')} taken as given" if predicate.constants else ""
    resting = _count(len(bases), "assumption")
    yield f"it rests on {resting}, {len(told)} of them declared, reported or assumed{taken}"
    left = predicate.erasure.stays + predicate.erasure.unreachable
    yield (
        f"{_count(len(left), 'kind')} of traces are still there, and models or copies that had left before are not "
        "called back"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _wrapped(first: str, line: str) -> list[str]:
    # Not the terminal's own width: what is shown is what documents quote.
    return wrap(line, 100, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def describe_noise(rounds: NoisedRounds) -> str:
    """Say what hides in DP-FedAvg."""
    return (
        f"noise in every round: {rounds.sigma:g} on the mean of updates of length {rounds.clip:g} at most, whose sum "
        f"is divided by {rounds.denominator:g}, so z = {rounds.noise_multiplier:.6g}; the squared numbers of the "
        f"forgotten in each of the {rounds.rounds} rounds before the restart add up to at most "
        f"{rounds.participations}, so mu = sqrt({rounds.participations}) / z = {rounds.mu:.6g}"
    )


def describe_evidence(measured: Evidence) -> str:
    """Say what was tried, what it found, and what the certificate allows."""
    return f"{measured.what}: {measured.found}; the certificate's bound: {measured.bound}"


def find_weakened(predicate: Predicate, history: History) -> Iterator[str]:
    """Say what may be claimed of today's model, if that is less than the certificate claims.

    Args:
        predicate: what the certificate says.
        history: the history that it is about.

    Yields:
        a sentence, if the claim is weaker today.
    """
    order = [mode.value for mode in Mode]
    now = outcome_of(history.timeline, predicate.request)
    today = now.mode
    if order.index(today.value) <= order.index(predicate.mode):
        return
    if now.contradictions:
        yield f"nothing is proven any more: {now.contradictions[0]}"
        return
    claim = "nothing is proven" if today is Mode.HEURISTIC else f"the claim is {today.value}, not {predicate.mode}"
    yield f"a later restart led to another model, of which {claim}: ask for a new certificate"


def find_superseded(predicate: Predicate, history: History) -> Iterator[str]:
    """Say so if there is a newer model than the certificate's.

    Args:
        predicate: what the certificate says.
        history: the history that it is about.

    Yields:
        a sentence, if there is a newer model.
    """
    certified, outcome = read_model_id(predicate), outcome_of(history.timeline, predicate.request)
    if outcome.readmitted is not None:
        yield "somebody who was forgotten was readmitted: models that were recorded later may know them again"
    newest = find_covered(history, outcome, history.head)[-1]
    if newest.branch != certified.branch:
        yield "it is about an earlier model: a later request made another one, which has no certificate here"
    elif newest.round > certified.round:
        yield f"training went on from its {certified} to {newest}, for which a certificate can be issued, too"


def _check_request(predicate: Predicate, content: bytes, history: History | None) -> str:
    """Compare a signed request with the one that a certificate is about; return what holds."""
    try:
        request = open_request(content)
    except (NotACertificateError, UnsignedCertificateError, UnusableKeyError) as refusal:
        raise RequestMismatchError(f"the signed request cannot be used: {refusal}") from refusal
    if request.sender.proof != predicate.signed_request:
        raise RequestMismatchError("the signed request at hand is not the one that this certificate is about")
    wish = request.predicate
    if wish.scope != predicate.scope:
        raise RequestMismatchError(f"the signed request asks for {wish.scope}, and {predicate.scope} was forgotten")
    if history is not None and history.integrity.secret_problem() is None:
        salt = bytes.fromhex(history.participants.receipt(request.client))
        if blind_name(salt, request.client) not in predicate.forgotten:
            raise RequestMismatchError(f"the request was signed by {request.client}, and somebody else was forgotten")
    return (
        f"the request at hand is the one that it is about, signed on {wish.time[:10]} for the federation "
        f"{wish.federation!r} by the participant's own key, {request.client}"
    )


def _find_untold(predicate: Predicate, shown: bool) -> Iterator[str]:
    """Say what is only told: of who asked, unless the signed request is ``shown``, of times, and of evidence."""
    if predicate.signed_request is not None and not shown:
        yield "that the participant's own key signed the request: give the signed request"
    elif predicate.asked_by == say(predicate.version, Asker.NODE.value):
        yield "that the participant's own node asked: its connection was authenticated, and nothing of that is kept"
    for event, time in (("asked for", predicate.asked), ("completed", predicate.erasure.completed)):
        # Whoever verifies may be a day ahead.
        if parse_time(time) > datetime.now(UTC) + timedelta(days=1):
            yield f"its times: it was {event} on {time[:10]}, it says, which is still to come: a clock was wrong"
    if predicate.evidence:
        yield "the measured evidence: that is the signers' word"


def _in_a_line(refusal: ValueError | ArithmeticError) -> str:
    """Say in one plain line why numbers cannot be computed with."""
    if isinstance(refusal, ValidationError):
        wrong = refusal.errors()[0]
        return f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    return "its numbers are too large or too small" if isinstance(refusal, ArithmeticError) else str(refusal)


def _contradictions(statement: Statement) -> Iterator[str]:
    """Say what does not follow from the rest."""
    predicate, mode = statement.predicate, Mode(statement.predicate.mode)
    if [subject.name for subject in statement.subject] != ["model", "head of the history"]:
        yield "its subjects are not a model and a history"
    if statement.predicate_type != name_type(predicate):
        yield f"a statement of this type cannot have the mode {mode.value} and the version {predicate.version}"
    foreign = "participant" if predicate.version == 1 else "client"
    if any(foreign in word for word in (predicate.asked_by, *dict(predicate.facts.sources).values())):
        yield f"it says {foreign}, and version {predicate.version} does not"
    if _of_records(predicate) and mode in (Mode.STRICT, Mode.INSTANCE):
        yield f"single records are forgotten without noise, and the mode is {mode.value}"
    yield from _wrong_stages(predicate, mode)
    for name, text in write_texts(predicate).items():
        if getattr(predicate, name) != text:
            yield f"what it says as {name} is not what follows from its mode and the stated facts"
    if bool(predicate.reasons) is not (mode is Mode.HEURISTIC):
        yield "reasons why nothing is proven belong into a report, and into nothing else"
    if not predicate.forgotten or list(predicate.forgotten) != sorted(set(predicate.forgotten)):
        yield "it has to name somebody who was forgotten, and nobody twice"
    if (predicate.signed_request is not None) is not (predicate.asked_by == say(predicate.version, Asker.KEY.value)):
        yield "who asked and the signed request do not go together"
    if predicate.asked_by != Asker.OPERATOR.value and len(predicate.forgotten) != 1:
        yield "whoever asks itself asks for itself alone"
    named = [told.client for told in predicate.rows]
    if (
        len(set(named)) < len(named)
        or not set(named) <= set(predicate.forgotten)
        or (named and not _of_records(predicate))
    ):
        yield "it tells of rows of somebody whose rows were not to be forgotten, or twice of somebody's"
    approved = () if predicate.approved is None else (predicate.approved.time,)
    times = predicate.asked, predicate.first_deadline, predicate.deadline, predicate.erasure.completed, *approved
    if not all(map(is_usual_time, times)):
        yield "one of its times is not valid"
    elif min(map(parse_time, times)) < parse_time(predicate.asked):
        yield "it was due, approved or completed before it was asked for"
    elif parse_time(predicate.deadline) < parse_time(predicate.first_deadline):
        yield "a deadline is extended and never made earlier, and its first one is later than its last"
    if not predicate.trained or len(set(predicate.trained)) < len(predicate.trained):
        yield "it has to name the tensors that were trained, and none twice"
    if not _can_be_drawn(predicate.facts):
        yield f"nobody can draw participants like that: {predicate.sampling}"
    if (predicate.guarantee is not None) is not (mode in (Mode.STRICT, Mode.INSTANCE)):
        yield f"the mode {mode.value} and its guarantee do not go together"
    if (predicate.solving is not None or predicate.facts.solved) and not _can_be_solved(predicate):
        yield "it says that the head was solved, and the stated training and facts are of none that can be"
    if predicate.facts.keeps_sums and (predicate.facts.stages or predicate.training).loss != "SquaredL2":
        yield "it says that clients' sums are kept, and the stated head does not follow from sums"
    yield from _wrong_noise(predicate, mode)
    yield from _wrong_training(predicate, mode)
    yield from _wrong_guarantee(predicate)


def _wrong_stages(predicate: Predicate, mode: Mode) -> Iterator[str]:
    """Say what of a body and a head does not fit together; only ``exact`` is ever claimed of a network."""
    stages, body = predicate.facts.stages, predicate.body
    if stages is None:
        if body is not None:
            yield "it names a body, and no stages in which one was trained"
        return
    if mode in (Mode.INSTANCE, Mode.STRICT):
        yield f"of a network in two stages {mode.value} cannot be claimed"
    if not set(stages.head) < set(predicate.trained) or _head_names(stages.head) != stages.head:
        yield "the head that is stated is none of the model that was trained"
    if body is not None:
        whole = ModelId.read(body.model)
        too_early = whole.round < (1 if whole.branch else max(1, stages.body_rounds))
        if whole > read_model_id(predicate) or too_early:
            yield f"no body of {stages.body_rounds} rounds can be whole at model {body.model}"
    if mode is Mode.EXACT and predicate.solving is not None and body is None:
        yield "its head was solved, and no body is stated that was whole by then"


def _head_names(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of a head's two tensors, the weight first; None if these are none."""
    try:
        return head_names(names)
    except ValueError:
        return None


def _of_records(predicate: Predicate) -> bool:
    return predicate.scope == PrivacyScope.RECORDS.value


def _wrong_guarantee(predicate: Predicate) -> Iterator[str]:
    stated = predicate.guarantee
    if stated is None:
        return
    try:
        request = read_request(stated)
        expected = build_guarantee(request, predicate.facts.parameters, predicate.noise, predicate.rounds)
    except (ValueError, ArithmeticError) as refusal:
        yield f"its guarantee cannot be: {_in_a_line(refusal)}"
        return
    if not _close(stated, expected):
        yield "epsilon, delta, mu, the other epsilons and the attack power do not follow from one another"
    if predicate.rounds is not None and predicate.rounds.mu > request.mu * (1 + _CLOSE):
        yield f"the clients' mu is {predicate.rounds.mu:g}, and (epsilon, delta) allows {request.mu:g}"


def _wrong_noise(predicate: Predicate, mode: Mode) -> Iterator[str]:
    if mode in (Mode.STRICT, Mode.INSTANCE) and predicate.noise is None and predicate.rounds is None:
        yield f"the mode {mode.value} without noise cannot be"
    if mode in (Mode.EXACT, Mode.HEURISTIC) and predicate.rounds is not None:
        yield f"noise in every round does not belong to the mode {mode.value}"
    if predicate.noise is not None:
        seeded = mode in (Mode.HEURISTIC, Mode.EXACT) and predicate.noise.source == SEED
        least, most = sigma_limits()
        if not (seeded or is_public_sigma(predicate.noise.sigma)):
            yield f"its noise, {predicate.noise.sigma!r}, is not on the public list"
        elif not least <= predicate.noise.sigma <= most:
            yield f"its noise, {predicate.noise.sigma!r}, cannot be drawn"
        sources = (NOISE_SOURCE, SEED) if mode in (Mode.HEURISTIC, Mode.EXACT) else (NOISE_SOURCE,)
        if predicate.noise.grid != GRID or predicate.noise.source not in sources:
            yield "its noise lies on another grid, or comes from somewhere else, than a certificate allows"
    stated = predicate.rounds
    if stated is None:
        return
    if predicate.noise is not None:
        yield "noise on the model and noise in every round do not go together"
    if not is_public_sigma(stated.sigma):
        yield f"the noise of its rounds, {stated.sigma!r}, is not on the public list"
    rounds, counted = stated.rounds, stated.participations
    try:
        expected = describe_noised_rounds(stated.sigma, stated.clip, stated.denominator, rounds, counted)
        if not _close(stated, expected):
            yield "z and the clients' mu do not follow from noise, clip, denominator and participation"
    except (ValueError, ArithmeticError) as refusal:
        yield f"the noise of its rounds cannot be: {_in_a_line(refusal)}"
    # Who was forgotten before, and counts in a sequence, is not on this certificate.
    most = counted if predicate.scope == PrivacyScope.SEQUENCE.value else rounds * len(predicate.forgotten) ** 2
    if rounds < 1 or not 1 <= counted <= most:
        yield "so many clients cannot have taken part so often in so many rounds"


def _wrong_training(predicate: Predicate, mode: Mode) -> Iterator[str]:
    stated = predicate.training
    try:
        loss = _loss(predicate)
        training = replace(
            _read_training(stated, loss),
            proximal=stated.proximal,
            server_learning_rate=stated.server_learning_rate,
        )
        expected = describe_training(training)
    except (ValueError, ArithmeticError) as refusal:
        yield f"its training cannot be: {_in_a_line(refusal)}"
        return
    if training.is_solved and not _is_of_ridge(predicate, mode):
        yield "a ridge head is solved over everybody's rows, without noise, and it says otherwise"
    if stated.steps is None and loss.curvature is not None and not training.is_solved:
        yield "it states a curvature, and not the steps and the learning rate that it is for"
    if not _close(stated, expected):
        yield "B and its power do not follow from the stated training"
    declared = predicate.facts.sources.training == Source.DECLARED.value and predicate.rounds is None
    if mode in (Mode.INSTANCE, Mode.STRICT) and declared and training.precision == "float32":
        yield "in float32, by code of the clients' own, nothing is proven: what its rounding adds is not known"
    if mode is Mode.INSTANCE and training.obstacles and predicate.rounds is None:
        yield f"the stated training has no proven guarantee: {training.obstacles[0]}"
    if mode is Mode.STRICT and predicate.rounds is None:
        try:
            HeadBound.of(training, 0.0, predicate.facts.parameters, predicate.facts.batch or 1)
        except (ValueError, ArithmeticError) as refusal:
            yield f"the stated training has no strict guarantee: {_in_a_line(refusal)}"


def _read_training(stated: Training, loss: Loss) -> LocalTraining:
    if isinstance(loss, SquaredL2):
        return LocalTraining.solved(loss, stated.precision)
    if stated.steps is None or stated.learning_rate is None:
        return replace(LocalTraining.own_code(stated.precision), loss=loss)
    return LocalTraining(stated.steps, stated.learning_rate, loss, precision=stated.precision)


def _can_be_drawn(facts: RecordedFacts) -> bool:
    """Return whether a kind of sampling and its rate, size or share go together."""
    if facts.sampling == "everybody" or facts.sample is None:
        return facts.sampling == "everybody" and facts.sample is None
    if facts.sampling == "fixed_size":
        return facts.sample >= 1 and facts.sample.is_integer()
    return facts.sample <= 1 if facts.sampling == "poisson" else facts.sample < 1


def _can_be_solved(predicate: Predicate) -> bool:
    """Return whether a head was trained that our helper can sum over, and the facts say that it was solved."""
    facts, training = predicate.facts, predicate.training
    head = bool(facts.stages) or (training.loss in (*_HEADS, "SquaredL2") and (training.l2 or 0) > 0)
    return head and facts.solved and _can_be_summed(predicate)


def _can_be_summed(predicate: Predicate) -> bool:
    """Return whether it is about a head, and about rounds in which every client's own sums were seen."""
    facts = predicate.facts
    masked = facts.sources.distances == say(predicate.version, Source.REPORTED.value)
    head = _head_names(facts.stages.head if facts.stages else predicate.trained) is not None
    return head and not (masked or facts.equal_weights or predicate.rounds)


def _is_of_ridge(predicate: Predicate, mode: Mode) -> bool:
    """Return whether nothing is stated beside a ridge head that there cannot be."""
    facts = predicate.facts
    return (
        mode in (Mode.EXACT, Mode.HEURISTIC)
        and (facts.sampling, facts.batch, facts.stages) == ("everybody", None, None)
        and facts.sources.training == Source.EXECUTED.value
        and _can_be_summed(predicate)
    )


def _loss(predicate: Predicate) -> Loss:
    stated = predicate.training
    if stated.loss in _HEADS and stated.l2 is not None and stated.row_norm is not None:
        return _HEADS[stated.loss](stated.l2, stated.row_norm)
    if stated.loss == "SquaredL2" and stated.l2 and stated.row_norm and (ridge := stated.ridge) is not None:
        limits = ridge.target_norm, ridge.most_rows, ridge.most_clients
        return SquaredL2(stated.l2, stated.row_norm, *limits, ridge.l2_choices or ())
    if stated.loss == "DeclaredLoss" and stated.curvature is not None:
        return DeclaredLoss(Curvature(*stated.curvature), stated.gradient_bound)
    if stated.loss == "NetworkLoss" and stated.curvature is None:
        return NetworkLoss(stated.gradient_bound)
    raise ValueError(f"the loss {stated.loss!r} is not stated in full, or not known")


def _check_model(statement: Statement, path: Path, history: History | None) -> tuple[list[str], list[str]]:
    """Compare a safetensors file, its trained and its frozen tensors each, with what the certificate is about.

    Returns:
        what holds: that it is the model, or that the history shows how it was trained on from it; and what the file
            says otherwise of itself.
    """
    predicate = statement.predicate
    try:
        remarks, (trained, frozen) = read_remarks(path), read_parts(path, predicate.trained)
    except HistoryError as damaged:
        raise ModelMismatchError(str(damaged)) from damaged
    holds, own = "the model at hand is the one that it is about", digest(trained)
    if set(trained) != set(predicate.trained) or own != statement.subject[0].digest.sha256:
        descendant = None if history is None else _find_descendant(predicate, history, own)
        if descendant is None:
            raise ModelMismatchError(
                f"{path} is not the model that this certificate is about; if it was trained on from that one, the "
                f"history shows it, and a certificate of its own can be issued{_quote(predicate, remarks, own)}"
            )
        holds = (
            f"the model at hand is {descendant}, which was trained on without the forgotten from the one that it is "
            f"about, {read_model_id(predicate)}"
        )
    if (digest(frozen) if frozen else None) != predicate.frozen:
        raise ModelMismatchError(f"the tensors in {path} that are never trained are not those of the certificate")
    if sum(tensor.size for tensor in trained.values()) != predicate.facts.parameters:
        raise ModelMismatchError(f"{path} has another number of parameters than the certificate says")
    # The file's tensors are the right ones, whatever it says of itself.
    expected = {RUN: predicate.run, DIGEST: own}
    odd = [
        f"why the model's file says otherwise of itself: it names another {name.removeprefix('rescind.')}, {text}. "
        "Its tensors count, and they are right"
        for name, text in remarks.items()
        if text != expected.get(name, text)
    ]
    if history is not None and HEAD in remarks and not odd:
        try:
            history.timeline_at(bytes.fromhex(remarks[HEAD]))
        except ValueError:
            odd.append(
                f"when the model's file was written: the head that it names, {remarks[HEAD]}, is not in the chain of "
                "the history at hand, which may be an old copy, or rewritten"
            )
    agrees = expected.items() <= remarks.items()
    return [holds, *(["the model's file names the same run and the same tensors"] if agrees else [])], odd


def _quote(predicate: Predicate, remarks: Mapping[str, str], own: str) -> str:
    """Say which model a file of other tensors says it is, if it says so."""
    if RUN not in remarks or MODEL not in remarks:
        return ""
    where = "this run" if remarks[RUN] == predicate.run else f"another run, {remarks[RUN]}"
    false = ", which its tensors are not" if remarks.get(DIGEST, own) != own else ""
    return f". It says of itself that it is model {remarks[MODEL]} of {where}{false}"


def _find_descendant(predicate: Predicate, history: History, model: str) -> ModelId | None:
    """Return the later model of this digest for which the claim holds as well; ``None`` if there is none."""
    certified, outcome = read_model_id(predicate), outcome_of(history.timeline, predicate.request)
    covered = find_covered(history, outcome, history.head)
    later = [model_id for model_id in covered if model_id.branch == certified.branch]
    descendant = find_by_digest(history, [model_id for model_id in later if model_id.round > certified.round], model)
    if descendant is None or any(find_weakened(predicate, history)):
        return None
    return None if has_touched(history, history.head, outcome, descendant) is not False else descendant


def _check_history(statement: Statement, history: History, witnessed: Collection[bytes]) -> list[str]:
    """Compare a certificate with what the history said at the signed head; return what cannot be told any more."""
    predicate, head = statement.predicate, bytes.fromhex(statement.subject[1].digest.sha256)
    if history.identifier != predicate.run:
        raise HistoryMismatchError("it is about another history")
    problems = history.integrity.verify({head, *witnessed})
    if problems:
        raise HistoryMismatchError(f"the history is broken: {problems[0]}")
    try:
        # Evidence is in no history.
        model_id = read_model_id(predicate)
        expected, model = gather_claims(
            history, predicate.request, head, predicate.evidence, model_id, predicate.version
        )
    except ValueError as refusal:
        raise HistoryMismatchError(str(refusal)) from refusal
    if model is not None and model != statement.subject[0].digest.sha256:
        raise HistoryMismatchError(f"the history says that request {predicate.request} led to another model")
    names = Predicate.model_fields
    different = [name for name in names if not _close(getattr(expected, name), getattr(predicate, name))]
    if different:
        raise HistoryMismatchError(f"the history says something else about {', '.join(different)}")
    timeline = history.timeline_at(head)
    outcome = outcome_of(timeline, predicate.request)
    knows_them = False if outcome.mode is Mode.HEURISTIC else has_touched(history, head, outcome, model_id)
    for wrong in find_unfounded(timeline, outcome, knows_them):
        raise HistoryMismatchError(wrong)
    unchecked = [f"its times: {sentence}" for sentence in find_steps_back(history.integrity.entry_times(head))]
    if not model:
        unchecked.append(f"whether its model is the history's {model_id}: that round was erased since")
    if knows_them is None:
        unchecked.append(
            "that nobody of the forgotten took part on the way to its model: these rounds were erased since"
        )
    if history.integrity.secret_problem() is not None:
        unchecked.append(
            "that no erased name is known again and nobody added an entry: the history's secret file is not at hand"
        )
    return unchecked


def _describe_approval(approved: Approval) -> str:
    """Say what a history that says the same shows of the approval."""
    # Whoever states the approval from the history has checked its signature there.
    checked = ": the signature holds; whose key it is, this does not tell" if approved.key else ""
    day, approver = approved.time[:10], describe_approver(approved)
    return f"that the request was approved on {day} is recorded there, {approver}{checked}"


def _recompute(statement: Statement, history: History) -> tuple[list[str], list[str]]:
    """Solve the head once more from kept sums, if they are kept; return what holds, and what cannot be told any more.

    Raises:
        HistoryMismatchError: the recorded model is not what follows from them.
    """
    predicate = statement.predicate
    if not predicate.facts.keeps_sums:
        return [], []
    try:
        solved = history.sums.solve_again(read_model_id(predicate), history.models)
    except BrokenHistoryError as broken:
        raise HistoryMismatchError(str(broken)) from broken
    if isinstance(solved, str):
        return [], [f"whether its head follows from the participants' sums: {solved}"]
    extent = "bit by bit" if not solved.apart else f"to within {format_at_most(solved.apart)} of each other"
    return [
        f"its head is the solution for the kept sums of the {solved.clients} participants that its round names: "
        f"solved once more here, {extent}, at most {format_at_most(solved.error)} from the exact one"
    ], []


def _own_annex(history: History, statement: Statement) -> Annex:
    try:
        return annex_of(history, statement)
    except ValueError as refusal:
        raise HistoryMismatchError(f"the history does not bear the certificate: {refusal}") from refusal


def _is_enough(statement: Statement, own: Annex | None) -> bool:
    """Return whether the history's own annex still has the numbers by which the noise suffices, and they say so."""
    if own is None:
        return False
    told, granted = own.predicate.restart, statement.predicate.guarantee
    if told is None or told.hidden is None or granted is None:
        return False
    if not told.hidden.mu <= granted.mu / math.sqrt(granted.releases) * (1 + _CLOSE):
        raise InconsistentCertificateError("the noise does not hide what the history says it has to")
    return True


def _took_part_as_stated(statement: Statement, history: History | None) -> bool:
    """Return whether the history still has the rounds from which the clients' participation is counted, as stated."""
    predicate, rounds = statement.predicate, statement.predicate.rounds
    if history is None or rounds is None:
        return False
    timeline = history.timeline_at(bytes.fromhex(statement.subject[1].digest.sha256))
    outcome = outcome_of(timeline, predicate.request)
    parent, groups = outcome.restart.branch.parent if outcome.restart else None, groups_of(timeline, outcome.asked)
    path = None if parent is None else find_path(history, parent, groups)
    if parent is None or path is None:
        return False
    counted = max(float(participations(path.edges, group)[path.index[parent]]) for group in groups)
    if math.isinf(counted):
        return False
    # Of rounds that were erased since, only the most that it can be is known.
    erased = any(isinstance(edge, ErasedStretch) for edge in path.edges)
    if counted < rounds.participations or (counted > rounds.participations and not erased):
        raise InconsistentCertificateError("the history's rounds tell another participation of the forgotten clients")
    return counted == rounds.participations


def _close(one: object, other: object) -> bool:
    """Return whether two parts say the same, numbers within rounding."""
    if isinstance(one, BaseModel) and type(one) is type(other):
        return all(_close(getattr(one, name), getattr(other, name)) for name in type(one).model_fields)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=0.0)
    return one == other
