"""What would hold if nothing spoke against it: for whoever reads a report. No certificate states it."""

from __future__ import annotations

from dataclasses import dataclass

from rescind.certificates.annex import build_annex
from rescind.certificates.predicate import Statement
from rescind.core.calibration import reached_epsilon
from rescind.core.facts import Mode, PrivacyScope
from rescind.history.history import History
from rescind.history.outcomes import outcome_of

_HIDDEN = {
    PrivacyScope.INDIVIDUAL: "each of the clients alone",
    PrivacyScope.GROUP: "the clients together",
    PrivacyScope.SEQUENCE: "everybody forgotten so far together",
}


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
            f"within epsilon {self.epsilon:.4g} and delta {self.delta:g}. That is a condition and no claim."
        )


def find_condition(history: History, report: Statement) -> Condition | None:
    """Return what a report's noise would promise if its reasons against a claim were not there.

    Args:
        history: where the request was served.
        report: what the history says of it.

    Returns:
        the condition; None for a certificate, or where no noise was to hide anybody.
    """
    if report.predicate.mode != Mode.HEURISTIC.value:
        return None
    timeline = history.timeline_at(bytes.fromhex(report.subject[1].digest.sha256))
    outcome = outcome_of(timeline, report.predicate.request)
    if not outcome.noise:
        return None
    restart, request = build_annex(history, report).predicate.restart, outcome.asked.request
    hidden = None if restart is None else restart.hidden
    mu = request.mu if hidden is None else hidden.mu
    return Condition(
        epsilon=reached_epsilon(mu, request.budget.delta),
        delta=request.budget.delta,
        sigma=outcome.noise,
        sensitivity=None if hidden is None else hidden.sensitivity,
        scope=request.scope,
    )
