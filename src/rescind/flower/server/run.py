"""A run of a recorded strategy, in place of Flower's ``Strategy.start``: forget whoever asked, then train on."""

from __future__ import annotations

import copy
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg, PrivacyScope, PublicHead, Source
from rescind.core.solver import Solving
from rescind.engines.server import Average, Server, check_public
from rescind.engines.stops import Stop
from rescind.engines.training import ignore
from rescind.flower.server.arrays import begin_alike, copy_record, digest_frozen, find_precision, find_trained
from rescind.flower.server.engine import FlowerEngine
from rescind.flower.server.nodes import Nodes
from rescind.flower.server.recorded import Recorded
from rescind.flower.server.replies import describe_metrics
from rescind.flower.server.servers import DelegatedServer, MaskedServer
from rescind.forgetting import Revocable, tell_changes
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.locations import expand_home
from rescind.history.outcomes import Outcome
from rescind.methods import Method
from rescind.serving import ModelFile, TotalRounds
from rescind.serving import serve as serve_federation

_LOG = logging.getLogger("flwr")
# What ``identify`` calls a client that says no name of its own.
_BY_PLACE = re.compile(r"client-\d+")
# A subclass could be another number whenever it is looked at.
_PLAIN = (bool, int, float, str, bytes)
_CHANGED_CONFIG = (
    "train_config was changed while the run was under way, and clients are told what it was when the run began. "
    "Settings that follow metrics or models would outlive a restart, and tell of who was forgotten. Give a list of "
    "ConfigRecords, one for each round, or a strategy whose state is in its own attributes"
)


def run(
    strategy: Recorded,
    grid: Grid,
    initial_arrays: ArrayRecord,
    num_rounds: int = 3,
    timeout: float = 600.0,
    train_config: ConfigRecord | Sequence[ConfigRecord] | None = None,
    evaluate_config: ConfigRecord | None = None,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    *,
    until: Stop | None = None,
    method: Method | None = None,
    solve: bool = False,
    save_to: str | os.PathLike[str] | None = None,
) -> Result:
    """Forget whoever asked for it, then train on from where the history stands.

    It takes what Flower's ``Strategy.start`` takes, by the same names and in the same order. Who asks while it runs
    is forgotten in the same run. Until then nothing that knows them is evaluated, saved or returned; a round that is
    under way comes to its end first.

    Args:
        strategy: what is recorded, and where.
        grid: the ServerApp's.
        initial_arrays: the initial model: theta_0^0 and what is frozen. In every run after the first the history's
            own theta_0^0 is used; what is frozen has to be the same in every run.
        num_rounds: how many rounds the model has behind it in the end. An exact forgetting goes on from a model that
            has had some of them; after one with noise they count anew.
        timeout: how many seconds to wait for replies, and for enough nodes; Flower's own default is 3600. Who does
            not answer in time is absent, and is asked again 1, 2, 4 rounds later, and so on; so is who takes more
            than a quarter of it.
        train_config: as in Flower's ``Strategy.start``; or a list with those of each round, for a learning rate that
            falls, of which the last stay. They are fixed when the run begins: what follows from metrics or models
            would outlive a restart.
        evaluate_config: as in Flower's ``Strategy.start``.
        evaluate_fn: as in Flower's ``Strategy.start``.
        until: a rule that ends a branch earlier, such as ``Accuracy(0.8, most=num_rounds)``.
        method: how to forget; by default ``Sifu()``, or ``Exact()`` where the theorem does not cover the training, or
            something was recorded that contradicts it, or ``Dp()`` where every round is noised. A branch that
            ``Solve()`` has solved is not trained on; it is solved again for whoever is there and not in it.
        solve: the head is solved in place of training it, in a handful of rounds, and ``Solve()`` is how to forget.
        save_to: a file for the model, in the safetensors format. One that may know somebody who asks is removed as
            soon as the run notices the request, and there is one again once they are forgotten.

    Returns:
        the newest model and what was measured, as from Flower's ``Strategy.start``.

    Raises:
        RunMismatchError: the training, the trained tensors' names, types or shapes, or the frozen tensors are not
            those that the history began with; or the initial arrays are not, and model 0.0 cannot be read.
        LockedError: another process is writing to this run.
        PendingRequestError: somebody has to agree to a plan first, or the rule ended a run while somebody waits.
        TimeoutError: too few nodes that may take part were connected in time, or none says who it is.
        ValueError: ``trained`` names a tensor that the model does not have, the trained tensors have another type or
            shape than the training needs, nothing that clients sent in three rounds could be used, or nobody is left
            who could train.
    """
    history, options = strategy.history, strategy.options
    save_to = None if save_to is None else expand_home(save_to)
    _warn_of_relative(history.location, save_to)
    engine = _engine(strategy, grid, initial_arrays, timeout, train_config, evaluate_config)
    names = engine.clients
    _LOG.info("rescind: %d clients are connected", len(names))
    tell_changes(history, names, placed=all(_BY_PLACE.fullmatch(name) for name in names))
    result, end_rule = Result(), until or TotalRounds(history, num_rounds)
    if isinstance(end_rule, TotalRounds):
        engine.total = end_rule
        _tell_rounds(history, end_rule)
    mean = strategy.mean
    hinted = False

    def check(model_id: ModelId) -> None:
        for doubt in history.timeline.standing_doubts:
            if doubt.model_id == model_id:
                _LOG.warning("rescind: %s. Until then forgetting is certified without noise only, as exact", doubt)
        # Also after the last round: a run that was in vain does not end as if it were not.
        engine.check_use()
        if _fix_schedule(train_config) != engine.schedule:
            raise ValueError(_CHANGED_CONFIG)

    def evaluate(model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        server_round = engine.server_round(model_id)
        # Clients are waited for and take their time; who asks meanwhile is heeded.
        if (
            mean.fraction_evaluate
            and (present := history.participants.remaining(engine.clients))
            and not history.requests.waiting()
        ):
            metrics = engine.evaluate_by_clients(model_id, model, present)
            if metrics is not None:
                _LOG.info("rescind: clients evaluate %s: %s", model_id, describe_metrics(metrics))
                result.evaluate_metrics_clientapp[server_round] = metrics
        if evaluate_fn is None or history.requests.waiting():
            return
        if (evaluated := evaluate_fn(server_round, engine.packed(model))) is not None:
            _LOG.info("rescind: the server evaluates %s: %s", model_id, evaluated)
            result.evaluate_metrics_serverapp[server_round] = evaluated

    def begin(plan: RecordedPlan) -> None:
        nonlocal hinted
        # What was measured and saved so far is of models that know who leaves.
        for measured in (result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp, engine.train_metrics):
            measured.clear()
        engine.begin_line()
        _tell_plan(plan)
        if not hinted:
            hinted = True
            if method is None and plan.candidate.solving is None:
                _hint_at_solving(history, engine)
            # By a rule that looks at data nothing would be strict.
            noised = isinstance(engine.facts.public, DpFedAvg)
            if until is None and plan.candidate.sigma and not noised:
                _hint_at_ending(engine)

    server: Server = strategy.server or Average()
    if options.masked:
        server = MaskedServer(engine)
    elif not strategy.is_mean:
        server = DelegatedServer(engine)
    revocable = Revocable(
        history,
        engine,
        server,
        capacity=options.capacity,
        goal=options.goal,
        seed=options.seed,
        watch=evaluate if mean.fraction_evaluate or evaluate_fn is not None else ignore,
        after_round=check,
        planned=begin,
        scored=False,
        write_behind=options.write_behind,
    )
    frozen = {name: array.numpy() for name, array in engine.frozen.items()}
    model = serve_federation(
        revocable,
        end_rule,
        method,
        solve=solve,
        level=options.level,
        outlet=None if save_to is None else ModelFile(Path(save_to), history, frozen),
        served=lambda outcome: _tell(outcome, keys=engine.nodes.authenticated),
        approval=options.approval,
        rule=options.serve,
        pause=engine.nodes.listen,
    )
    result.arrays = engine.packed(model)
    result.train_metrics_clientapp |= engine.train_metrics
    return result


def _engine(
    strategy: Recorded,
    grid: Grid,
    arrays: ArrayRecord,
    timeout: float,
    train_config: ConfigRecord | Sequence[ConfigRecord] | None,
    evaluate_config: ConfigRecord | None,
) -> FlowerEngine:
    if strategy.trains_by_own_code:
        precision = find_precision(arrays, strategy.trained)
        strategy = replace(strategy, training=replace(strategy.training, precision=precision))
    trained = find_trained(arrays, strategy.trained, strategy.training, helper=strategy.helper)
    mean, history, options = strategy.mean, strategy.history, strategy.options
    arrays = begin_alike(history, arrays, trained)
    least = max(mean.min_available_nodes, mean.min_train_nodes if strategy.rate is None else 1, 1)
    # Decided once for a history: else a stranger who comes before the others could decide it anew in every run.
    begun = bool(history.timeline.branches)
    authenticated = history.run.facts.sources.identity is Source.CHECKED if begun else None
    nodes = Nodes(grid, history, least, timeout, authenticated)
    if isinstance(options.public, PublicHead):
        start = {name: arrays[name].numpy() for name in trained}
        check_public(options.public, start, strategy.training.steps, options.batch)

    return FlowerEngine(
        recorded=replace(strategy, strategy=_copy_strategy(strategy.strategy)),
        facts=strategy.facts(digest_frozen(arrays, trained), nodes.authenticated),
        trained=trained,
        secret=options.seed or history.secret("training"),
        schedule=_fix_schedule(train_config),
        evaluate_config=_copy_config("evaluate_config", evaluate_config or ConfigRecord()),
        timeout=timeout,
        arrays=copy_record(arrays),
        nodes=nodes,
    )


def _copy_strategy(strategy: Strategy) -> Strategy:
    """Copy a strategy: what other code of the server app does to its own reaches no message."""
    try:
        return copy.deepcopy(strategy)
    except TypeError as unfit:
        raise ValueError(
            f"{type(strategy).__name__} cannot be copied ({unfit}), and each line of training needs its own copy: "
            "take locks, files and connections out of the strategy"
        ) from unfit


def _fix_schedule(train_config: ConfigRecord | Sequence[ConfigRecord] | None) -> list[ConfigRecord]:
    """Copy the settings of each round, by its number; the last ones stay."""
    if train_config is None or isinstance(train_config, ConfigRecord):
        train_config = [train_config or ConfigRecord()]
    if not isinstance(train_config, Sequence) or not train_config:
        raise ValueError(
            f"train_config is {train_config!r:.200}; give a ConfigRecord, or a list of them: one for each round"
        )
    return [_copy_config("train_config", record) for record in train_config]


def _copy_config(argument: str, record: object) -> ConfigRecord:
    """Copy settings; only of Flower's own record and of plain values it is known that they stay what they are."""
    if type(record) is not ConfigRecord:
        raise ValueError(
            f"{argument} is or holds {record!r:.200}; give a ConfigRecord, or a list of them: one for each round"
        )
    copied: dict[str, Any] = {}
    for name, value in record.items():
        several = value if type(value) is list else [value]
        if type(name) is not str or any(type(setting) not in _PLAIN for setting in several):
            raise ValueError(f"{argument} has {value!r:.80} under {name!r:.80}: give plain numbers, texts and bytes")
        copied[name] = list(value) if isinstance(value, list) else value
    return ConfigRecord(copied)


def _warn_of_relative(*paths: str | os.PathLike[str] | None) -> None:
    """Say where relative paths lead: a ServerApp runs where its SuperLink was started."""
    for path in paths:
        if path and "://" not in str(path) and not Path(path).is_absolute():
            _LOG.warning(
                "rescind: the path %s is relative, and is %s here: give an absolute one, or begin it with ~, "
                "as the next ServerApp may run in another folder",
                *(path, Path(path).resolve()),
            )


def _tell_rounds(history: History, until: TotalRounds) -> None:
    """Say in the run's log that the history has more rounds already than the run is to have."""
    if not history.timeline.branches or history.newest in history.timeline.solved:
        return
    rounds = history.newest.round + until.count_before()
    if rounds > until.most:
        _LOG.warning(
            "rescind: %s has %d rounds behind it, and num_rounds is %d: it is not trained on, unless somebody has to "
            "be forgotten",
            *(history.newest, rounds, until.most),
        )


def _tell_plan(plan: RecordedPlan) -> None:
    """Say in the run's log what is going to be done."""
    candidate, numbers = plan.candidate, " and ".join(map(str, plan.requests))
    _LOG.info(
        "rescind: request %s is planned (%s): back to %s, noise %g; as good again after about %g rounds",
        *(numbers, candidate.mode.value, plan.parent, candidate.sigma, candidate.predicted_rounds),
    )


def _hint_at_solving(history: History, engine: FlowerEngine) -> None:
    """Say in the run's log that the head can be solved, if it can: nobody has chosen another way."""
    if history.facts.solving_obstacles:
        return
    parameters = sum(tensor.size for tensor in engine.start().values())
    _LOG.info(
        "rescind: method=Solve() would forget exactly in about %g rounds; the server then sees sums over each "
        "client's rows",
        Solving().expected_rounds(parameters),
    )


def _hint_at_ending(engine: FlowerEngine) -> None:
    """Say in the run's log that a rule would end forgetting earlier: nobody has chosen one."""
    _LOG.info(
        "rescind: with num_rounds alone as many rounds follow the noise as training again would take; "
        "until=Accuracy(..) ends it once the model is good enough, by the metric %r that clients tell in evaluation",
        engine.recorded.options.accuracy,
    )


def _tell(outcome: Outcome, *, keys: bool) -> None:
    """Say in the run's log what became of a request, and what is left to do by hand."""
    _LOG.info("rescind: %s", outcome)
    # Without anybody's number: beside a request's it would tell who left, in a log that is kept.
    if keys and outcome.asked.request.scope is not PrivacyScope.RECORDS:
        _LOG.info(
            "rescind: the keys of those who left are still registered; flwr supernode list FEDERATION shows their "
            "numbers, and flwr supernode unregister NUMBER FEDERATION bars them"
        )
