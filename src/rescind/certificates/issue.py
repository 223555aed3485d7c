"""From an outcome in a history to the statement that is signed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from rescind.certificates.approvals import state_approval
from rescind.certificates.models import find_covered
from rescind.certificates.predicate import (
    STATEMENT_TYPE,
    VERSION,
    Body,
    EpsilonAt,
    Erasure,
    Evidence,
    Guarantee,
    NamedRows,
    Names,
    Noise,
    NoisedRounds,
    PowerAt,
    Predicate,
    PublishedBody,
    RecordedFacts,
    RidgeLimits,
    Sha256,
    Solving,
    Sources,
    Stages,
    Statement,
    Subject,
    Training,
    name_type,
)
from rescind.certificates.wording import NOISE_SOURCE, SEED, say, write_predicate
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg, Facts, Mode, PrivacyScope
from rescind.core.regularity import LogisticL2, Loss, SoftmaxL2, SquaredL2, expansion
from rescind.core.strict import NORM_MISSED, participation_mu
from rescind.core.summary import DrawnNoise, Request
from rescind.core.training import LocalTraining
from rescind.history.codec import encode
from rescind.history.events import RowsNamed
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.lineage import branch_exits, find_body
from rescind.history.outcomes import Outcome, outcome_of
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import canonical
from rescind.ledger.records import Asker, ErasurePlan

# At these every certificate states what it is worth, where that is proven.
DELTAS = (1e-3, 1e-5, 1e-6, 1e-9)
FALSE_POSITIVE_RATES = (0.001, 0.01)
_NOISED = (Mode.STRICT, Mode.INSTANCE)


def build_statement(
    history: History,
    number: int,
    *,
    head: bytes | None = None,
    model_id: ModelId | None = None,
    evidence: Sequence[Evidence] = (),
    version: int = VERSION,
) -> Statement:
    """Return the statement about a request that was served to the end, and about a model.

    Args:
        history: where it was served.
        number: the request's number.
        head: the head of the chain at which it is stated, the last one by default.
        model_id: the model: by default the newest, or while a restart is under way the end of the last finished one.
        evidence: what was measured.
        version: the version of its wording; an older one is for another signature on what is there.

    Returns:
        what is to be signed.

    Raises:
        ValueError: there is no such request, it has not been served to the end, or the claim is not about this model.
    """
    head = head or history.head
    predicate, model = gather_claims(history, number, head, evidence, model_id, version)
    if model is None:
        raise ValueError(
            f"the model that request {number} led to then was erased since: certify it anew. If somebody of it was "
            "readmitted since, no other model is covered: a certificate from before is what there is"
        )
    return Statement(
        type_=STATEMENT_TYPE,
        subject=(
            Subject(name="model", digest=Sha256(sha256=model)),
            Subject(name="head of the history", digest=Sha256(sha256=head.hex())),
        ),
        predicate_type=name_type(predicate),
        predicate=predicate,
    )


def gather_claims(
    history: History,
    number: int,
    head: bytes,
    evidence: Sequence[Evidence] = (),
    model_id: ModelId | None = None,
    version: int = VERSION,
) -> tuple[Predicate, str | None]:
    """Return what a history said of a request at a head, and the model's digest: ``None`` if that was erased since.

    What came after that head changes nothing of it. ``model_id`` and ``version`` are as for ``build_statement``.
    """
    timeline = history.timeline_at(head)
    facts = timeline.facts
    outcome = outcome_of(timeline, number)
    model_ids = find_covered(history, outcome, head)
    if model_id is None:
        # Of the end of a restart the journal has the digest, also when its round is erased.
        erased = history.digest_of(model_ids[-1]) is None
        model_id = outcome.model_id if erased and outcome.model_id else model_ids[-1]
    if model_id not in model_ids:
        raise ValueError(
            f"{model_id} is not among those that request {number} led to: {model_ids[0]} to {model_ids[-1]}"
        )
    asked, mode = outcome.asked, outcome.mode
    if asked.request.scope is PrivacyScope.RECORDS and not asked.settled and not facts.rows_are_named:
        raise ValueError(
            f"request {number} is about rows, and the clients train by code of their own: nothing shows that they "
            "left the rows out, so nothing can be said of it"
        )
    # What was settled without a restart hides nobody else.
    scope = (
        PrivacyScope.GROUP if asked.settled and asked.request.scope is PrivacyScope.SEQUENCE else asked.request.scope
    )
    parameters, body = history.run.parameters, find_body(timeline.branches, timeline.bodies, model_id)
    noise, rounds = _noise(history, timeline, outcome), _rounds(facts, timeline, outcome)
    planned = outcome.basis.planned.candidate.obstacles if outcome.basis else ()
    reasons = (*outcome.contradictions, *planned) or ("a later restart used something that no bound covers",)
    predicate = write_predicate(
        version=version,
        run=history.identifier,
        model=model_id.name,
        names=Names(**asdict(timeline.names)),
        request=asked.number,
        asked=asked.time,
        asked_by=say(version, asked.sender.asker.value),
        signed_request=asked.sender.proof if asked.sender.asker is Asker.KEY else None,
        deadline=asked.deadline,
        first_deadline=asked.first_deadline,
        approved=state_approval(timeline, history.identifier, asked.number),
        forgotten=asked.forgotten,
        rows=tuple(
            NamedRows(client=event.client, root=event.root)
            for _, event in timeline.of(RowsNamed)
            if event.request == asked.number and event.root
        ),
        mode=mode.value,
        scope=scope.value,
        facts=describe_facts(facts, parameters, version),
        guarantee=build_guarantee(asked.request, parameters, noise, rounds) if mode in _NOISED else None,
        noise=noise,
        rounds=rounds,
        trained=tuple(name for name, _, _ in history.run.tensors),
        frozen=facts.frozen or None,
        training=describe_training(facts.training),
        solving=_solving(timeline, outcome),
        # Where the body of a network in two stages was whole, and how many anchors trained it.
        body=None if body is None else Body(model=body.model_id.name, anchors=len(body.clients)),
        erasure=Erasure(
            level=outcome.erasure.level.value,
            # Where the clock was set back meanwhile, when it was asked is the earliest that it can have been.
            completed=max(asked.time, outcome.completed, key=parse_time),
            log=deletion_digest(*deletion_log(history, outcome, timeline)),
            stays=outcome.erasure.stays,
            unreachable=outcome.left,
        ),
        reasons=reasons if mode is Mode.HEURISTIC else (),
        evidence=tuple(evidence),
    )
    return predicate, outcome.model if model_id == outcome.model_id else history.digest_of(model_id)


def deletion_log(history: History, outcome: Outcome, timeline: Timeline) -> tuple[bytes, bytes]:
    """Return the salt of the list of what was erased, which is the run's own, and the list itself."""
    listed = timeline.derive(_list_deletions)[outcome.erasure]
    return hmac.digest(history.secret("deletion log"), listed, "sha256"), listed


def _list_deletions(timeline: Timeline) -> dict[ErasurePlan, bytes]:
    """Return the list of what was erased by each erasure, which may have been for many requests."""
    return {deletion.plan: canonical(encode(deletion.plan)) for deletion in timeline.deletions}


def deletion_digest(salt: bytes, listed: bytes) -> str:
    """Commit to the list of what was erased, under its salt: the list itself tells too much."""
    return hashlib.sha256(salt + listed).hexdigest()


def build_guarantee(request: Request, parameters: int, noise: Noise | None, rounds: NoisedRounds | None) -> Guarantee:
    """Return all that follows from what was asked for and from the noise that hides, as it is really drawn."""
    drawn, budget = describe_drawn(parameters, noise, rounds), request.budget
    if not request.holds(drawn):
        raise ValueError(f"({budget.epsilon:g}, {budget.delta:g}) does not hold for the noise as it is really drawn")
    epsilons = {delta: request.epsilon_at(delta, drawn) for delta in DELTAS}
    return Guarantee(
        epsilon=budget.epsilon,
        delta=budget.delta,
        mu=request.ideal.mu,
        releases=request.releases,
        epsilons=tuple(
            EpsilonAt(delta=delta, epsilon=epsilon) for delta, epsilon in epsilons.items() if epsilon is not None
        ),
        powers=tuple(
            PowerAt(false_positive_rate=rate, true_positive_rate=request.power_at(rate, drawn))
            for rate in FALSE_POSITIVE_RATES
        ),
    )


def read_request(stated: Guarantee) -> Request:
    """Return what was asked for; whom it is about does not matter to the guarantee, and is not on a certificate."""
    return Request(frozenset({1}), Budget(stated.epsilon, stated.delta), releases=stated.releases)


def attack_power_of(predicate: Predicate, false_positive_rate: float) -> float:
    """Return the most that an attack reaches against what a certificate with a guarantee says."""
    if predicate.guarantee is None:
        raise ValueError(f"the mode {predicate.mode} has no guarantee that an attack could be held against")
    drawn = describe_drawn(predicate.facts.parameters, predicate.noise, predicate.rounds)
    return read_request(predicate.guarantee).power_at(false_positive_rate, drawn)


def describe_drawn(parameters: int, noise: Noise | None, rounds: NoisedRounds | None) -> DrawnNoise:
    """Return the noise that hides, as it was drawn."""
    if rounds is not None:
        return DrawnNoise(rounds.sigma, parameters, draws=rounds.rounds or 1)
    if noise is not None:
        return DrawnNoise(noise.sigma, parameters, noise.grid, NORM_MISSED * noise.earlier)
    raise ValueError("neither noise on the model nor noise in every round hides anybody")


def _noise(history: History, timeline: Timeline, outcome: Outcome) -> Noise | None:
    if outcome.basis is None:
        return None
    begun = outcome.basis.branch
    # What hides these clients, or has nobody to hide. Who is hidden by the rounds' noise has nothing of this one.
    sigma = outcome.noise or (begun.sigma if outcome.mode is Mode.EXACT and not begun.hidden else 0.0)
    if not sigma:
        return None
    known = timeline.branches
    cut = branch_exits(known, ModelId(begun.number - 1, 0))
    return Noise(
        sigma=sigma,
        grid=history.run.grid,
        source=NOISE_SOURCE if history.run.facts.secret_noise else SEED,
        earlier=sum(known[model_id.branch].sigma > 0 for model_id in cut),
    )


def _solving(timeline: Timeline, outcome: Outcome) -> Solving | None:
    settings = outcome.basis.planned.candidate.solving if outcome.basis else None
    if settings is None or outcome.basis is None:
        return None
    return Solving(**asdict(settings), solved=outcome.basis.model_id in timeline.solved)


def _rounds(facts: Facts, timeline: Timeline, outcome: Outcome) -> NoisedRounds | None:
    """Return what hides in DP-FedAvg, where a restart needs no noise of its own."""
    branch = outcome.restart.branch if outcome.restart else None
    if (
        not isinstance(facts.public, DpFedAvg)
        or outcome.mode not in _NOISED
        or branch is None
        or branch.parent is None
    ):
        return None
    # Later restarts are from before this one or have only rounds without these clients, so this sum is the largest.
    counted = dict(zip(branch.requests, branch.participations, strict=True))[outcome.asked.number]
    before = sum(model_id.round for model_id in branch_exits(timeline.branches, branch.parent))
    return describe_noised_rounds(facts.public.sigma, facts.public.clip, facts.public.denominator, before, counted)


def describe_noised_rounds(
    sigma: float, clip: float, denominator: float, rounds: int, participations: int
) -> NoisedRounds:
    """Return DP-FedAvg as a certificate states it."""
    multiplier = DpFedAvg(sigma, clip, denominator, True, True, True, True).noise_multiplier
    return NoisedRounds(
        noise_multiplier=multiplier,
        sigma=sigma,
        clip=clip,
        denominator=denominator,
        rounds=rounds,
        participations=participations,
        mu=participation_mu(float(participations), multiplier),
    )


def describe_facts(facts: Facts, parameters: int, version: int = VERSION) -> RecordedFacts:
    """Return the facts as a certificate states them."""
    stages, words = None, {name: getattr(facts.sources, name).value for name in Sources.model_fields}
    if facts.stages is not None:
        loss = facts.stages.loss
        stages = Stages(
            body_rounds=facts.stages.body_rounds,
            head=facts.stages.head,
            loss=cast(Any, type(loss).__name__),
            l2=loss.l2,
            row_norm=loss.row_norm,
            ridge=_describe_ridge(loss),
        )
    return RecordedFacts(
        sampling=cast(Any, facts.sampling.name.lower()),
        sample=None if facts.sample is None else float(facts.sample),
        batch=facts.batch,
        equal_weights=facts.equal_weights,
        solved=facts.solved,
        parameters=parameters,
        stages=stages,
        sources=Sources(**{name: cast(Any, say(version, word)) for name, word in words.items()}),
        body=None if facts.body is None else PublishedBody(name=facts.body.name, digest=facts.body.digest),
        keeps_sums=facts.keeps_sums or None,
    )


def describe_training(training: LocalTraining) -> Training:
    """Return the training as a certificate states it."""
    loss, has_steps = training.loss, training.has_steps
    head = loss if isinstance(loss, SoftmaxL2 | LogisticL2 | SquaredL2) else None
    # A ridge head has no steps that its curvature could be a factor of.
    curvature = None if training.is_solved else loss.curvature
    return Training(
        loss=type(loss).__name__,
        l2=None if head is None else head.l2,
        row_norm=None if head is None else head.row_norm,
        curvature=None if curvature is None else (curvature.low, curvature.high),
        gradient_bound=loss.gradient_bound,
        learning_rate=training.learning_rate if has_steps else None,
        steps=training.steps if has_steps else None,
        proximal=training.proximal,
        server_learning_rate=training.server_learning_rate,
        precision=training.precision,
        expansion=None if curvature is None else expansion(curvature, training.learning_rate),
        factor=None if curvature is None else training.factor(),
        ridge=_describe_ridge(loss),
    )


def _describe_ridge(loss: Loss) -> RidgeLimits | None:
    if not isinstance(loss, SquaredL2):
        return None
    return RidgeLimits(
        target_norm=loss.target_norm,
        most_rows=loss.most_rows,
        most_clients=loss.most_clients,
        l2_choices=loss.l2_choices or None,
    )
