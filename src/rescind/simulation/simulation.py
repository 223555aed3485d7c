"""An engine in one process: simulated clients that train on torch, for experiments, tests and audits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg, Facts, PublicHead, Sampling, Source, Sources
from rescind.core.regularity import DeclaredLoss, LogisticL2, NetworkLoss, SoftmaxL2, SquaredL2
from rescind.core.sums import Wanted
from rescind.core.training import LocalTraining
from rescind.engines.engine import Answers, Doubt, Keep, Replies, show_each
from rescind.engines.heads import LEAST_ROWS, sum_head, sum_ridge
from rescind.engines.seeds import choose_batches, client_seed, draw
from rescind.engines.server import check_public
from rescind.simulation.federation import Examples, Federation, Shard, examples
from rescind.simulation.models import LogisticHead, Model, SoftmaxHead
from rescind.simulation.trainers import Loop, Trainer, channels_last, fast

# Nobody is asked here: what is said to happen is what this process does.
_SOURCES = Sources(
    training=Source.EXECUTED,
    identity=Source.CHECKED,
    distances=Source.CHECKED,
    reachable=Source.CHECKED,
    server=Source.CHECKED,
)
_PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
# Examples that are classified at a time: enough to be fast, few enough for a network's memory.
_CHUNK = 512
_TOO_FEW = f"it has fewer than {LEAST_ROWS} rows, and sums over them would tell too much"
_TOO_MANY = "it has more rows than SquaredL2(most_rows=...) allows a client"


class Simulation:
    """Clients that exist only here, and that execute exactly what ``training`` says; anything else is refused.

    Args:
        federation: who has which examples. For ``SoftmaxL2``, ``LogisticL2`` and ``SquaredL2`` all rows are clipped
            to the loss's ``row_norm``.
        model: what is trained, or solved for.
        training: what a client does in a round.
        sampling: how participants are chosen.
        rate: for Poisson sampling, the probability with which each client takes part.
        size: for samples of a fixed size, that size.
        batch: how many examples a step uses; None means all of the client's.
        equal_weights: every participant weighs the same, whatever number of examples it has.
        secret: what all randomness is derived from; the same one gives the same bytes.
        secret_noise: see ``Facts``.
        public_schedule: see ``Facts``.
        public: see ``Facts``.
        trainer: who makes the local steps, ``fast`` or the readable ``Loop``; what another one does is declared.

    Raises:
        ValueError: the training is not one that is executed here, the arguments do not fit one another, or ``public``
            promises less than what is executed.
    """

    def __init__(
        self,
        federation: Federation,
        model: Model,
        training: LocalTraining,
        *,
        sampling: Sampling = Sampling.EVERYBODY,
        rate: float | None = None,
        size: int | None = None,
        batch: int | None = None,
        equal_weights: bool = False,
        secret: bytes,
        secret_noise: bool = True,
        public_schedule: bool = False,
        public: PublicHead | DpFedAvg | None = None,
        trainer: Callable[[Model, Examples, LocalTraining], Trainer] = fast,
    ) -> None:
        refusals = [*_not_executed(training, model), *_mismatches(federation, model), *_unclear(sampling, rate, size)]
        if batch is not None and (not isinstance(batch, int) or batch < 1):
            refusals.append(f"batch is {batch!r}: give 1 or more, or None for all of a client's examples")
        if not isinstance(secret, bytes) or not secret:
            refusals.append("secret has to be bytes, and not empty: take secrets.token_bytes(32)")
        if refusals:
            raise ValueError("; ".join(refusals))
        # Nobody here knows what a trainer of one's own does, nor how a declared loss rounds.
        ours = trainer in (fast, Loop) and not isinstance(training.loss, DeclaredLoss)
        source = Source.EXECUTED if ours else Source.DECLARED
        self._facts = Facts(
            training=training,
            sampling=sampling,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=secret_noise,
            public_schedule=public_schedule,
            public=public,
            sample=size if rate is None else rate,
            batch=batch,
            sources=replace(_SOURCES, training=source),
            equal_weights=equal_weights,
            keeps_sums=isinstance(training.loss, SquaredL2),
        )
        loss = training.loss
        self._row_norm = loss.row_norm if isinstance(loss, SoftmaxL2 | LogisticL2 | SquaredL2) else None
        # A head's steps are made in float64 and cast once, as the rounding term has it.
        self._dtype = dtype = _PRECISIONS[training.precision] if self._row_norm is None else torch.float64
        self._examples = examples(federation.shards, dtype, self._row_norm)
        self._test = examples({"test data": federation.test}, dtype, self._row_norm)
        self._rate, self._size, self._batch = rate, size, batch
        self._secret = secret
        self._start = {name: tensor.to(_PRECISIONS[training.precision]) for name, tensor in model.start().items()}
        self._module = model.module().to(dtype)
        self._trainer = trainer(model, self._examples, training)
        if isinstance(public, PublicHead):
            check_public(public, self.start(), training.steps, max(map(self._batch_size, self.clients)))

    @property
    def facts(self) -> Facts:
        """What claims rest on."""
        return self._facts

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody's name, in the federation's order."""
        return tuple(self._examples.spans)

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0.

        Returns:
            the tensors by name, a copy each time.
        """
        return {name: tensor.numpy().copy() for name, tensor in self._start.items()}

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        """Choose by coins that are each client's own, so that nobody's presence changes another's.

        Args:
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            who of those present takes part; maybe nobody.

        Raises:
            ValueError: somebody is no client of this federation, or named more than once.
        """
        self._check_names(present)
        return draw(self._secret, model_id, present, rate=self._rate, size=self._size)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Let clients train from a model.

        Args:
            model: the model that they start from.
            model_id: the id of the model that the round will make.
            names: the clients.

        Returns:
            what they sent back; its tensors are stacked, (participants, *shape).

        Raises:
            ValueError: the model has other tensors than the start, or somebody is no client of this federation, or
                named more than once.
        """
        start = self._tensors(model)
        self._check_names(names)
        counts = [1 if self._facts.equal_weights else self._examples.count(name) for name in names]
        chosen = None if self._batch is None else [self._batches(name, model_id) for name in names]
        if names:
            trained = self._trainer.train(start, names, chosen)
        else:
            trained = {name: tensor.new_empty((0, *tensor.shape)) for name, tensor in start.items()}
        return Replies(
            names=tuple(names),
            weights=np.array(counts, dtype=np.float64),
            steps=(self._facts.training.steps,) * len(names),
            tensors={
                name: cast(Sequence[Tensor], tensor.to(self._start[name].dtype).numpy())
                for name, tensor in trained.items()
            },
            batch=max((self._batch_size(name) for name in names), default=0),
        )

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,  # noqa: ARG002, sums have no randomness
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,  # noqa: ARG002, they are executed here
    ) -> Answers:
        """Let clients sum over their rows at a model, for a solver.

        Args:
            model: the model to look at.
            model_id: the id of the model that the round will make.
            names: the clients.
            wanted: how much of the curvature is asked for.
            doubt: nobody is doubted.

        Returns:
            what they answered.

        Raises:
            ValueError: the model is no head, or has other tensors than the start, or somebody is no client of this
                federation, or named more than once.
        """
        self._tensors(model)
        loss = self._facts.training.loss
        shards, unfit = self._find_answering(names)
        answered = ((name, sum_head(model, *shard, loss, wanted)) for name, shard in shards)
        return Answers.collect(answered, rejected=unfit)

    def ridge_sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,  # noqa: ARG002, sums have no randomness
        names: Sequence[str],
        keep: Keep | None = None,
    ) -> Answers:
        """Let clients sum over their rows for a ridge head.

        Args:
            model: any model of this head: the sums do not depend on it.
            model_id: the id of the model that the round will make.
            names: the clients.
            keep: is shown each answer.

        Returns:
            what they answered.

        Raises:
            ValueError: the loss is another one, the model has other tensors than the start, or somebody is no client
                of this federation, or named more than once.
        """
        outputs, loss = len(self._tensors(model)["bias"]), self._facts.training.loss
        if not isinstance(loss, SquaredL2):
            raise ValueError(f"the loss is {type(loss).__name__}, and these sums are for SquaredL2")
        targets = np.eye(outputs)
        shards, unfit = self._find_answering(names, loss.most_rows)
        answered = ((name, sum_ridge(rows, targets[labels], loss)) for name, (rows, labels) in shards)
        return Answers.collect_ridge(show_each(answered, keep), rejected=unfit)

    def _find_answering(
        self, names: Sequence[str], most_rows: float = math.inf
    ) -> tuple[Iterator[tuple[str, tuple[Tensor, NDArray[np.int64]]]], dict[str, str]]:
        """Return the rows and labels of those who may tell sums over theirs, and why the others may not."""
        self._check_names(names)
        counts = {name: self._examples.count(name) for name in names}
        unfit = {name: _TOO_FEW for name, count in counts.items() if count < LEAST_ROWS}
        unfit |= {name: _TOO_MANY for name, count in counts.items() if count > most_rows}
        own = {name: self._examples.spans[name] for name in names if name not in unfit}
        rows, labels = self._examples.features, self._examples.labels
        return ((name, (rows[span].numpy(), labels[span].numpy())) for name, span in own.items()), unfit

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float:
        """Return the mean of clients' accuracies, each on its own training data.

        Args:
            model: the model to measure.
            names: the clients, at least one.

        Returns:
            the mean.

        Raises:
            ValueError: nobody is named, somebody is no client of this federation or named more than once, or the
                model has other tensors than the start.
        """
        self._check_names(names)
        if not names:
            raise ValueError("nobody is named: the accuracy of no clients is not defined")
        # In one order, so that neither chunks nor sums depend on the order asked for.
        ordered = sorted(names, key=lambda name: int(self._examples.spans[name].start))
        return math.fsum(self._accuracies(model, self._examples, ordered)) / len(ordered)

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float:
        """Return the accuracy on the federation's test data.

        Args:
            model: the model to measure.

        Returns:
            the accuracy.

        Raises:
            ValueError: the model has other tensors than the start.
        """
        return self._accuracies(model, self._test, list(self._test.spans))[0]

    def logits(self, model: Mapping[str, Tensor], shard: Shard) -> Tensor:
        """Return what a model says of any examples, to ask for watermarks or to attack it.

        Args:
            model: the model to ask.
            shard: the examples.

        Returns:
            the logits, (examples, classes).

        Raises:
            ValueError: the model has other tensors than the start, or a feature is too large for the precision.
        """
        asked = examples({"the examples": shard}, self._dtype, self._row_norm)
        return self._said(model, asked, torch.arange(len(shard.labels))).numpy()

    def _accuracies(self, model: Mapping[str, Tensor], examples: Examples, names: Sequence[str]) -> list[float]:
        firsts = np.array([examples.spans[name].start for name in names])
        counts = np.array([examples.count(name) for name in names])
        starts = np.cumsum(counts) - counts
        # All rows of one client after those of the other.
        rows = torch.from_numpy(np.repeat(firsts - starts, counts) + np.arange(counts.sum()))
        hits = self._said(model, examples, rows).argmax(1) == examples.labels[rows]
        own = np.add.reduceat(hits.numpy(), starts, dtype=np.int64)
        return [hit / count for hit, count in zip(own.tolist(), counts.tolist(), strict=True)]

    def _said(self, model: Mapping[str, Tensor], examples: Examples, rows: torch.Tensor) -> torch.Tensor:
        self._module.load_state_dict(self._tensors(model))
        with torch.no_grad():
            chunks = torch.split(rows, _CHUNK)
            return torch.cat([self._module(channels_last(examples.features[chunk])) for chunk in chunks])

    def _batch_size(self, name: str) -> int:
        count = self._examples.count(name)
        return count if self._batch is None else min(self._batch, count)

    def _batches(self, name: str, model_id: ModelId) -> torch.Tensor:
        seed, steps = client_seed(self._secret, name, model_id), self._facts.training.steps
        return torch.from_numpy(choose_batches(seed, self._examples.count(name), self._batch_size(name), steps))

    def _tensors(self, model: Mapping[str, Tensor]) -> dict[str, torch.Tensor]:
        """Copy a model into torch, in the start's order and of the type that is computed with."""
        if model.keys() != self._start.keys():
            raise ValueError(f"the model has the tensors {sorted(model)}; it has to have {sorted(self._start)}")
        for name, own in self._start.items():
            tensor, wanted = model[name], (tuple(own.shape), self._facts.training.precision)
            if (tensor.shape, str(tensor.dtype)) != wanted:
                raise ValueError(
                    f"tensor {name!r} is {tensor.shape}, {tensor.dtype}; it has to be {wanted[0]}, {wanted[1]}"
                )
        return {name: torch.from_numpy(np.array(model[name])).to(self._dtype) for name in self._start}

    def _check_names(self, names: Sequence[str]) -> None:
        unknown = sorted(set(names) - self._examples.spans.keys())
        if unknown:
            raise ValueError(f"not clients of this federation: {', '.join(map(repr, unknown))}")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if list(names).count(name) > 1})
            raise ValueError(f"named more than once: {', '.join(map(repr, twice))}")


def _not_executed(training: LocalTraining, model: Model) -> Iterator[str]:
    """Say what of a training would not be done, or not as it says."""
    if training.optimizer.lower() != "sgd" and not training.is_solved:
        yield f"the optimizer is {training.optimizer!r}, and only 'sgd' is executed"
    for name in ("proximal", "weight_decay", "server_momentum"):
        if getattr(training, name):
            yield f"{name} is {getattr(training, name):g} and is not executed: set it to 0"
    if training.clips_gradients:
        yield "gradients are not clipped: set clips_gradients to False"
    if not training.constant_learning_rate:
        yield "the learning rate does not change: set constant_learning_rate to True"
    if training.server_optimizer.lower() != "average":
        yield f"the server's optimizer is {training.server_optimizer!r}, and only 'average' is executed"
    if training.untrained_buffers:
        yield f"there are no buffers such as {', '.join(training.untrained_buffers)}: leave untrained_buffers empty"
    if training.precision not in _PRECISIONS:
        yield f"the precision is {training.precision!r}: use float32 or float64"
    # The exact type, as a loss that is derived from one of these is another loss.
    heads: dict[type, tuple[type, ...]] = {SoftmaxHead: (SoftmaxL2, SquaredL2), LogisticHead: (LogisticL2,)}
    # Of the cross entropy without an L2 term nothing is known, or what is declared.
    executed = [*heads.get(type(model), ()), NetworkLoss, DeclaredLoss]
    if type(training.loss) not in executed:
        yield (
            f"the loss is {type(training.loss).__name__}, but what is executed for a {type(model).__name__} "
            f"is that of {' or '.join(loss.__name__ for loss in executed)}"
        )


def _mismatches(federation: Federation, model: Model) -> Iterator[str]:
    if federation.inputs != model.inputs:
        yield f"the examples have shape {federation.inputs}, but the model takes {model.inputs}"
    if federation.classes != model.classes:
        yield f"the federation has {federation.classes} classes, but the model {model.classes}"


def _unclear(sampling: Sampling, rate: float | None, size: int | None) -> Iterator[str]:
    if sampling is Sampling.FRACTION:
        yield "a share of those connected is drawn in a Flower federation only: give a fixed size"
    if (rate is not None) != (sampling is Sampling.POISSON):
        yield "give a rate for Poisson sampling, and for no other"
    elif rate is not None and not 0 < rate <= 1:
        yield f"rate is {rate!r}: it has to be above 0 and at most 1"
    if (size is not None) != (sampling is Sampling.FIXED_SIZE):
        yield "give a size for samples of a fixed size, and for no others"
    elif size is not None and (not isinstance(size, int) or size < 1):
        yield f"size is {size!r}: it has to be 1 or more"
