"""How the next model is made where it is not the core's mean of what the server sees."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.edges import NO_BOUND, ModelId
from rescind.core.rounds import RoundResult
from rescind.engines.engine import Engine
from rescind.engines.server import average, norm

if TYPE_CHECKING:
    from rescind.flower.server.engine import FlowerEngine

_LOG = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True, eq=False)
class DelegatedServer:
    """A strategy of the user's that is no mean, FedAdam or a median for instance, makes the model.

    Distances are measured as ever, and bound nothing: the training's ``server_optimizer`` says so.
    """

    flower: FlowerEngine
    facts: ClassVar[None] = None

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Train a round, and let the strategy aggregate it."""
        replies = engine.train(model, model_id, engine.draw(model_id, present))
        mean = average(model, replies, 1.0)
        if not replies.names:
            # Not every strategy knows what to do with nothing.
            return mean
        server_round = self.flower.server_round(model_id)
        arrays, _ = self.flower.strategy.aggregate_train(server_round, self.flower.take_accepted())
        if arrays is None:
            return replace(mean, model=dict(model))
        # The sum of float32 weighted in float64 may have become float64.
        made = {name: arrays[name].numpy().astype(tensor.dtype) for name, tensor in model.items()}
        return replace(mean, model=made)


@dataclass(frozen=True, slots=True, eq=False)
class MaskedServer:
    """Updates are masked, so each client tells its own distance from the mean, once it knows that.

    Whoever does not tell, or tells more than the training can make, counts with the furthest that it can: the longest
    update and the mean's own length. Where nothing bounds that, as for a network, so far that no noise can hide it.
    A mean is used however far it moved: to leave a round out because of one client would make what the others did
    depend on that client.
    """

    flower: FlowerEngine
    facts: ClassVar[None] = None

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Train a round, make the mean, and ask every participant how far from it it is."""
        replies = engine.train(model, model_id, engine.draw(model_id, present))
        made = average(model, replies, engine.facts.training.server_learning_rate)
        longest = engine.facts.training.longest_update(norm(model))
        furthest = min(NO_BOUND, math.inf if longest is None else longest + made.measured.update_norm)
        told = self.flower.distances(made.model, model_id, replies.names, furthest)
        silent = [name for name in replies.names if name not in told]
        if silent:
            _LOG.warning(
                "rescind: %d participants of %s did not tell how far they are from the mean, or told what cannot be: "
                "does the ClientApp call rescind.flower.report_distance in evaluate?",
                *(len(silent), model_id),
            )
        told = raise_distances(told, made.model) | dict.fromkeys(silent, furthest)
        distances = np.array([told[name] for name in replies.names], dtype=np.float64)
        # What was added up, masks and all, is what rounding follows; told distances are no longer than that.
        largest = made.measured.largest_norm
        return replace(made, measured=replace(made.measured, distances=distances, gram=None, mean_norm=largest))


def raise_distances(told: Mapping[str, float], model: Mapping[str, Tensor]) -> dict[str, float]:
    """Add to told distances what rounding may have taken away: they are from the mean as the model's type holds it.

    The mean was cast once, which moved it by at most one rounding of its length; the second covers its float64. A sum
    of squares may be off by one rounding of itself for each parameter.
    """
    unit = max((float(np.finfo(tensor.dtype).eps) / 2 for tensor in model.values()), default=0.0)
    share, length = 2 * max(unit, 2.0**-32), norm(model)
    sums = 1 + (sum(tensor.size for tensor in model.values()) + 4) * 2.0**-53
    return {name: distance * sums + share * (length + distance) for name, distance in told.items()}
