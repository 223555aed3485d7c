"""From an outcome in a history to the statement that is signed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence

from rescind.certificates.predicate import (
    CERTIFICATE_TYPE,
    REPORT_TYPE,
    STATEMENT_TYPE,
    Assumption,
    EpsilonAt,
    Erasure,
    Evidence,
    Guarantee,
    Noise,
    PowerAt,
    Predicate,
    Sha256,
    Statement,
    Subject,
    Training,
)
from rescind.core.calibration import attack_power, largest_mu, reached_epsilon
from rescind.core.facts import DpFedAvg, Facts, Mode, Scope, Source
from rescind.core.regularity import LogisticL2, SoftmaxL2, expansion
from rescind.core.training import LocalTraining
from rescind.history.codec import encode
from rescind.history.commitments import canonical
from rescind.history.history import History
from rescind.history.ledger import Journal, Ledger, Until
from rescind.history.outcomes import Claim, Outcome, claimed
from rescind.history.path import branches
from rescind.history.records import Span

# At these every certificate states what it is worth, whatever was asked for.
DELTAS = (1e-3, 1e-5, 1e-6, 1e-9)
FALSE_POSITIVE_RATES = (0.001, 0.01)
# What hides in DP-FedAvg, where a restart needs no noise of its own.
NOISED_ROUNDS = "updates are clipped and noised in every round"
NOISE_SOURCE = "the operating system's generator, through ChaCha20; drawn once, kept nowhere"

TITLES = {
    Mode.EXACT: "Certificate of forgetting",
    Mode.STRICT: "Certificate of forgetting",
    Mode.INSTANCE: "Certificate of forgetting",
    Mode.HEURISTIC: "Report on an attempt to forget. This is not a certificate: nothing is proven",
}
CLAIMS = {
    Mode.EXACT: "The released model was never computed from these clients' data.",
    Mode.STRICT: (
        "Whatever the data are, the released model is (epsilon, delta)-indistinguishable from one that never saw "
        "these clients."
    ),
    Mode.INSTANCE: (
        "For this federation, and with the chosen round and noise level taken as constants, the released model is "
        "(epsilon, delta)-indistinguishable from one that never saw these clients."
    ),
    Mode.HEURISTIC: "Nothing is claimed.",
}
SCOPES = {
    Scope.INDIVIDUAL: "each of the clients alone is hidden, not their leaving together",
    Scope.GROUP: "all clients of the request are hidden together",
    Scope.SEQUENCE: "all clients of this request and of those that were served before it are hidden together",
}
NOT_CLAIMED = (
    "that models which were released before the request are called back",
    "that copies of data or models elsewhere, such as backups, are erased",
    "that the guarantee holds for requests which were chosen by looking at released models",
    "that anybody is anonymous, or that it is hidden that the clients once took part",
    "anything about single records of a client: whole clients are forgotten",
)


def statement(
    history: History, number: int, *, head: bytes | None = None, evidence: Sequence[Evidence] = ()
) -> Statement:
    """Give the statement about a request that was served to the end, at a head of the chain, the last unless told."""
    head = head or history.head
    predicate, model = stated(history, number, head, evidence)
    if model is None:
        raise ValueError(f"the model that request {number} led to then was erased since: certify it anew")
    return Statement(
        type_=STATEMENT_TYPE,
        subject=(
            Subject(name="model", digest=Sha256(sha256=model)),
            Subject(name="head of the history", digest=Sha256(sha256=head.hex())),
        ),
        predicate_type=REPORT_TYPE if predicate.mode == Mode.HEURISTIC.value else CERTIFICATE_TYPE,
        predicate=predicate,
    )


def stated(
    history: History, number: int, head: bytes, evidence: Sequence[Evidence] = ()
) -> tuple[Predicate, str | None]:
    """Give what a history said of a request at a head, and the model's digest: ``None`` if that was erased since.

    What came after that head changes nothing of it.
    """
    facts, journal = history.run.facts, journal_at(history.ledger, head)
    claim = claimed(journal, number)
    outcome, asked, mode = claim.outcome, claim.asked, claim.mode
    # What was settled without a restart hides nobody else.
    scope = Scope.GROUP if asked.settled and asked.request.scope is Scope.SEQUENCE else asked.request.scope
    predicate = Predicate(
        title=TITLES[mode],
        version=1,
        run=history.ledger.identifier(),
        request=asked.number,
        asked=asked.time,
        deadline=asked.deadline,
        forgotten=asked.forgotten,
        mode=mode.value,
        claim=CLAIMS[mode],
        scope=scope.value,
        counterfactual=f"{facts.sampling.value}; {SCOPES[scope]}",
        sampling=f"{facts.sampling.name.lower()}" + (f", {facts.sample:g}" if facts.sample is not None else ""),
        guarantee=guarantee(asked.request.budget.epsilon, asked.request.budget.delta, asked.request.releases)
        if mode in (Mode.STRICT, Mode.INSTANCE)
        else None,
        noise=_noise(history, claim) if claim.noise else None,
        trained=tuple(name for name, _, _ in history.run.tensors),
        frozen=facts.frozen or None,
        training=training_part(facts.training),
        assumptions=tuple(_assumptions(facts, mode)),
        erasure=Erasure(
            level=outcome.erasure.level.value,
            completed=outcome.completed,
            log=deletion_digest(*deletion_log(history.ledger, outcome)),
            stays=outcome.erasure.stays,
            unreachable=outcome.left,
        ),
        not_claimed=NOT_CLAIMED,
        reasons=_reasons(claim) if mode is Mode.HEURISTIC else (),
        evidence=tuple(evidence),
    )
    return predicate, claim.model or _newest_model(history.ledger, journal)


def journal_at(ledger: Ledger, head: bytes) -> Journal:
    """Give the journal as it was at a head of the chain."""
    for entry in ledger.entries():
        if entry.head == head:
            return Until(ledger, entry.sequence)
    raise ValueError(f"the head {head.hex()} is not in the chain of this history")


def deletion_log(ledger: Ledger, outcome: Outcome) -> tuple[bytes, bytes]:
    """Give the salt of the list of what was erased, which is the run's own, and the list itself."""
    listed = canonical(encode(outcome.erasure))
    return hmac.digest(ledger.secret("deletion log"), listed, "sha256"), listed


def deletion_digest(salt: bytes, listed: bytes) -> str:
    """Commit to the list of what was erased, under its salt: the list itself tells too much."""
    return hashlib.sha256(salt + listed).hexdigest()


def _newest_model(ledger: Ledger, journal: Journal) -> str | None:
    """Give the digest of the model that was the newest then, as far as its round is still there."""
    known = branches(journal)
    branch = known[max(known)]
    rounds = [entry.place.round for entry in journal.entries("round") if entry.place.branch == branch.number]
    if not rounds:
        return branch.model
    found = ledger.rounds(Span(branch.number, rounds[-1], rounds[-1]))
    return next((round_.model for round_ in found), None)


def _reasons(claim: Claim) -> tuple[str, ...]:
    return (claim.planned.candidate.obstacles if claim.planned else ()) or (
        "a later restart used something that no bound covers",
    )


def guarantee(epsilon: float, delta: float, releases: int) -> Guarantee:
    """Give all that follows from what was asked for."""
    mu = largest_mu(epsilon, delta)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        releases=releases,
        epsilons=tuple(EpsilonAt(delta=each, epsilon=reached_epsilon(mu, each)) for each in DELTAS),
        powers=tuple(
            PowerAt(false_positive_rate=rate, true_positive_rate=attack_power(mu, rate))
            for rate in FALSE_POSITIVE_RATES
        ),
    )


def _noise(history: History, claim: Claim) -> Noise:
    source = (
        NOISE_SOURCE if history.run.facts.secret_noise else "a seed: whoever has it can take the noise away again"
    )
    return Noise(sigma=claim.noise, grid=history.run.grid, source=source)


def training_part(training: LocalTraining) -> Training:
    """Give the training as a certificate states it."""
    loss, curvature = training.loss, training.loss.curvature
    head = loss if isinstance(loss, SoftmaxL2 | LogisticL2) else None
    return Training(
        loss=type(loss).__name__,
        l2=None if head is None else head.l2,
        row_norm=None if head is None else head.row_norm,
        curvature=None if curvature is None else (curvature.low, curvature.high),
        learning_rate=training.learning_rate,
        steps=training.steps,
        proximal=training.proximal,
        server_learning_rate=training.server_learning_rate,
        precision=training.precision,
        expansion=None if curvature is None else expansion(curvature, training.learning_rate),
        factor=None if curvature is None else training.factor(),
    )


def _assumptions(facts: Facts, mode: Mode) -> Iterator[Assumption]:
    """Say what a claim rests on, the weakest word for each."""

    def by(what: str, source: Source) -> Assumption:
        return Assumption(what=what, basis=source.value)

    yield by("who the clients are", facts.sources.identity)
    yield by("who took part in which round", Source.CHECKED)
    yield by("the first model is public and depends on nobody's data", Source.DECLARED)
    if facts.frozen:
        yield by(f"the tensors that are never trained, SHA-256 {facts.frozen}, are public", Source.DECLARED)
    yield by("who could be reached in a round did not depend on the forgotten clients", facts.sources.reachable)
    if mode is Mode.EXACT:
        yield by("clients keep nothing of one line of training for another", Source.DECLARED)
        return
    yield by("clients execute the stated training, each with randomness of its own", facts.sources.training)
    if isinstance(facts.public, DpFedAvg):
        yield by(NOISED_ROUNDS, Source.CHECKED)
    elif isinstance(facts.training.loss, SoftmaxL2 | LogisticL2):
        yield Assumption(what="the loss's curvature, and with it B", basis="proven")
    else:
        yield by("the loss's curvature, and with it B", Source.DECLARED)
    yield by("how far every participant was from the mean of its round", facts.sources.distances)
    yield by("requests were not chosen by looking at released models", Source.DECLARED)
    yield Assumption(what="what floating point adds in a round stays below its term", basis="measured")
    yield by("the noise was drawn as stated, once", Source.CHECKED)
