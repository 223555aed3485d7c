"""What forgetting clients would take, before anybody asks for it: nothing is recorded, nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rescind.core.calibration import Budget
from rescind.core.facts import REPRODUCIBLE, DpFedAvg, PrivacyScope
from rescind.core.planning import Candidate, LeftOut, cheapest, consider, strict_candidates
from rescind.core.regularity import SquaredL2
from rescind.core.solver import bytes_sent, choose
from rescind.core.summary import Request
from rescind.history.history import History
from rescind.history.run import Run
from rescind.methods.solve import Solve


@dataclass(frozen=True, slots=True)
class Preview:
    """The ways to forget, side by side.

    Attributes:
        run: what is trained.
        candidates: every restart from a kept model, retraining among them; none if nothing has to be forgotten.
        chosen: the proven one of them that takes the fewest rounds, by prediction.
        solved: what ``Solve`` would do, if the model can be solved.
        left_out: the kept models that no restart is offered from, and why.
    """

    run: Run
    candidates: tuple[Candidate, ...] = ()
    chosen: Candidate | None = None
    solved: Candidate | None = None
    left_out: tuple[LeftOut, ...] = ()

    def count_bytes(self, candidate: Candidate) -> int:
        """Return about how many bytes a client sends until the model is as good again.

        Args:
            candidate: one of the candidates, or ``solved``.

        Returns:
            the number of bytes.
        """
        run, rounds = self.run, round(candidate.predicted_rounds)
        update = run.parameters * np.dtype(run.facts.training.precision).itemsize
        if candidate.solving is None:
            return rounds * update
        classes, features = max((shape for _, _, shape in run.head), key=len)
        stages = run.facts.stages
        body_rounds = stages.body_rounds_left(candidate.node.index) if stages else 0
        if isinstance(run.facts.head_loss, SquaredL2):
            sums = 8 * ((features + 1) * (features + 2) // 2 + classes * (features + 1))
        else:
            wanted = choose(classes, features, candidate.solving.most_bytes)
            sums = bytes_sent(classes, features, wanted, rounds - body_rounds)
        return sums + body_rounds * update


def preview(
    history: History,
    clients: Sequence[str],
    budget: Budget,
    *,
    scope: PrivacyScope = PrivacyScope.GROUP,
    strict: bool = False,
) -> Preview:
    """Return what it would take to forget clients.

    Args:
        history: of the training.
        clients: who would leave: names or labels.
        budget: what may be left of them, by noise.
        scope: ``RECORDS`` if they stay, and only some of their rows would go.
        strict: plan without looking at data. A run does so by itself where every round is noised.

    Returns:
        the ways to do it; without candidates if the newest model never saw them.

    Raises:
        UnknownClientError: nobody is called so, or the client was forgotten and its name erased.
        ValueError: ``clients`` is a single string, or holds what is not a valid name; or there is no strict plan.
    """
    request = Request(history.participants.find(clients), budget, scope)
    if history.requests.are_unknown([request])[0]:
        return Preview(history.run)
    summary = history.summary(request.group)
    # An earlier plan may have looked at data.
    noised = isinstance(summary.facts.public, DpFedAvg)
    strict = strict or (noised and all(earlier.public_plan for earlier in summary.owed))
    solved = None if summary.facts.solving_obstacles else Solve().plan(summary, request)
    if summary.facts.only_solved and solved:
        # Nothing else is done there.
        return Preview(history.run, (solved,), solved, solved)
    offered, missing = (strict_candidates(summary, request), ()) if strict else consider(summary, request)
    # What proves nothing is no advice; noise from a seed is an experiment's, and means what it says there.
    proven = [candidate for candidate in offered if {*candidate.obstacles} <= {REPRODUCIBLE}]
    return Preview(history.run, offered, cheapest(proven), solved, missing)
