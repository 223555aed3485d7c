"""A federation to play with, on numpy: clinics whose patients' diagnoses follow one rule, and chance.

A whole engine in few lines, as docs/add-an-engine.md explains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, Sampling, Source, Sources
from rescind.core.regularity import SoftmaxL2
from rescind.core.sums import Wanted
from rescind.core.training import LocalTraining
from rescind.engines.engine import Answers, Doubt, Replies
from rescind.engines.heads import clip_rows, sum_head, train_head_on

_FEATURES, _DIAGNOSES = 10, 3
_LOSS = SoftmaxL2(l2=0.01, row_norm=1.0)
_Patients = tuple[Tensor, NDArray[np.int64]]


class Clinics:
    """Clinics with patients in memory, clinic-0, clinic-1 and so on; all of them train a softmax head in every round.

    Args:
        count: how many clinics there are.
        patients: how many patients each of them has, with 10 features and one of 3 diagnoses.
        seed: decides the patients. The same seed gives the same federation, and the same training.
    """

    facts = Facts(
        LocalTraining(steps=5, learning_rate=1.0, loss=_LOSS),
        Sampling.EVERYBODY,
        independent_randomness=True,
        redrawn_rounds=False,
        secret_noise=True,
        # Nobody is asked here: what is said to happen is what this process does.
        sources=Sources(Source.EXECUTED, *[Source.CHECKED] * 4),
    )

    def __init__(self, count: int = 200, patients: int = 40, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        rule = rng.normal(size=(_FEATURES, _DIAGNOSES))
        rows = rng.normal(size=(count + 1, patients, _FEATURES))
        labels = (rows @ rule + rng.normal(size=(count + 1, patients, _DIAGNOSES))).argmax(axis=2)
        self._test, *shards = [
            (clip_rows(own, _LOSS.row_norm), diagnoses) for own, diagnoses in zip(rows, labels, strict=True)
        ]
        self._shards = {f"clinic-{at}": shard for at, shard in enumerate(shards)}

    def without(self, name: str) -> Clinics:
        """Return the same clinics but one."""
        others = copy(self)
        others._shards = {own: shard for own, shard in self._shards.items() if own != name}
        return others

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody's name."""
        return tuple(self._shards)

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0, made anew each time and in the training's precision."""
        return {"weight": np.zeros((_DIAGNOSES, _FEATURES)), "bias": np.zeros(_DIAGNOSES)}

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Choose everybody who is present, in their order."""
        self._patients(present)
        return list(present)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:  # noqa: ARG002
        """Let clinics train from a model; of nobody, each tensor has no entries."""
        shards, training = self._patients(names), self.facts.training
        trained = [train_head_on(model, *shard, training) for shard in shards]
        return Replies(
            names=tuple(names),
            weights=np.array([len(labels) for _, labels in shards], dtype=np.float64),
            steps=(training.steps,) * len(names),
            tensors={key: [own[key] for own in trained] for key in model},
            batch=max((len(labels) for _, labels in shards), default=0),
        )

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,  # noqa: ARG002
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,  # noqa: ARG002, the clinics are code of its own
    ) -> Answers:
        """Let clinics sum over their patients, for a solver."""
        own = zip(names, self._patients(names), strict=True)
        return Answers.collect(((name, sum_head(model, *shard, _LOSS, wanted)) for name, shard in own))

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float:
        """Return the mean of clinics' accuracies, each on its own patients; the same to the last bit in any order."""
        return float(np.mean(sorted(_share_right(model, *shard) for shard in self._patients(names))))

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float:
        """Return the accuracy on patients whom no clinic has."""
        return _share_right(model, *self._test)

    def _patients(self, names: Sequence[str]) -> list[_Patients]:
        if strangers := sorted(set(names).difference(self._shards)):
            raise ValueError(f"not clinics of this federation: {strangers}")
        return [self._shards[name] for name in names]


def _share_right(model: Mapping[str, Tensor], rows: Tensor, labels: NDArray[np.int64]) -> float:
    return float(((rows @ model["weight"].T + model["bias"]).argmax(axis=1) == labels).mean())
