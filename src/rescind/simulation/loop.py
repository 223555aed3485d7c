"""The readable trainer, one client after the other: what any faster one has to agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch.nn import functional

from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.simulation.federation import Examples
from rescind.simulation.models import Model

Tensors = Mapping[str, torch.Tensor]
# Every participant's examples of every step: (K, b) numbers below its n_i. None: all of them in every step.
Batches = Sequence[torch.Tensor] | None


class Trainer(Protocol):
    """Makes the local steps of a round."""

    def train(self, start: Tensors, names: Sequence[str], batches: Batches) -> dict[str, torch.Tensor]:
        """Return, tensor by tensor, those of the named clients, at least one, as one tensor (clients, *shape)."""


def l2_of(training: LocalTraining) -> float:
    """Return lambda, the factor of the loss's own L2 term; 0 where it has none."""
    return training.loss.l2 if isinstance(training.loss, SoftmaxL2 | LogisticL2) else 0.0


class Loop:
    """SGD on the batch mean of the cross entropy and (lambda/2) ||theta||^2, over all parameters."""

    def __init__(self, model: Model, examples: Examples, training: LocalTraining) -> None:
        self._examples = examples
        self._training = training
        self._module = model.module().to(examples.features.dtype)

    def train(self, start: Tensors, names: Sequence[str], batches: Batches) -> dict[str, torch.Tensor]:
        """See ``Trainer``."""
        chosen = [None] * len(names) if batches is None else batches
        trained = [self._client(start, name, steps) for name, steps in zip(names, chosen, strict=True)]
        return {key: torch.stack([tensors[key] for tensors in trained]) for key in start}

    def _client(self, start: Tensors, name: str, batches: torch.Tensor | None) -> dict[str, torch.Tensor]:
        span = self._examples.spans[name]
        features, labels = self._examples.features[span], self._examples.labels[span]
        self._module.load_state_dict(start)
        # Weight decay is the gradient of the L2 term, of every parameter and of the bias too.
        optimizer = torch.optim.SGD(
            self._module.parameters(),
            lr=self._training.learning_rate,
            momentum=self._training.momentum,
            weight_decay=l2_of(self._training),
        )
        for step in range(self._training.steps):
            rows = slice(None) if batches is None else batches[step]
            optimizer.zero_grad()
            loss = functional.cross_entropy(self._module(features[rows]), labels[rows])
            torch.autograd.backward(loss)
            optimizer.step()
        return {key: parameter.detach().clone() for key, parameter in self._module.named_parameters()}
