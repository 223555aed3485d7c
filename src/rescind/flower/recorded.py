"""rescind for a Flower app: a recorded strategy and ``run`` for the ServerApp, helpers for the ClientApp."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import NoReturn

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx, Result, Strategy

from rescind.certificates.approvals import Approvers
from rescind.checkpoints.tensors import save
from rescind.core.arrays import Tensor
from rescind.core.facts import DpFedAvg, Facts, PrivacyScope, PublicHead, Sampling, Source, Sources
from rescind.core.regularity import DeclaredLoss, LogisticL2, SoftmaxL2
from rescind.core.solving import Solving
from rescind.core.stages import Stages
from rescind.core.training import OWN_CODE, LocalTraining
from rescind.engines.server import Average, NoisedAverage, Server, check_public
from rescind.engines.stops import Stop
from rescind.engines.training import ignore
from rescind.flower.arrays import copy_record
from rescind.flower.engine import FlowerEngine, Settings, find_average
from rescind.flower.initial import begin_alike, digest_frozen, find_precision, find_trained
from rescind.flower.nodes import Nodes
from rescind.flower.roster import Roster
from rescind.flower.servers import DelegatedServer, MaskedServer
from rescind.forgetting import Revocable
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.outcomes import Outcome
from rescind.history.remarks import describe_release
from rescind.history.run import Goal
from rescind.history.timeline import Timeline
from rescind.ledger.records import ErasureLevel, ModelId
from rescind.methods import Method
from rescind.serving import Rule, TotalRounds
from rescind.serving import serve as serve_federation

__all__ = ["Recorded", "run"]

_LOG = logging.getLogger("flwr")
# Which precision it has is found when it is run.
_NETWORK = LocalTraining.own_code("float32")
_CHANGED_CONFIG = (
    "train_config was changed while the run was under way, and clients are told what it was when the run began. "
    "Settings that follow metrics or models would outlive a restart, and tell of who was forgotten. Give a list of "
    "ConfigRecords, one for each round, or a strategy whose state is in its own attributes"
)


@dataclass(frozen=True)
class Recorded:
    """A Flower strategy whose rounds are recorded, so that participants can be forgotten; ``run`` runs it.

    Args:
        strategy: FedAvg or FedProx. What the theorem does not cover is refused, unless ``heuristic`` is said; so is a
            training that it does not cover, except a network's, for which it does not claim anything.
        history: where it is recorded.
        training: what every client executes in a round. Clients learn it from the server. By default they train a
            whole network by code of their own, of which nothing is stated: then forgetting is ``exact``.
        trained: the names of the tensors that are learned, all by default. The others have to come back unchanged.
        batch: how many examples a local step uses; None means all of the client's.
        equal_weights: every participant weighs the same, whatever number of examples it tells: for clients whose
            number of examples is private.
        rate: the probability with which each client takes part in a round, by its own coin (Poisson sampling); None
            leaves it to the strategy's ``fraction_train``.
        declared: clients train by code of their own, and that they do what ``training`` says is your word. Otherwise
            they use ``train_head``, and what does not come from there is rejected.
        heuristic: record a strategy that the theorem does not cover; then only ``exact`` forgetting is certified.
        server: ``NoisedAverage(...)`` makes every round DP-FedAvg's, from the first one on, whatever clients train;
            then ``strict`` can be claimed, participants weigh the same, and kept models follow a public schedule.
        masked: the server sees masked updates, and clients tell their distances with ``report_distance``.
        accuracy: the name of the metric that clients report in evaluation, for stop rules and scores.
        most_examples: no client can have more; whoever says so is rejected.
        capacity: see ``History.recording``.
        goal: see ``History.recording``.
        public_schedule: see ``Facts``.
        public: see ``Facts``.
        seed: makes all randomness reproducible, the noise too, for tests; then nothing is certified.
        stages: a network in two stages: the anchors train its body by code of their own, then ``run`` solves its head
            with everybody, whom ``train_head`` answers for.
        anchors: the names or labels of those who train the body.
        write_behind: see ``Revocable``.

    Raises:
        ValueError: the theorem does not cover the strategy or the training and ``heuristic`` is not said, or the
            arguments contradict one another.
    """

    strategy: Strategy
    history: History
    _: KW_ONLY
    training: LocalTraining = _NETWORK
    trained: Sequence[str] | None = None
    batch: int | None = None
    equal_weights: bool = False
    rate: float | None = None
    declared: bool = False
    heuristic: bool = False
    server: NoisedAverage | None = None
    masked: bool = False
    accuracy: str = "accuracy"
    most_examples: int = 10**7
    capacity: int = 32
    goal: Goal | None = None
    public_schedule: bool = False
    public: PublicHead | None = None
    seed: bytes | None = None
    stages: Stages | None = None
    anchors: Collection[str] = ()
    write_behind: bool = True

    def __post_init__(self) -> None:
        mean, name = find_average(self.strategy), type(self.strategy).__name__
        if not self.is_mean:
            # The facts have to say it, whatever the caller's training says.
            object.__setattr__(self, "training", replace(self.training, server_optimizer=f"Flower's {name}"))
        if self.trains_by_own_code and isinstance(mean, FedProx):
            object.__setattr__(self, "training", replace(self.training, proximal=mean.proximal_mu))
        executed = self.training
        if self.server is not None:
            _refuse_with_noise(self)
            # It is the server that clips.
            executed = replace(self.training, clips_updates=False)
            object.__setattr__(self, "training", replace(self.training, clips_updates=True))
        network = self.training.loss.curvature is None and self.is_mean
        # Noise in every round hides whatever clients execute.
        reasons = () if network or self.server is not None else self.training_obstacles
        if isinstance(mean, FedProx) and mean.proximal_mu != self.training.proximal:
            raise ValueError(
                f"FedProx has proximal_mu {mean.proximal_mu:g}, and the training says {self.training.proximal:g}"
            )
        if self.training.proximal and not isinstance(mean, FedProx):
            raise ValueError("the training has a proximal term: wrap FedProx, which tells the clients of it")
        if self.rate is not None and not 0 < self.rate <= 1:
            raise ValueError(f"rate is {self.rate!r}; it has to be above 0 and at most 1")
        if self.rate is not None and mean.fraction_train != 1.0:
            raise ValueError("give rate, or the strategy's fraction_train, not both")
        if self.masked and (not self.is_mean or self.training.server_learning_rate != 1):
            raise ValueError("masked updates need a mean, and a server_learning_rate of 1")
        if self.masked and isinstance(self.training.loss, DeclaredLoss) and self.training.loss.gradient_bound is None:
            raise ValueError(
                "masked updates of a declared loss need its gradient_bound: without it any distance that a client "
                "tells would have to be believed, and one client could raise everybody's bound"
            )
        if self.equal_weights and not self.is_mean:
            raise ValueError(f"{name} weighs its replies itself: equal_weights needs FedAvg or FedProx")
        if not isinstance(self.stages, Stages | None):
            raise ValueError(f"stages is {self.stages!r}; give rescind.flower.Stages(...)")
        named = isinstance(self.anchors, Collection) and all(isinstance(name, str) for name in self.anchors)
        if bool(self.stages) is not bool(self.anchors) or isinstance(self.anchors, str) or not named:
            raise ValueError("stages and anchors go together: say who trains the body, in a list of names")
        if self.stages and not (self.trains_by_own_code and self.is_mean and self.trained is None):
            raise ValueError(
                "in two stages clients train the body by code of their own: leave out training and trained, and wrap "
                "FedAvg or FedProx"
            )
        if self.stages and (self.masked or self.equal_weights or self.server):
            raise ValueError(
                "a head is solved from every client's own sums, without noise: leave out masked, equal_weights and "
                "server"
            )
        if self.most_examples < 1:
            raise ValueError(f"most_examples is {self.most_examples!r}; a client has at least one")
        if reasons and not self.heuristic:
            sentences = [reason.rstrip(".") + "." for reason in reasons]
            raise ValueError(
                f"{name} with this training is not covered by the theorem: "
                f"{' '.join(sentences)} To record it all the same, say "
                "heuristic=True: whoever joined late can still be forgotten exactly, and everybody by "
                "retraining; anything else is a report and no certificate"
            )
        if self.helper and executed.obstacles:
            raise ValueError("train_head executes plain SGD only: say declared=True if clients train otherwise")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"Recorded has no {name}: it is run by rescind.flower.run(strategy, grid, arrays, num_rounds), and no "
            "other strategy can wrap it, since that would record models which are never released"
        )

    @property
    def trains_by_own_code(self) -> bool:
        """True if nothing is stated about the training."""
        return self.training.optimizer == OWN_CODE

    @property
    def helper(self) -> bool:
        """True if our helper executes the training on the clients."""
        return isinstance(self.training.loss, SoftmaxL2 | LogisticL2) and not self.declared

    @property
    def training_obstacles(self) -> tuple[str, ...]:
        """What of the training the theorem does not cover."""
        return self.facts("", authenticated=False).training_obstacles

    @property
    def is_mean(self) -> bool:
        """True if the next model is the weighted mean of the replies."""
        own = type(self.strategy)
        names = ("aggregate_train", "_check_and_log_replies")
        return issubclass(own, FedAvg) and all(getattr(own, name) is getattr(FedAvg, name) for name in names)

    @property
    def is_plain(self) -> bool:
        """True if the strategy is Flower's own FedAvg or FedProx: one that is derived from them may do anything."""
        own = type(self.strategy)
        return own in (FedAvg, FedProx) and vars(self.strategy).keys() == vars(own()).keys()

    def facts(self, frozen: str, authenticated: bool) -> Facts:
        """Return what claims rest on, and on whose word.

        Args:
            frozen: the SHA-256 of the tensors that are never trained; empty if there are none.
            authenticated: whether the server checks who the clients are.

        Returns:
            the facts.
        """
        sampling, sample = Sampling.POISSON, self.rate
        if sample is None and (fraction := find_average(self.strategy).fraction_train) == 1.0:
            sampling = Sampling.EVERYBODY
        elif sample is None:
            sampling, sample = Sampling.FRACTION, fraction
        noised = self.server is not None
        return Facts(
            training=self.training,
            sampling=sampling,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=self.seed is None,
            public_schedule=self.public_schedule or noised,
            public=self.public if self.server is None else self.server.facts,
            sample=sample,
            batch=self.batch,
            frozen=frozen,
            stages=self.stages,
            equal_weights=self.equal_weights or noised,
            sources=Sources(
                training=Source.EXECUTED if self.helper else Source.DECLARED,
                identity=Source.CHECKED if authenticated else Source.REPORTED,
                distances=Source.REPORTED if self.masked else Source.CHECKED,
                reachable=Source.DECLARED,
                server=Source.CHECKED if self.is_plain else Source.DECLARED,
            ),
        )


def run(
    strategy: Recorded,
    grid: Grid,
    arrays: ArrayRecord,
    num_rounds: int = 3,
    *,
    until: Stop | None = None,
    method: Method | None = None,
    solve: bool = False,
    level: ErasureLevel = ErasureLevel.PURGE,
    approval: Approvers = False,
    serve: Rule | None = None,
    timeout: float = 600.0,
    train_config: ConfigRecord | Sequence[ConfigRecord] | None = None,
    evaluate_config: ConfigRecord | None = None,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    save_to: str | os.PathLike[str] | None = None,
) -> Result:
    """Forget whoever asked for it, then train on from where the history stands.

    Who asks while it runs is forgotten in the same run. Until then nothing that knows them is evaluated, saved or
    returned; a round that is under way comes to its end first.

    Args:
        strategy: what is recorded, and where.
        grid: the ServerApp's.
        arrays: the initial model: theta_0^0 and what is frozen. In every run after the first the history's own
            theta_0^0 is used; what is frozen has to be the same in every run.
        num_rounds: how many rounds the model has behind it in the end. An exact forgetting goes on from a model that
            has had some of them; after one with noise they count anew.
        until: a rule that ends a branch earlier, such as ``Accuracy(0.8, most=num_rounds)``.
        method: how to forget; by default ``Sifu()``, or ``Exact()`` where the theorem does not cover the training, or
            something was recorded that contradicts it, or ``Dp()`` where every round is noised. A branch that
            ``Solve()`` has solved is not trained on.
        solve: the head is solved in place of training it, in a handful of rounds, and ``Solve()`` is how to forget.
        level: how much of a forgotten client is erased.
        approval: whether somebody has to agree to every plan before it is carried out (``rescind approve``), or the
            public keys of those who may: then only what one of them has signed counts. Where nobody has yet, the run
            ends with an error that says so; with ``serve`` it waits.
        serve: when requests are served by a run that does not end: ``at_once``, ``nightly`` or a rule of your own.
            Once the training has come to its end, it waits for requests until somebody stops it (``flwr stop``).
        timeout: how many seconds to wait for replies, and for enough nodes. Who does not answer in time is absent,
            and is asked again 1, 2, 4 rounds later, and so on; so is who takes more than a quarter of it.
        train_config: as in Flower's ``Strategy.start``; or a list with those of each round, for a learning rate that
            falls, of which the last stay. They are fixed when the run begins: what follows from metrics or models
            would outlive a restart.
        evaluate_config: as in Flower's ``Strategy.start``.
        evaluate_fn: as in Flower's ``Strategy.start``.
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
    history = strategy.history
    _warn_of_relative(history.location, save_to)
    engine = _engine(strategy, grid, arrays, timeout, train_config, evaluate_config)
    _LOG.info("rescind: %d clients are connected", len(engine.clients))
    result, end_rule = Result(), until or TotalRounds(history, num_rounds)
    if isinstance(end_rule, TotalRounds):
        engine.rounds_before = end_rule.count_before
    mean = find_average(strategy.strategy)
    hinted = False

    def check(model_id: ModelId) -> None:
        timeline = history.timeline
        _warn(timeline, model_id)
        # Also after the last round: a run that was in vain does not end as if it were not.
        engine.check_use()
        if _fix_schedule(train_config) != engine.schedule:
            raise ValueError(_CHANGED_CONFIG)

    def evaluate(model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        server_round = engine.server_round(model_id)
        # Clients are waited for and take their time; who asks meanwhile is heeded.
        if mean.fraction_evaluate and (present := history.remaining(engine.clients)) and not history.waiting():
            metrics = engine.evaluate_by_clients(model_id, model, present)
            if metrics is not None:
                # Of what clients tell only what the server has a name for: the log is kept.
                number = metrics.get(strategy.accuracy)
                named = f", {strategy.accuracy} {number:.6g}" if isinstance(number, int | float) else ""
                _LOG.info("rescind: clients evaluate %s: %d metrics%s", model_id, len(metrics), named)
                result.evaluate_metrics_clientapp[server_round] = metrics
        if evaluate_fn is None or history.waiting():
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
    if strategy.masked:
        server = MaskedServer(engine)
    elif not strategy.is_mean:
        server = DelegatedServer(engine)
    revocable = Revocable(
        history,
        engine,
        server,
        capacity=strategy.capacity,
        goal=strategy.goal,
        seed=strategy.seed,
        watch=evaluate if mean.fraction_evaluate or evaluate_fn is not None else ignore,
        after_round=check,
        planned=begin,
        scored=False,
        write_behind=strategy.write_behind,
    )
    model = serve_federation(
        revocable,
        end_rule,
        method,
        solve=solve,
        level=level,
        outlet=None if save_to is None else ModelFile(Path(save_to), engine.frozen, history),
        served=lambda outcome: _tell(outcome, keys=engine.nodes.authenticated),
        approval=approval,
        rule=serve,
        pause=engine.nodes.listen,
    )
    result.arrays = engine.packed(model)
    result.train_metrics_clientapp |= engine.train_metrics
    return result


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A safetensors file for the released model, with the tensors that nobody trains."""

    path: Path
    frozen: Mapping[str, Array]
    history: History

    def put(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        """Write the file, in place of the one that is there."""
        whole = {**model, **{name: array.numpy() for name, array in self.frozen.items()}}
        save(whole, self.path, describe_release(self.history, model_id))
        _LOG.info("rescind: %s is saved in %s", model_id, self.path)

    def clear(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


def _refuse_with_noise(recorded: Recorded) -> None:
    """Refuse what DP-FedAvg does not cover, or what would say otherwise than it does."""
    server, mean = recorded.server, find_average(recorded.strategy)
    plain = FedAvg()
    functions = (plain.train_metrics_aggr_fn, plain.evaluate_metrics_aggr_fn)
    own = (mean.train_metrics_aggr_fn, mean.evaluate_metrics_aggr_fn) != functions
    refusals = (
        (
            type(server) is not NoisedAverage,
            f"server is {server!r}: give a rescind.engines.server.NoisedAverage(...), or leave it out",
        ),
        (
            not recorded.is_mean,
            f"{type(recorded.strategy).__name__} makes the model itself, and so does server=NoisedAverage(...): wrap "
            "FedAvg or FedProx",
        ),
        (
            not recorded.is_plain or own,
            "what clients tell beside their updates has no noise, and must not reach what they are told: with "
            "server=NoisedAverage(...) wrap Flower's own FedAvg or FedProx, without functions of yours for metrics",
        ),
        (recorded.masked, "the server has to see every update to clip it: leave out masked=True, or server="),
        (
            recorded.public is not None,
            "public= is about a head without noise in its rounds: leave it out beside server=NoisedAverage(...)",
        ),
        (
            mean.fraction_train != 1.0,
            "with fraction_train the number of participants follows who is connected: give rate= in its place",
        ),
        (
            recorded.training.server_learning_rate != 1,
            "server=NoisedAverage(...) has no server_learning_rate: leave it at 1 and enlarge the denominator",
        ),
        (
            getattr(server, "seed", None) != recorded.seed,
            "the seed of Recorded is not that of NoisedAverage: give both the same one, or none for a certificate",
        ),
    )
    for refused, reason in refusals:
        if refused:
            raise ValueError(reason)


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
    mean, history = find_average(strategy.strategy), strategy.history
    arrays = begin_alike(history, arrays, trained)
    least = max(mean.min_available_nodes, mean.min_train_nodes if strategy.rate is None else 1, 1)
    # Decided once for a history: else a stranger who comes before the others could decide it anew in every run.
    begun = bool(history.timeline.branches)
    authenticated = history.run.facts.sources.identity is Source.CHECKED if begun else None
    nodes = Nodes(grid, Roster(history), least, timeout, authenticated)
    if isinstance(strategy.public, PublicHead):
        start = {name: arrays[name].numpy() for name in trained}
        check_public(strategy.public, start, strategy.training.steps, strategy.batch)

    return FlowerEngine(
        settings=Settings(
            facts=strategy.facts(digest_frozen(arrays, trained), nodes.authenticated),
            trained=trained,
            secret=strategy.seed or history.secret("training"),
            helper=strategy.helper,
            masked=strategy.masked,
            accuracy=strategy.accuracy,
            most_examples=strategy.most_examples,
            anchors=frozenset(strategy.anchors),
        ),
        original=_copy_strategy(strategy.strategy),
        grid=grid,
        arrays=copy_record(arrays),
        nodes=nodes,
        head=lambda: history.head,
        first_weights=history.first_weights,
        removals=history.removals,
        name_rows=history.name_rows,
        schedule=_fix_schedule(train_config),
        evaluate_config=copy.deepcopy(evaluate_config or ConfigRecord()),
        timeout=timeout,
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
    records = copy.deepcopy(list(train_config)) if isinstance(train_config, Sequence) else []
    if not records or not all(isinstance(record, ConfigRecord) for record in records):
        raise ValueError(
            f"train_config is {train_config!r:.200}; give a ConfigRecord, or a list of them: one for each round"
        )
    return records


def _warn_of_relative(*paths: str | os.PathLike[str] | None) -> None:
    """Say where relative paths lead: a ServerApp runs where its SuperLink was started."""
    for path in paths:
        if path and "://" not in str(path) and not Path(path).is_absolute():
            _LOG.warning(
                "rescind: the path %s is relative, and is %s here: give an absolute one, as the next ServerApp may "
                "run in another folder",
                *(path, Path(path).resolve()),
            )


def _warn(timeline: Timeline, model_id: ModelId) -> None:
    """Say in the run's log what was recorded in a round against the run's declarations."""
    for doubt in timeline.standing_doubts:
        if doubt.model_id == model_id:
            _LOG.warning("rescind: %s. Until then forgetting is certified without noise only, as exact", doubt)


def _tell_plan(plan: RecordedPlan) -> None:
    """Say in the run's log what is going to be done."""
    candidate, numbers = plan.candidate, " and ".join(map(str, plan.requests))
    _LOG.info(
        "rescind: request %s is planned (%s): back to model %d.%d, noise %g; as good again after about %g rounds",
        *(numbers, candidate.mode.value, candidate.node.branch, candidate.node.round),
        *(candidate.sigma, candidate.predicted_rounds),
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
        engine.settings.accuracy,
    )


def _tell(outcome: Outcome, *, keys: bool) -> None:
    """Say in the run's log what became of a request, and what is left to do by hand."""
    asked, restart = outcome.asked, outcome.restart
    if restart is None:
        _LOG.info("rescind: request %d is settled: the model does not know its clients", asked.number)
    else:
        candidate = restart.planned.candidate
        _LOG.info(
            "rescind: request %d is served (%s): back to model %d.%d, noise %g, %d rounds of retraining",
            *(asked.number, outcome.mode.value, candidate.node.branch, candidate.node.round),
            *(candidate.sigma, outcome.rounds),
        )
    # Without anybody's number: beside a request's it would tell who left, in a log that is kept.
    if keys and asked.request.scope is not PrivacyScope.RECORDS:
        _LOG.info(
            "rescind: the keys of those who left are still registered; flwr supernode list FEDERATION shows their "
            "numbers, and flwr supernode unregister NUMBER FEDERATION bars them"
        )
