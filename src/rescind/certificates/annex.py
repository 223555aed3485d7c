"""The operator's annex: what a certificate may not tell, because it was computed from the leaver's data.

Sigma times the realised mu is Psi, so an annex is kept private; whoever may see it can check the certificate by it.
Of the same numbers a report's reader is told what would hold if nothing spoke against it; no certificate states that.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from rescind.certificates.errors import AnnexMismatchError
from rescind.certificates.issue import deletion_digest, deletion_log, describe_drawn
from rescind.certificates.models import find_path
from rescind.certificates.predicate import STATEMENT_TYPE, Count, Digest, InToto, Part, Sha256, Statement, Words
from rescind.certificates.wording import format_at_most
from rescind.core.calibration import DELTA_RANGE, reached_epsilon
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.sensitivity import group_sensitivity
from rescind.core.strict import strict_sensitivity
from rescind.core.summary import RESERVE
from rescind.history.codec import decode, encode
from rescind.history.history import History
from rescind.history.outcomes import Outcome, groups_of, outcome_of
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import canonical
from rescind.ledger.records import ErasurePlan

ANNEX_TYPE: Final = "urn:rescind:annex-of-the-operator:1"
TITLE = "Annex of the operator. Keep it private: it tells about the data of the forgotten clients"
_NO_NOISE = "no noise of this restart has to hide these clients"
_ERASED = "the numbers that it was computed from are erased, as they should be"
_HIDDEN = {
    PrivacyScope.INDIVIDUAL: "each of the clients alone",
    PrivacyScope.GROUP: "the clients together",
    PrivacyScope.SEQUENCE: "everybody forgotten so far together",
}

NotNegative = Annotated[float, Field(ge=0)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
# The list of what was erased, in the very characters that the certificate's digest is of.
Log = Annotated[str, Field(min_length=2, max_length=1024 * 1024)]


class Hidden(Part):
    """How much the noise had to hide: Psi of the clients in the restart's model, and the realised mu, Psi / sigma."""

    sensitivity: NotNegative
    mu: NotNegative


class Restart(Part):
    """Where training went back to, and why there.

    ``branch`` began at ``round`` (the paper's T) of ``of_branch``, and ``rounds`` were trained after it.
    ``rechecked`` counts the clients of each earlier group that the noise hides as well. ``hidden`` is ``None`` where
    it cannot be told, and ``unknown`` says why.
    """

    branch: Count
    of_branch: Number
    round: Number
    rounds: Number
    method: Words
    sigma: NotNegative
    predicted_rounds: NotNegative
    rechecked: tuple[Count, ...]
    releases_mu: NotNegative
    declared: tuple[Words, ...]
    obstacles: tuple[Words, ...]
    hidden: Hidden | None
    unknown: Words | None


class AnnexPredicate(Part):
    """What belongs to one certificate; ``restart`` is ``None`` where a request was served without one.

    SHA-256 of ``salt`` and ``log`` is the certificate's digest of the deletion log.
    """

    title: Words
    version: Literal[1]
    run: Words
    request: Count
    restart: Restart | None
    salt: Digest
    log: Log


class CertificateSubject(Part):
    """The certificate, by the SHA-256 of its payload, which does not change when another signs it."""

    name: Literal["payload of the certificate"]
    digest: Sha256


class Annex(InToto):
    """An in-toto Statement, version 1, about a certificate."""

    called = "an annex"

    subject: tuple[CertificateSubject]
    predicate_type: Literal["urn:rescind:annex-of-the-operator:1"] = Field(alias="predicateType")
    predicate: AnnexPredicate


@dataclass(frozen=True, slots=True)
class Condition:
    """What noise would promise if the bound held that it was chosen by.

    Attributes:
        epsilon: what the noise would reach, at ``delta``.
        delta: the delta that was asked for.
        sigma: the noise.
        sensitivity: what it has to hide by that bound (Psi); None where the numbers for it are erased.
        scope: whose removal would be hidden.
    """

    epsilon: float
    delta: float
    sigma: float
    sensitivity: float | None
    scope: PrivacyScope

    def __str__(self) -> str:
        psi = "" if self.sensitivity is None else f" (Psi {self.sensitivity:.4g})"
        return (
            f"If none of these reasons were true, noise of {self.sigma:g} would hide {_HIDDEN[self.scope]}{psi} "
            f"within epsilon {format_at_most(self.epsilon)} and delta {self.delta:g}. That is a condition, and no "
            "claim."
        )


def build_annex(history: History, certificate: Statement) -> Annex:
    """Return the annex of a certificate that this history gave."""
    predicate = certificate.predicate
    timeline = history.timeline_at(bytes.fromhex(certificate.subject[1].digest.sha256))
    outcome = outcome_of(timeline, predicate.request)
    salt, log = deletion_log(history, outcome, timeline)
    return Annex(
        type_=STATEMENT_TYPE,
        subject=(_subject(certificate),),
        predicate_type=ANNEX_TYPE,
        predicate=AnnexPredicate(
            title=TITLE,
            version=1,
            run=predicate.run,
            request=predicate.request,
            restart=_restart(history, timeline, outcome),
            salt=salt.hex(),
            log=log.decode(),
        ),
    )


def check_annex(annex: Annex, certificate: Statement) -> None:
    """Compare an annex with a certificate; ``AnnexMismatchError`` says what does not fit."""
    told, certified = annex.predicate, certificate.predicate
    if annex.subject[0] != _subject(certificate) or (told.run, told.request) != (certified.run, certified.request):
        raise AnnexMismatchError("the annex belongs to another certificate")
    if told.title != TITLE:
        raise AnnexMismatchError("the annex has another title than an annex has")
    if deletion_digest(bytes.fromhex(told.salt), told.log.encode()) != certified.erasure.log:
        raise AnnexMismatchError("the annex has another deletion log than the certificate names")
    _check_log(told.log, certificate)
    restart = told.restart
    hidden = None if restart is None else restart.hidden
    if restart is not None and (restart.hidden is None) is (restart.unknown is None):
        raise AnnexMismatchError("the annex tells how much the noise had to hide, or why not, and not both")
    if hidden is not None and (certified.noise is None or certified.mode == Mode.EXACT.value):
        raise AnnexMismatchError("the annex tells of hiding by noise, and the certificate has none that hides")
    if certified.noise is not None and (restart is None or restart.sigma != certified.noise.sigma):
        raise AnnexMismatchError("the annex has another noise than the certificate")
    if restart is None or hidden is None:
        return
    if not math.isclose(hidden.mu, hidden.sensitivity / restart.sigma, rel_tol=1e-9):
        raise AnnexMismatchError("the annex's realised mu does not follow from its sensitivity and noise")
    # The guarantee covers all its releases together, and this is one of them.
    most = None if certified.guarantee is None else certified.guarantee.mu / math.sqrt(certified.guarantee.releases)
    if most is not None and hidden.mu > most:
        raise AnnexMismatchError(f"its mu is {hidden.mu:g}, more than the certificate allows, {most:g}")


def _check_log(log: str, certificate: Statement) -> None:
    """Compare a deletion log with the certificate that names its digest: a signer may have signed what it is not."""
    certified = certificate.predicate
    try:
        plan = decode(ErasurePlan, json.loads(log))
        told = (canonical(encode(plan)).decode(), plan.level.value, plan.stays, certified.request in plan.requests)
        clients = len(set(plan.clients))
    except (ValueError, RecursionError) as unreadable:
        raise AnnexMismatchError("the annex's deletion log is none that rescind writes") from unreadable
    if told != (log, certified.erasure.level, certified.erasure.stays, True) or clients < len(certified.forgotten):
        raise AnnexMismatchError(
            "the annex's deletion log says something else than the certificate about what was erased"
        )


def is_same_annex(annex: Annex, expected: Annex) -> bool:
    """Return whether an annex says what a history gives, or gave before numbers behind it were erased."""
    told, restart = annex.predicate, expected.predicate.restart
    if restart is not None and restart.unknown == _ERASED and told.restart is not None:
        erased = told.restart.model_copy(update={"hidden": None, "unknown": _ERASED})
        annex = annex.model_copy(update={"predicate": told.model_copy(update={"restart": erased})})
    return annex == expected


def find_condition(history: History, report: Statement) -> Condition | None:
    """Return what a report's noise would promise if its reasons against a claim were not there.

    Args:
        history: where the request was served.
        report: what the history says of it.

    Returns:
        the condition; None for a certificate, or where no noise was to hide anybody or rounding spends its delta.
    """
    if report.predicate.mode != Mode.HEURISTIC.value:
        return None
    timeline = history.timeline_at(bytes.fromhex(report.subject[1].digest.sha256))
    outcome = outcome_of(timeline, report.predicate.request)
    if not outcome.noise or report.predicate.noise is None:
        return None
    restart, request = build_annex(history, report).predicate.restart, outcome.asked.request
    hidden = None if restart is None else restart.hidden
    # Of all releases together, by the noise as it is really drawn.
    mu = (request.mu if hidden is None else hidden.mu) * math.sqrt(request.releases)
    noise, delta = (
        describe_drawn(report.predicate.facts.parameters, report.predicate.noise, None),
        request.budget.delta,
    )
    kept = max((1 - RESERVE) * delta, DELTA_RANGE[0])
    epsilon, reached = noise.guarantee(reached_epsilon(mu, kept), kept, request.releases)
    if reached > delta:
        return None
    return Condition(
        epsilon=epsilon,
        delta=delta,
        sigma=outcome.noise,
        sensitivity=None if hidden is None else hidden.sensitivity,
        scope=request.scope,
    )


def _subject(certificate: Statement) -> CertificateSubject:
    digest = hashlib.sha256(certificate.payload()).hexdigest()
    return CertificateSubject(name="payload of the certificate", digest=Sha256(sha256=digest))


def _restart(history: History, timeline: Timeline, outcome: Outcome) -> Restart | None:
    basis = outcome.basis
    parent = basis.branch.parent if basis else None
    if basis is None or parent is None:
        return None
    branch, chosen = basis.branch, basis.planned.candidate
    sensitivity = _sensitivity(history, timeline, outcome, parent) if outcome.noise else None
    hidden = None if sensitivity is None else Hidden(sensitivity=sensitivity, mu=sensitivity / branch.sigma)
    return Restart(
        branch=branch.number,
        of_branch=parent.branch,
        round=parent.round,
        rounds=basis.rounds,
        method=basis.planned.method,
        sigma=branch.sigma,
        predicted_rounds=chosen.predicted_rounds,
        rechecked=tuple(len(group) for group in chosen.rechecked),
        releases_mu=chosen.releases_mu,
        declared=chosen.declared,
        obstacles=chosen.obstacles,
        hidden=hidden,
        unknown=None if hidden else _ERASED if outcome.noise else _NO_NOISE,
    )


def _sensitivity(history: History, timeline: Timeline, outcome: Outcome, parent: ModelId) -> float | None:
    """Compute the bound by which the noise hides the clients; ``None`` if the numbers for it are gone."""
    groups = groups_of(timeline, outcome.asked)
    path = find_path(history, parent, groups)
    if path is None:
        return None
    node = path.index[parent]
    if outcome.mode is Mode.STRICT:
        head = history.run.facts.head_bound()
        bounds = [float(strict_sensitivity(path.edges, group, head)[node]) for group in groups]
    else:
        bounds = [float(group_sensitivity(path.edges, group)[node]) for group in groups]
    # Of whom the numbers are erased the bound is infinite.
    return max(bounds) if math.isfinite(max(bounds)) else None
