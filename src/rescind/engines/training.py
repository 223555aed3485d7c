"""The loop that trains a branch to its end and hands every round to the recorder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any, TypeAlias, cast

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId, RoundKind
from rescind.core.facts import Facts, Source
from rescind.core.rounds import Replies, RoundResult
from rescind.core.training import LocalTraining
from rescind.engines.engine import TOO_LONG, Engine
from rescind.engines.server import Average, NoisedAverage, Server, average, check_server
from rescind.engines.stops import Stop, format_accuracy
from rescind.history.recorder import Recorder
from rescind.history.run import describe_model
from rescind.progress import notify_listener, open_bar
from rescind.texts import list_some, make_plain

# Flower's: what it logs is what its users look at.
_LOG = logging.getLogger("flwr")
# One client must not be able to take anything from the others.
_LEAST_DOUBTFUL = 2

Watch: TypeAlias = Callable[[ModelId, Mapping[str, Tensor]], None]


_MOST_NAMED = 3


@contextmanager
def show_rounds(label: str, most: int, done: int = 0, *, public: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Open a bar, or log a line a round where there is none; yield what is called with the rounds so far, and words.

    Args:
        label: what is made.
        most: how many rounds there will be; without ``public`` there may be fewer.
        done: how many there are already.
        public: whether it is known beforehand how many rounds there will be.
    """
    with open_bar() as bar:
        task, begun = bar.add_task(label, total=most, completed=done), monotonic()

        def listen(what_for: str, part: int, total: int) -> None:
            bar.update(task, description=f"{label}: {what_for}, {part} of {total}")

        def show(rounds: int, words: str) -> None:
            bar.update(task, completed=rounds, description=f"{label}: {words}")
            if bar.disable:
                left = timedelta(seconds=round((monotonic() - begun) / (rounds - done) * (most - rounds)))
                end = f"{most}, about {left} left" if public else f"at most {most}"
                _LOG.info("rescind: %s, round %d of %s: %s", label, rounds, end, words)

        with notify_listener(listen):
            yield show


def describe_round(replies: Replies, note: str = "") -> str:
    """Say how many of those who were asked replied in a round, and who did not."""
    replied = len(replies.names) + len(replies.rejected)
    missing = f"; no answer: {list_some([*map(make_plain, replies.silent)], _MOST_NAMED)}" if replies.silent else ""
    return f"{replied} of {replied + len(replies.silent)} replied{note and ', '}{note}{missing}"


def ignore(model_id: ModelId, model: Mapping[str, Tensor]) -> None:
    """Do nothing with a model that was recorded: nobody watches."""


def train(
    engine: Engine,
    recorder: Recorder,
    present: Callable[[], Sequence[str]],
    until: Stop,
    server: Server,
    watch: Watch = ignore,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Train the newest branch with those present until its end; what is recorded already is not trained again.

    Who is present is asked before every round, and ``watch`` is shown every model once it is made; its round may
    still be written. Once ``interrupted`` says so, no further round begins. Nothing of a round outlives a failure but
    what contradicts the facts: the next call goes on from the last recorded round.
    """
    model, measured, facts = recorder.model(), -1.0, engine.facts
    check_server(engine, server)

    def accuracy() -> float:
        nonlocal measured
        # Only of those who took part: else somebody whom the model does not know would decide when it is done.
        names = recorder.took_part(present())
        value = engine.accuracy(model, names) if names else None
        # Nobody told one: then it is not reached.
        measured = -1.0 if value is None else value
        return measured

    if not until.public:
        recorder.record_end_by_data()
    # A rule may count rounds of earlier branches as the newest one's.
    most = until.most - getattr(until, "count_before", int)()
    label, done = f"branch {recorder.model_id.branch}", recorder.model_id.round
    with show_rounds(label, most, done, public=until.public) as show:
        for model_id, asked in ask_in_turn(
            recorder, present, lambda: until.reached(recorder.model_id.round, accuracy), interrupted
        ):
            made = server.round(cast(Engine, _AwaitingEngine(engine, recorder)), model, model_id, asked)
            check_exchange(engine, facts, made.replies, asked)
            if any(steps < 1 for steps in made.replies.steps):
                raise ValueError("a participant says that it made no local step")
            made = _compare_with_mean(engine, recorder, server, model, made)
            recorder.record_settings(made.replies.settings)
            _doubt(recorder, made.replies)
            made = replace(made, rounding=rounding(engine.facts.training, model, made))
            # A noised model that was sent and then lost would be a release that nobody counts.
            recorder.record(made, behind=made.kind is RoundKind.TRAINED)
            note = "" if measured < 0 else f"accuracy {format_accuracy(measured)}"
            model, words = made.model, describe_round(made.replies, note)
            # Else the replies would be held while the next round's come in.
            del made
            show(model_id.round, words)
            watch(model_id, model)
    recorder.finish_writing()


@dataclass(frozen=True, slots=True)
class _AwaitingEngine:
    """An engine whose replies are there for use once the round before is recorded: no model is made of a lost one."""

    engine: Engine
    recorder: Recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Let clients train, and wait."""
        replies = self.engine.train(model, model_id, names)
        self.recorder.finish_writing()
        return replies


def ask_in_turn(
    recorder: Recorder,
    present: Callable[[], Sequence[str]],
    ended: Callable[[], bool],
    interrupted: Callable[[], bool],
) -> Iterator[tuple[ModelId, Sequence[str]]]:
    """Yield each round's model id and who is present, until the branch ends or somebody interrupts."""
    while not (interrupted() or ended()):
        model_id, connected = ModelId(recorder.model_id.branch, recorder.model_id.round + 1), present()
        # Clients may have been waited for.
        if interrupted():
            return
        if not connected:
            raise ValueError("nobody is left who could take part: everybody was forgotten or waits to be")
        yield model_id, connected


def check_exchange(engine: Engine, facts: Facts, replies: Replies, asked: Sequence[str]) -> None:
    """Refuse replies of who was not asked, and an engine whose facts are others than before."""
    strangers = {*replies.names, *replies.rejected}.difference(asked)
    if strangers:
        raise ValueError(f"{sorted(strangers)[0]!r} replied and was not asked")
    if engine.facts != facts:
        raise ValueError("the engine's facts have changed meanwhile: a run has one kind of training")


def _compare_with_mean(
    engine: Engine, recorder: Recorder, server: Server, model: Mapping[str, Tensor], made: RoundResult
) -> RoundResult:
    """Return a round as it is recorded: a server that is not ours is not believed, its mean is made here as well.

    What differs from that by rounding only is replaced by it; anything else stays as it is, and is noted.
    """
    training = engine.facts.training
    says_mean = training.server_optimizer.lower() == "average" and not training.server_momentum
    # The very classes: one that is derived from them may do anything.
    if type(server) in (Average, NoisedAverage) or not says_mean:
        return made
    if describe_model(made.model) != describe_model(model):
        # Refused when it is recorded.
        return made
    mean = average(model, made.replies, training.server_learning_rate)
    # Where clients tell their distances the server does not see what it would have to measure.
    measured = made.measured if engine.facts.sources.distances is Source.REPORTED else mean.measured
    if not is_same_mean(model, made, mean):
        recorder.record_other_mean()
        return replace(made, measured=measured)
    return replace(mean, measured=measured)


def is_same_mean(model: Mapping[str, Tensor], one: RoundResult, other: RoundResult) -> bool:
    """Return whether two models differ by no more than two means of the same replies do, summed in any order.

    Each weight, product and sum of m replies is rounded, fewer than m + 8 times on the way to an entry, and no number
    on it is larger than the old entry and the largest replied one together: relative to the mean itself the error has
    no bound, as replies may cancel.
    """
    for name, tensor in model.items():
        largest = np.abs(tensor)
        for replied in one.replies.tensors[name] if one.replies.names else ():
            largest = np.maximum(largest, np.abs(replied))
        limits = np.finfo(tensor.dtype)
        allowed = 2 * (len(one.replies.names) + 8) * limits.eps * largest + limits.tiny
        with np.errstate(invalid="ignore"):
            apart = np.abs(np.subtract(one.model[name], other.model[name], dtype=np.float64))
        # Written so that NaN counts as too far.
        if not (apart <= allowed).all():
            return False
    return True


def _doubt(recorder: Recorder, replies: Replies) -> None:
    """Doubt the declared training where it made at most half of a round's replies; one liar is no doubt."""
    too_long = sum(reason == TOO_LONG for reason in replies.rejected.values())
    everything = len(replies.names) + len(replies.rejected)
    if too_long >= _LEAST_DOUBTFUL and 2 * too_long >= everything:
        recorder.doubt(f"{too_long} of {everything} replies held an update longer than any that it can make")


def rounding(training: LocalTraining, model: Mapping[str, Tensor], made: RoundResult) -> float:
    """Return r of a round; for a loss without a gradient bound, the longest update stands in for the gradients."""
    replies, measured = made.replies, made.measured
    if not replies.names:
        return 0.0
    gradient_bound = training.loss.gradient_bound
    if gradient_bound is None:
        # No update is longer than its distance from the mean and the mean's own length.
        longest = float(measured.distances.max()) + measured.update_norm
        gradient_bound = longest / (training.learning_rate * min(replies.steps))
    parameters = sum(tensor.size for tensor in model.values())
    return training.rounding(measured.largest_norm, parameters, replies.batch, gradient_bound, max(replies.steps))
