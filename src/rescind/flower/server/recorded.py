"""A Flower strategy whose rounds are recorded, and what of it the theorem covers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NoReturn

from flwr.serverapp.strategy import FedAvg, FedProx, Strategy

from rescind.certificates.approvals import Approvers
from rescind.core.facts import Facts, PublicHead, PublishedBody, Sampling, Source, Sources, Stages
from rescind.core.regularity import DeclaredLoss, LogisticL2, SoftmaxL2, SquaredL2
from rescind.core.training import OWN_CODE, LocalTraining
from rescind.engines.server import NoisedAverage
from rescind.history.history import History
from rescind.history.run import Goal
from rescind.ledger.records import ErasureLevel
from rescind.serving import Rule

# Which precision it has is found when it is run.
_NETWORK = LocalTraining.own_code("float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What few federations need to say: how clients train, what is kept, and how requests are served.

    Args:
        batch: how many examples a local step uses; None means all of the client's.
        equal_weights: every participant weighs the same, whatever number of examples it tells: for clients whose
            number of examples is private.
        declared: clients train by code of their own, and that they do what ``training`` says is your word. Otherwise
            they use ``train_head``, and what does not come from there is rejected.
        heuristic: record a strategy that the theorem does not cover; then only ``exact`` forgetting is certified.
        masked: the server sees masked updates, and clients tell their distances with ``report_distance``.
        accuracy: the name of the metric that clients report in evaluation, for stop rules and scores; without another
            name also ``eval_acc``, as Flower's templates call it.
        most_examples: no client can have more; whoever says so is rejected.
        capacity: see ``History.recording``.
        goal: see ``History.recording``.
        public_schedule: see ``Facts``.
        public: see ``Facts``.
        seed: makes all randomness reproducible, the noise too, for tests; then nothing is certified. It is in no
            history: give the same one in every run, as nobody notices another.
        write_behind: see ``Revocable``.
        keep_sums: the sums that each client sends for a ridge head are kept until it leaves. Then nobody is asked
            when somebody else leaves. Without them everybody is asked every time, and no client's sums lie here.
        level: how much of a forgotten client is erased.
        approval: whether somebody has to agree to every plan before it is carried out (``rescind request approve``),
            or the public keys of those who may: then only what one of them has signed counts. Where nobody has yet,
            the run ends with an error that says so; with ``serve`` it waits.
        serve: when requests are served by a run that does not end: ``at_once``, ``nightly`` or a rule of your own.
            Once the training has come to its end, it waits for requests until somebody stops it (``flwr stop``).
    """

    batch: int | None = None
    equal_weights: bool = False
    declared: bool = False
    heuristic: bool = False
    masked: bool = False
    accuracy: str = "accuracy"
    most_examples: int = 10**7
    capacity: int = 32
    goal: Goal | None = None
    public_schedule: bool = False
    public: PublicHead | None = None
    seed: bytes | None = None
    write_behind: bool = True
    keep_sums: bool = True
    level: ErasureLevel = ErasureLevel.PURGE
    approval: Approvers = False
    serve: Rule | None = None


_USUAL = Options()


@dataclass(frozen=True)
class Recorded:
    """A Flower strategy whose rounds are recorded, so that participants can be forgotten; ``run`` runs it.

    Args:
        strategy: FedAvg or FedProx. What the theorem does not cover is refused, unless ``heuristic`` is said; so is a
            training that it does not cover, except a network's, for which it does not claim anything.
        history: where it is recorded.
        training: what every client executes in a round. Clients learn it from the server. By default they train a
            whole network by code of their own, of which nothing is stated: then forgetting is ``exact``. A ridge head
            is ``LocalTraining.solved(SquaredL2(...))``: it is solved in one round, and so is every forgetting.
        trained: the names of the tensors that are learned, all by default. The others have to come back unchanged.
        rate: the probability with which each client takes part in a round, by its own coin (Poisson sampling); None
            leaves it to the strategy's ``fraction_train``.
        server: ``NoisedAverage(...)`` makes every round DP-FedAvg's, from the first one on, whatever clients train;
            then ``strict`` can be claimed, participants weigh the same, and kept models follow a public schedule.
        stages: a network in two stages: the anchors train its body by code of their own, then ``run`` solves its head
            with everybody, whom ``train_head`` answers for.
        anchors: the names or labels of those who train the body.
        body: the published body that the features of a head come from. Who answers with another one's is rejected.
        options: what few federations need to say.

    Raises:
        ValueError: the theorem does not cover the strategy or the training and ``heuristic`` is not said, or the
            arguments contradict one another.
    """

    strategy: Strategy
    history: History
    _: KW_ONLY
    training: LocalTraining = _NETWORK
    trained: Sequence[str] | None = None
    rate: float | None = None
    server: NoisedAverage | None = None
    stages: Stages | None = None
    anchors: Collection[str] = ()
    body: PublishedBody | None = None
    options: Options = _USUAL

    def __post_init__(self) -> None:
        mean, name = self.mean, type(self.strategy).__name__
        if self.training.is_solved:
            _refuse_solved(self)
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
        network = (self.training.loss.curvature is None or self.training.is_solved) and self.is_mean
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
        if self.options.masked and (not self.is_mean or self.training.server_learning_rate != 1):
            raise ValueError("masked updates need a mean, and a server_learning_rate of 1")
        if (
            self.options.masked
            and isinstance(self.training.loss, DeclaredLoss)
            and self.training.loss.gradient_bound is None
        ):
            raise ValueError(
                "masked updates of a declared loss need its gradient_bound: without it any distance that a client "
                "tells would have to be believed, and one client could raise everybody's bound"
            )
        if self.options.equal_weights and not self.is_mean:
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
        if not isinstance(self.body, PublishedBody | None) or (self.body and not self.helper):
            raise ValueError(
                f"body is {self.body!r}; it has to be a rescind.flower.PublishedBody(name, digest), and what is "
                "trained a head, by train_head"
            )
        if self.stages and (self.options.masked or self.options.equal_weights or self.server):
            raise ValueError(
                "a head is solved from every client's own sums, without noise: leave out masked, equal_weights and "
                "server"
            )
        if self.options.most_examples < 1:
            raise ValueError(f"most_examples is {self.options.most_examples!r}; a client has at least one")
        if reasons and not self.options.heuristic:
            sentences = [reason.rstrip(".") + "." for reason in reasons]
            raise ValueError(
                f"{name} with this training is not covered by the theorem: "
                f"{' '.join(sentences)} To record it all the same, say "
                "Options(heuristic=True): whoever joined late can still be forgotten exactly, and everybody by "
                "retraining; anything else is a report and no certificate"
            )
        if self.helper and executed.obstacles and not executed.is_solved:
            raise ValueError(
                "train_head executes plain SGD only: say Options(declared=True) if clients train otherwise"
            )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"Recorded has no {name}: it is run by rescind.flower.run(strategy, grid, arrays, num_rounds), and no "
            "other strategy can wrap it, since that would record models which are never released"
        )

    @property
    def mean(self) -> FedAvg:
        """The FedAvg that the strategy is, or that it wraps."""
        return find_average(self.strategy)

    @property
    def trains_by_own_code(self) -> bool:
        """True if nothing is stated about the training."""
        return self.training.optimizer == OWN_CODE

    @property
    def helper(self) -> bool:
        """True if our helper executes the training on the clients."""
        return isinstance(self.training.loss, SoftmaxL2 | LogisticL2 | SquaredL2) and not self.options.declared

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
        if sample is None and (fraction := self.mean.fraction_train) == 1.0:
            sampling = Sampling.EVERYBODY
        elif sample is None:
            sampling, sample = Sampling.FRACTION, fraction
        noised = self.server is not None
        return Facts(
            training=self.training,
            sampling=sampling,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=self.options.seed is None,
            public_schedule=self.options.public_schedule or noised,
            public=self.options.public if self.server is None else self.server.facts,
            sample=sample,
            batch=self.options.batch,
            frozen=frozen,
            stages=self.stages,
            body=self.body,
            keeps_sums=self.options.keep_sums and isinstance((self.stages or self.training).loss, SquaredL2),
            equal_weights=self.options.equal_weights or noised,
            sources=Sources(
                training=Source.EXECUTED if self.helper else Source.DECLARED,
                identity=Source.CHECKED if authenticated else Source.REPORTED,
                distances=Source.REPORTED if self.options.masked else Source.CHECKED,
                reachable=Source.DECLARED,
                server=Source.CHECKED if self.is_plain else Source.DECLARED,
            ),
        )


def find_average(strategy: Strategy) -> FedAvg:
    """Return the FedAvg that a strategy is, or that it wraps."""
    inner: object = strategy
    while not isinstance(inner, FedAvg):
        if not hasattr(inner, "strategy"):
            raise ValueError(
                f"{type(strategy).__name__} is not built on FedAvg: only such strategies can be recorded"
            )
        inner = inner.strategy
    return inner


def _refuse_solved(recorded: Recorded) -> None:
    """Refuse what says of a ridge head that it is trained, or solved otherwise than it is."""
    options = recorded.options
    refusals = (
        (not recorded.is_mean, f"{type(recorded.strategy).__name__} makes the model itself: wrap FedAvg"),
        (options.declared, "only train_head answers for it: leave out Options(declared=True)"),
        (
            options.masked or options.equal_weights or recorded.server is not None,
            "it is solved from every client's own sums, without noise: leave out masked, equal_weights and server",
        ),
        (
            options.batch is not None or recorded.rate is not None or recorded.mean.fraction_train != 1.0,
            "everybody is asked, about all rows: leave out batch, rate and fraction_train",
        ),
    )
    for refused, reason in refusals:
        if refused:
            raise ValueError(f"a ridge head is not trained: {reason}")


def _refuse_with_noise(recorded: Recorded) -> None:
    """Refuse what DP-FedAvg does not cover, or what would say otherwise than it does."""
    server, mean = recorded.server, recorded.mean
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
        (
            recorded.options.masked,
            "the server has to see every update to clip it: leave out Options(masked=True), or server=",
        ),
        (
            recorded.options.public is not None,
            "Options(public=...) is about a head without noise in its rounds: leave it out beside "
            "server=NoisedAverage(...)",
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
            getattr(server, "seed", None) != recorded.options.seed,
            "the seed of Options is not that of NoisedAverage: give both the same one, or none for a certificate",
        ),
    )
    for refused, reason in refusals:
        if refused:
            raise ValueError(reason)
