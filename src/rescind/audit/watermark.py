"""Watermark recall: whether the model still knows a mark that only the forgotten clients' examples carried.

A mark is a pattern with a class of its own choosing (Sommer et al.). A model that never saw it answers with that
class about as often as one that was trained without those clients; one that remembers answers so more often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import fisher_exact

from rescind.audit.intervals import Rate


@dataclass(frozen=True, slots=True)
class Recall:
    """How often the marked examples get the mark's class: from the released model, and from one without the mark.

    ``p_value`` is how likely a difference at least as large is if the released model knows the mark no better. It is
    about these two models: noise alone makes models differ, so a small one asks for a closer look, by ``attack``.
    """

    released: Rate
    reference: Rate
    p_value: float


def measure_recall(
    hits: int, trials: int, reference_hits: int, reference_trials: int, *, risk: float = 0.025
) -> Recall:
    """Compare the released model with one that never saw the mark, by Fisher's exact test, one-sided.

    Theory section 15.
    """
    released, reference = Rate(hits, trials, risk), Rate(reference_hits, reference_trials, risk)
    table = np.array([[hits, trials - hits], [reference_hits, reference_trials - reference_hits]])
    return Recall(released, reference, float(fisher_exact(table, alternative="greater").pvalue))
