"""What audits found, in the words of a certificate: as measured, never as proof.

The numbers tell about whom the audit was made with. In ``instance`` mode that has to be canaries, not who has left:
beside sigma, how far somebody moved the model is what the certificate keeps to itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rescind.audit.attacks import LowerBound, Power, Recall
from rescind.audit.replay import Comparison
from rescind.certificates.predicate import Evidence, Guarantee


def describe_replay(comparisons: Sequence[Comparison]) -> Evidence:
    """Say what a coupled replay found."""
    above = sum(comparison.violated for comparison in comparisons)
    shares = [comparison.distance / comparison.bound for comparison in comparisons if comparison.bound]
    largest = max(shares, default=0.0)
    return Evidence(
        what="coupled replay: trained again without some clients, on the same secrets",
        found=f"at {above} of {len(comparisons)} models further away than the bound; at most {largest:.0%} of it",
        bound="at none",
    )


def describe_releases(least: LowerBound, guarantee: Guarantee) -> Evidence:
    """Say how well two worlds could be told apart."""
    confidence = 1 - 2 * least.accused_with.risk
    return Evidence(
        what=f"two fixed worlds, {least.accused_with.trials} releases of each judged by the best rule found before",
        found=f"epsilon at least {least.epsilon:.3g}, mu at least {least.mu:.3g} (confidence {confidence:.2%})",
        bound=f"epsilon {guarantee.epsilon:g} at delta {guarantee.delta:g}, mu {guarantee.mu:.3g}",
    )


def describe_membership(powers: Mapping[float, Power], guarantee: Guarantee) -> Sequence[Evidence]:
    """Say whom a membership attack finds, at every rate of wrong accusations."""
    return [
        Evidence(
            what=f"membership attack with shadow federations, set to accuse {rate:.1%} wrongly",
            found=(
                f"finds {power.found.share:.1%} ({power.found.low:.1%} to {power.found.high:.1%}), accuses "
                f"{power.accused.share:.1%} ({power.accused.low:.1%} to {power.accused.high:.1%}) wrongly"
            ),
            bound=f"finds at most {power.allowed(guarantee.mu):.1%}",
        )
        for rate, power in powers.items()
    ]


def describe_watermark(recall: Recall) -> Evidence:
    """Say whether a watermark is still known."""
    released, reference = recall.released, recall.reference
    return Evidence(
        what=f"watermark recall on {released.trials} marked examples",
        found=f"{released.share:.1%} ({released.low:.1%} to {released.high:.1%}), p = {recall.p_value:.2g}",
        bound=f"a model that never saw the mark: {reference.share:.1%}",
    )


def to_json(evidence: Sequence[Evidence]) -> str:
    """Return the content of the file for ``rescind certify --evidence``."""
    return json.dumps([piece.model_dump() for piece in evidence], indent=1) + "\n"
