"""Forgetting where no client has to be there: those who stay are known by the sums that they sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from rescind.certificates.approvals import Approvers, describe_vain
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, PrivacyScope
from rescind.engines.stops import Rounds
from rescind.errors import AskedClientError
from rescind.forgetting import Revocable
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.outcomes import Outcome
from rescind.history.timeline import FiledRequest
from rescind.ledger.records import ErasureLevel
from rescind.methods import Solve
from rescind.serving import ModelFile, find_held
from rescind.views.overview import find_unfinished

_NEXT_RUN = "the federation's next run serves it, with its clients"


@dataclass(frozen=True, slots=True)
class Unattended:
    """An engine that reaches nobody: what it can have is what a history keeps.

    Attributes:
        facts: those of the run.
        first: theta_0^0.
    """

    facts: Facts
    first: Mapping[str, Tensor]

    @property
    def clients(self) -> tuple[str, ...]:
        """Nobody."""
        return ()

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0.

        Returns:
            the tensors by name.
        """
        return dict(self.first)

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse to ask anybody for anything.

        Raises:
            AskedClientError: always.
        """
        raise AskedClientError(f"clients have to be asked: {_NEXT_RUN}")

    draw = train = ridge_sums = refuse

    def measure(self, *_: object, **__: object) -> None:
        """Return nothing: nobody is there who could tell an accuracy."""

    accuracy = test_accuracy = measure


def forget_unattended(
    history: History,
    *,
    level: ErasureLevel = ErasureLevel.PURGE,
    approval: Approvers = False,
    outlet: ModelFile | None = None,
) -> tuple[list[Outcome], dict[int, str]]:
    """Serve the open requests for which no client has to be asked.

    Args:
        history: where the training is recorded.
        level: how much of a forgotten client is erased.
        approval: see ``Revocable.forget``.
        outlet: where the released model goes. Nothing is there while somebody whom it may know waits.

    Returns:
        what became of the requests that were served; and of each that still waits why, by its number.

    Raises:
        AskedClientError: no sums are kept, or a client has to be asked before anything else.
        LockedError: another process is writing to this run.
    """
    if outlet is not None and find_held(history):
        outlet.clear()
    run, begun = history.run, [asked for asked in find_unfinished(history) if asked.branch is not None]
    if not run.facts.keeps_sums:
        raise AskedClientError(f"no sums of clients are kept here: {_NEXT_RUN}")
    if not run.facts.secret_noise:
        raise AskedClientError(f"this federation's noise is made from a seed, which is not here: {_NEXT_RUN}")
    for asked in begun:
        if reason := _find_need(history, asked):
            raise AskedClientError(f"request {asked.number} is being served, and {reason}")
    solving = [history.timeline.plans[asked.number].candidate.solving for asked in begun]
    needs = {number: _find_need(history, asked) for number, asked in history.timeline.open_requests.items()}

    def begin(plan: RecordedPlan) -> None:  # noqa: ARG001
        if outlet is not None:
            outlet.clear()

    federation = Revocable(
        history,
        Unattended(run.facts, history.model(ModelId(0, 0))),
        capacity=run.capacity,
        goal=run.goal,
        planned=begin,
        scored=False,
    )
    method = next((Solve(settings) for settings in solving if settings), Solve())
    only = [number for number, need in needs.items() if need is None]
    served = federation.forget(method, Rounds(1), level=level, approval=approval, only=only)
    if not find_held(history):
        if find_left_out(history):
            federation.solve(asking=())
        if outlet is not None and history.newest in history.timeline.solved:
            outlet.put(history.newest, history.model(history.newest))
    still = history.timeline.open_requests
    return served, {
        number: needs.get(number) or f"somebody has to agree to its plan{describe_vain(history, number, approval)}"
        for number in still
    }


def needs_nobody(history: History, asked: FiledRequest) -> bool:
    """Return whether ``forget_unattended`` can serve a request.

    Args:
        history: where the training is recorded.
        asked: the request.

    Returns:
        whether kept sums are enough for it.
    """
    facts = history.run.facts
    return facts.keeps_sums and facts.secret_noise and _find_need(history, asked) is None


def _find_need(history: History, asked: FiledRequest) -> str | None:
    """Return which client a request needs to be there, in words; None if it needs none."""
    if asked.request.scope is PrivacyScope.RECORDS:
        return f"its client has to send its sums anew: {_NEXT_RUN}"
    if asked.request.group & history.timeline.anchors:
        return f"the anchors that are left have to train the body again: {_NEXT_RUN}"
    stored = [name for name, file in history.sums.digests().items() if file in history.objects]
    if not set(history.participants.remaining(stored)).difference(history.participants.names(asked.request.group)):
        return f"nobody else's sums are there: {_NEXT_RUN}"
    return None


def find_left_out(history: History) -> list[str]:
    """Return whose sums are kept and not in the newest solution, though nothing speaks against it.

    A client that had asked to leave, and took that back, is one.

    Args:
        history: where the training is recorded.

    Returns:
        the names.
    """
    newest, kept = history.newest, history.participants.remaining(list(history.sums.digests()))
    if newest not in history.timeline.solved:
        return []
    return sorted(set(kept).difference(history.participants.took_part(newest)))
