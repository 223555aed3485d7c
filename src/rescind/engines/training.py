"""The loop that trains a branch to its end and hands every round to the recorder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rescind.core.noise import Tensor
from rescind.core.training import LocalTraining
from rescind.engines.engine import Engine, Replies
from rescind.engines.progress import bar
from rescind.engines.server import Made, Server, check_server, norm, updates_of
from rescind.engines.stops import Stop
from rescind.history.recorder import Recorder
from rescind.history.records import Place

Watch: TypeAlias = Callable[[Place, Mapping[str, Tensor]], None]


def ignore(place: Place, model: Mapping[str, Tensor]) -> None:
    """Look away."""


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

    Who is present is asked before every round, and ``watch`` is shown every model once its round is recorded. Once
    ``interrupted`` says so, no further round begins. Nothing of a round outlives a failure: the next call goes on
    from the last round that was recorded.
    """
    model, measured, facts = recorder.model(), -1.0, engine.facts
    check_server(engine, server)

    def accuracy() -> float:
        nonlocal measured
        # Only of those who took part: else somebody whom the model does not know would decide when it is done.
        names = recorder.took_part(present())
        found = engine.accuracy(model, names) if names else None
        # Nobody told one: then it is not reached.
        measured = -1.0 if found is None else found
        return measured

    if not until.public:
        recorder.ends_by_data()
    with bar(f"branch {recorder.place.branch}", until.most) as show:
        while not interrupted() and not until.reached(recorder.place.round, accuracy):
            place = Place(recorder.place.branch, recorder.place.round + 1)
            asked = present()
            # Clients may have been waited for.
            if interrupted():
                break
            if not asked:
                raise ValueError("nobody is left who could train: everybody was forgotten or waits to be")
            made = server.round(engine, model, place, asked)
            _check(made.replies, asked)
            if engine.facts != facts:
                raise ValueError("the engine's facts have changed while it trained: a run has one kind of training")
            recorder.record(
                made.replies.names,
                made.replies.weights,
                made.replies.steps,
                made.measured,
                rounding(engine.facts.training, model, made),
                made.model,
                updates_of(model, made.replies) if recorder.stores_updates else None,
                made.replies.rejected,
            )
            model = made.model
            show(place.round, measured)
            watch(place, model)


def _check(replies: Replies, asked: Sequence[str]) -> None:
    """Refuse replies of who was not asked, and steps that nobody can have made."""
    strangers = {*replies.names, *replies.rejected}.difference(asked)
    if strangers:
        raise ValueError(f"{sorted(strangers)[0]!r} replied and was not asked to train")
    if any(steps < 1 for steps in replies.steps):
        raise ValueError("a participant says that it made no local step")


def rounding(training: LocalTraining, model: Mapping[str, Tensor], made: Made) -> float:
    """Give r of a round: the bound's own, or for a loss without one what the longest update makes of it."""
    replies, measured = made.replies, made.measured
    if not replies.names:
        return 0.0
    gradient_bound = training.loss.gradient_bound
    if gradient_bound is None:
        # No update is longer than its distance from the mean and the mean's own length.
        longest = float(measured.distances.max()) + measured.update_norm
        gradient_bound = longest / (training.learning_rate * min(replies.steps))
    parameters = sum(tensor.size for tensor in model.values())
    return training.rounding(norm(model), parameters, replies.batch, gradient_bound, max(replies.steps))
