"""Who makes the local steps of a round: the readable loop, and fast trainers with its numbers up to rounding.

The loop trains one client after the other: it is what any faster trainer has to agree with.

Softmax regression is batched over the participants and needs no autograd. Where everybody uses all its examples in
every step and has no more of them than features, not even theta is iterated: with G = X X' + 1 1' and d = 1 - eta
lambda, the logits follow Z <- d Z - (eta/n) G (P - Y), and theta_K is d^K theta_0 minus (eta/n) X' times the sum of
the residuals P - Y, each multiplied by a d for every later step (Theory section 5 has its rounding).

The network, too, is batched over the participants: their images lie on each other like channels, and each client's
filters see only its own group of them. The channels of a pixel are side by side in memory, the order in which
convolutions and pooling are fast on a CPU, and the edge of the images that pooling drops is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch.nn import functional

from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.simulation.federation import Examples
from rescind.simulation.models import Model, Network, SoftmaxHead

Tensors = Mapping[str, torch.Tensor]
# Every participant's examples of every step: (K, b) numbers below its n_i. None: all of them in every step.
Batches = Sequence[torch.Tensor] | None

# Participants that are trained as one batch: more would only take more memory.
_TOGETHER = 32
# So many steps are made on logits alone; then they are computed anew, so that their rounding does not add up.
_LOGIT_STEPS = 16
# What a network's first layer may give in one step: with much more than that grouping costs more than it saves.
_NUMBERS = 1 << 22

_Kind = TypeVar("_Kind")


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


def fast(model: Model, examples: Examples, training: LocalTraining) -> Trainer:
    """Return the fastest trainer that there is for a model."""
    if isinstance(model, SoftmaxHead) and not training.momentum:
        return _Head(model, examples, training)
    if isinstance(model, Network):
        return _Network(model, examples, training)
    return Loop(model, examples, training)


@dataclass(frozen=True, slots=True, eq=False)
class _Gathered:
    """Clients' examples, padded to one number, (participants, size, features), and what belongs to them."""

    features: torch.Tensor
    turned: torch.Tensor
    targets: torch.Tensor
    scales: torch.Tensor
    grams: torch.Tensor


class _Head:
    """Softmax regression, batched over participants that are padded to a common number of examples.

    Logits are (participants, classes, examples): torch's softmax is fast over a dimension that is not the last.
    """

    def __init__(self, model: SoftmaxHead, examples: Examples, training: LocalTraining) -> None:
        self._examples = examples
        self._model = model
        self._steps = training.steps
        self._rate = training.learning_rate
        self._decay = 1 - training.learning_rate * l2_of(training)
        self._grams: dict[str, torch.Tensor] = {}
        self._gathered: dict[tuple[str, ...], _Gathered] = {}

    def train(self, start: Tensors, names: Sequence[str], batches: Batches) -> dict[str, torch.Tensor]:
        """See ``Trainer``."""
        trained = {key: tensor.new_empty((len(names), *tensor.shape)) for key, tensor in start.items()}
        groups: dict[tuple[int, bool], list[int]] = {}
        for place, count in enumerate(_counts(self._examples, names, batches)):
            logits_suffice = batches is None and count <= self._model.features
            groups.setdefault((self._padded(count), logits_suffice), []).append(place)
        last, self._gathered = self._gathered, {}
        for (size, logits_suffice), places in _portions(groups, lambda _: _TOGETHER):
            members = [names[place] for place in places]
            if logits_suffice:
                # Where everybody takes part the same clients come again in every round.
                own = last.get(tuple(members)) or self._gather(members, size)
                self._gathered[tuple(members)] = own
                bias, weight = self._by_logits(start, own)
            else:
                chosen = None if batches is None else [batches[place] for place in places]
                bias, weight = self._by_parameters(start, members, chosen, size)
            trained["bias"][places] = bias
            trained["weight"][places] = weight
        return trained

    def _gather(self, names: Sequence[str], size: int) -> _Gathered:
        """Put the clients' examples side by side."""
        (rows,), scales = self._rows(names, None, size)
        features = self._examples.features[rows.flatten()].view(len(names), size, -1)
        grams = torch.stack([self._gram(name, size) for name in names])
        return _Gathered(features, features.transpose(1, 2).contiguous(), self._targets(rows), scales, grams)

    def _by_logits(self, start: Tensors, own: _Gathered) -> tuple[torch.Tensor, torch.Tensor]:
        """Iterate the logits of all examples; no step but the first and the last is as wide as the features."""
        many = len(own.features)
        bias, weight = (start[key].expand(many, *start[key].shape) for key in ("bias", "weight"))
        for first in range(0, self._steps, _LOGIT_STEPS):
            steps = min(_LOGIT_STEPS, self._steps - first)
            logits = torch.baddbmm(bias.unsqueeze(2), weight, own.turned)
            total = torch.zeros_like(own.targets)
            for _ in range(steps):
                residuals = torch.softmax(logits, 1).sub_(own.targets).mul_(own.scales)
                total.mul_(self._decay).add_(residuals)
                logits = torch.baddbmm(logits, residuals, own.grams, beta=self._decay)
            shrunk = self._decay**steps
            bias = shrunk * bias + total.sum(2)
            weight = torch.baddbmm(weight, total, own.features, beta=shrunk)
        return bias, weight

    def _by_parameters(
        self, start: Tensors, names: Sequence[str], batches: Batches, size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the steps on the parameters themselves."""
        all_rows, scales = self._rows(names, batches, size)
        bias, weight = (start[key].expand(len(names), *start[key].shape) for key in ("bias", "weight"))
        features = start["weight"].new_empty((len(names), size, self._model.features))
        for step in range(self._steps):
            # With full batches there is one list of rows for all steps.
            if step < len(all_rows):
                rows = all_rows[step]
                torch.index_select(
                    self._examples.features, 0, rows.flatten(), out=features.view(-1, features.shape[2])
                )
                targets = self._targets(rows)
            logits = torch.baddbmm(bias.unsqueeze(2), weight, features.transpose(1, 2))
            residuals = torch.softmax(logits, 1).sub_(targets).mul_(scales)
            bias = self._decay * bias + residuals.sum(2)
            weight = torch.baddbmm(weight, residuals, features, beta=self._decay)
        return bias, weight

    @staticmethod
    def _padded(count: int) -> int:
        """Round up to four significant bits: few sizes, little waste, and nobody's depends on who else there is."""
        step = 1 << max((count - 1).bit_length() - 4, 0)
        return -(-count // step) * step

    def _rows(self, names: Sequence[str], batches: Batches, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the examples of every step, (steps or 1, participants, size), and what multiplies their residuals.

        That is -eta/b; and 0 where a row only pads, so that it does not matter which example is there.
        """
        steps = 1 if batches is None else self._steps
        rows = torch.empty((steps, len(names), size), dtype=torch.int64)
        scales = self._examples.features.new_zeros((len(names), 1, size))
        for place, name in enumerate(names):
            span = self._examples.spans[name]
            own = torch.arange(self._examples.count(name)) if batches is None else batches[place]
            count = own.shape[-1]
            rows[:, place, :count] = span.start + own
            rows[:, place, count:] = span.start
            scales[place, :, :count] = -self._rate / count
        return rows, scales

    def _targets(self, rows: torch.Tensor) -> torch.Tensor:
        """Return Y' of these examples, (participants, classes, size): a one in the row of each one's class."""
        zeros = self._examples.features.new_zeros((len(rows), self._model.classes, rows.shape[1]))
        return zeros.scatter_(1, self._examples.labels[rows].unsqueeze(1), 1.0)

    def _gram(self, name: str, size: int) -> torch.Tensor:
        """Return X X' + 1 1' of a client, padded with zeros; made once."""
        if name not in self._grams:
            shard = self._examples.features[self._examples.spans[name]]
            gram = shard.new_zeros((size, size))
            gram[: len(shard), : len(shard)] = shard @ shard.T + 1
            self._grams[name] = gram
        return self._grams[name]


def _counts(examples: Examples, names: Sequence[str], batches: Batches) -> list[int]:
    """Return how many examples each participant uses in a step."""
    return [examples.count(name) for name in names] if batches is None else [batch.shape[1] for batch in batches]


def _portions(groups: Mapping[_Kind, list[int]], most: Callable[[_Kind], int]) -> Iterator[tuple[_Kind, list[int]]]:
    """Cut each group into portions of so many."""
    for kind, places in groups.items():
        step = most(kind)
        for first in range(0, len(places), step):
            yield kind, places[first : first + step]


class _Network:
    """The network's layers, for participants with equally many examples in a step as one batch.

    Of a client's tensors those of convolutions are stacked like filters, (participants * filters, ...), the others in
    a dimension of their own, (participants, ...).
    """

    def __init__(self, model: Network, examples: Examples, training: LocalTraining) -> None:
        self._examples = examples
        self._training = training
        self._seen = model.seen_size
        self._first_layer = model.width * (model.seen_size - 2) ** 2

    def train(self, start: Tensors, names: Sequence[str], batches: Batches) -> dict[str, torch.Tensor]:
        """See ``Trainer``."""
        trained = {key: tensor.new_empty((len(names), *tensor.shape)) for key, tensor in start.items()}
        groups: dict[int, list[int]] = {}
        for place, count in enumerate(_counts(self._examples, names, batches)):
            groups.setdefault(count, []).append(place)
        for _, places in _portions(groups, self._together):
            rows = [self._rows(names[place], None if batches is None else batches[place]) for place in places]
            parameters = self._steps(start, torch.stack(rows, 1))
            for key, parameter in zip(start, parameters, strict=True):
                trained[key][places] = parameter.detach().view(len(places), *start[key].shape)
        return trained

    def _together(self, count: int) -> int:
        return max(1, min(_TOGETHER, _NUMBERS // (count * self._first_layer)))

    def _rows(self, name: str, batches: torch.Tensor | None) -> torch.Tensor:
        """Return a client's examples of every step, (K, b)."""
        span = self._examples.spans[name]
        if batches is None:
            return torch.arange(span.start, span.stop).expand(self._training.steps, -1)
        own: torch.Tensor = batches + span.start
        return own

    def _steps(self, start: Tensors, rows: torch.Tensor) -> list[torch.Tensor]:
        """Make all steps on examples (K, participants, b)."""
        _, many, count = rows.shape
        parameters = [_stacked(key, tensor, many).requires_grad_() for key, tensor in start.items()]
        velocities = [torch.zeros_like(parameter) for parameter in parameters]
        for chosen in rows:
            # (b, participants, channels, height, width), of which the second and the third become one.
            images = self._examples.features[chosen.T][..., : self._seen, : self._seen].flatten(1, 2)
            logits = _network(channels_last(images), parameters, many)
            labels = self._examples.labels[chosen]
            # Each client's mean, added up: nobody's parameters are in another's.
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / count
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
                    velocity.mul_(self._training.momentum).add_(gradient)
                    parameter.sub_(velocity, alpha=self._training.learning_rate)
        return parameters


def _stacked(key: str, tensor: torch.Tensor, many: int) -> torch.Tensor:
    copies = tensor.expand(many, *tensor.shape)
    return channels_last(copies.flatten(0, 1).clone()) if key.startswith("convolution") else copies.clone()


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Put the channels of each pixel side by side in memory; what is not made of pixels stays as it is."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _network(images: torch.Tensor, parameters: Sequence[torch.Tensor], many: int) -> torch.Tensor:
    """Return the logits of ``Network`` with these parameters, in its order: (participants, examples, classes)."""
    weights, biases = parameters[0::2], parameters[1::2]
    values = images
    for layer in (0, 1):
        # ReLU after the maximum gives the same numbers and the same gradients, for a quarter of the work.
        values = functional.max_pool2d(
            functional.conv2d(values, weights[layer], biases[layer], groups=many), 2
        ).relu_()
    values = functional.conv2d(values, weights[2], biases[2], groups=many).relu_()
    values = values.reshape(len(images), many, -1).transpose(0, 1)
    values = torch.baddbmm(biases[3].unsqueeze(1), values, weights[3].transpose(1, 2)).relu_()
    return torch.baddbmm(biases[4].unsqueeze(1), values, weights[4].transpose(1, 2))
