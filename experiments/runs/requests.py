"""Requests one after the other, by one method: how many rounds each costs, and what is left of those who left.

Softmax regression on pixels, or a small convolutional network on images. Groups of clients leave in turn; after each,
the method trains on until the remaining clients' mean accuracy on their own data is back at the threshold, or for
``shares`` of the training's rounds; ``solve`` ends by itself. The prefix before a restart is kept, as in the paper.

There are two ways to have SIFU. ``sound`` is the product's: exact noise, the group jointly, a proven B. ``published``
is the paper's, with the weights put right: B = 1 taken as given, the largest Psi of a single client, the classic
formula, and sigma to the letter. The others are the same in both.

Everything is drawn by the configuration's seed, noise too, and noise that can be drawn again is never certified. So
``mode`` is what the same plan claims with secret noise: the product's own answer, with that one obstacle left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from experiments.data.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from experiments.runs import marks
from experiments.runs.membership import Compared, together, told_apart
from experiments.runs.restarts import trained_on
from rescind import History, Sampling
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.classic import ClassicBudget
from rescind.core.facts import REPRODUCIBLE, Facts, Mode, PrivacyScope
from rescind.core.noise import grid_rounding, public_sigma
from rescind.core.regularity import NetworkLoss
from rescind.core.solving import Solving
from rescind.core.summary import Node, Summary
from rescind.core.training import UNIT_ROUNDOFF
from rescind.engines.server import Average, NoisedAverage, Server, draw_noise, norm
from rescind.engines.stops import Accuracy, Rounds, Stop
from rescind.forgetting import Revocable
from rescind.history.outcomes import Outcome
from rescind.ledger.records import ErasureLevel, ModelId
from rescind.methods import Dp, FedAccum, FedEraser, FineTuning, Last, Method, PaperSifu, Scratch, Sifu, Solve
from rescind.methods.method import Beginning, Heuristic
from rescind.simulation import Federation, Simulation

PUBLISHED = "SIFU as published"
# As exact; but noise can no longer be planned from where it ends.
LOOSE = "solve to 0.01"
# FedEraser and FedAccum go back by stored updates; those of every tenth round are kept.
UPDATE_INTERVAL = 10
# What says how to forget, not how to train: runs that differ only in these have their training in common.
FORGETTING = ("method", "fixed_sigma", "epsilon", "delta", "shares", "reference")
# What does not matter to the attack's reference either, which is trained for a number of rounds, and never by DP.
ENDING = ("capacity", "clip", "noise_multiplier", "threshold", "least", "most", "every")
# So many trainings a process keeps for the runs that come next.
TRAININGS = 3


@dataclass(frozen=True, slots=True)
class NoisedStart(Heuristic):
    """Trains again from the start under the paper's noise: a control, for what noise by itself does to training."""

    sigma: float
    seed: bytes
    name: ClassVar[str] = "Scratch, noised start"
    why: ClassVar[str] = "there is nobody to hide in the start, and no plan has noise there"

    def node(self, summary: Summary) -> Node:
        """Take theta_0^0."""
        return summary.kept[0]

    def begin(self, history: History, tip: ModelId, parent: ModelId, leaving: Collection[int]) -> Beginning:  # noqa: ARG002
        """Add the noises of all branches so far: the published rule mostly goes back to a model that has had them."""
        model: Mapping[str, Tensor] = history.model(parent)
        for branch in range(1, tip.branch + 2):
            model = draw_noise(model, self.sigma, self.seed, "restart", branch, grid=history.run.grid)
        return Beginning(model, unbounded=True)


METHODS: Mapping[str, Callable[[Configuration], Method]] = {
    Scratch.name: lambda _: Scratch(),
    NoisedStart.name: lambda asked: NoisedStart(asked["fixed_sigma"], noise_seed(asked)),
    Sifu.name: lambda _: Sifu(),
    PaperSifu.name: lambda asked: PaperSifu(public_sigma(asked["fixed_sigma"])),
    PUBLISHED: lambda asked: PaperSifu(asked["fixed_sigma"]),
    Last.name: lambda _: Last(),
    FineTuning.name: lambda _: FineTuning(),
    FedEraser.name: lambda _: FedEraser(),
    FedAccum.name: lambda _: FedAccum(),
    Dp.name: lambda _: Dp(),
    Solve.name: lambda _: Solve(),
    LOOSE: lambda _: Solve(Solving(tolerance=0.01)),
}


def noise_seed(configuration: Configuration) -> bytes:
    """Return what all noise of a run is drawn by."""
    return f"noise {configuration['seed']}".encode()


class Departing(Simulation):
    """Clients of which some can be gone before they ever took part: no history knows whom to leave out then."""

    # Of a client that no record is about nothing is to forget, but it must not join later either.
    gone: frozenset[str] = frozenset()

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who is still there, and all whom the history knows."""
        return tuple(name for name in super().clients if name not in self.gone)


class Assuming(Departing):
    """Executes the same, and takes B = 1 as given instead of proving it."""

    @property
    def facts(self) -> Facts:
        """The facts, with a loss of which nothing is known."""
        facts = super().facts
        return replace(facts, training=replace(facts.training, loss=NetworkLoss()))


class BrokenDownError(Exception):
    """Noise has made the weights so large that nobody can train on."""

    def __init__(self, newest: ModelId) -> None:
        super().__init__(f"training broke down under its own noise after round {newest.round}")


def run(configuration: Configuration) -> list[Row]:
    """Train one federation, then serve its requests one after the other."""
    try:
        return in_turn(configuration)
    except BrokenDownError as refusal:
        return [{"method": configuration["method"], "request": 1, "refusal": str(refusal)}]


def in_turn(configuration: Configuration) -> list[Row]:
    """Do so, unless the training itself breaks down."""
    plain = federation_of(configuration)
    marked = marks.marked(plain, configuration) if configuration.get("marked") else None
    federation = marked.federation if marked else plain
    engine, server = _engine(configuration, federation)
    method = METHODS[configuration["method"]](configuration)
    everybody, leaving, found = engine.clients, configuration["leaving"], list[Row]()
    until = Accuracy(**{key: configuration[key] for key in ("threshold", "least", "most", "every")})

    def serving(history: History) -> Serving:
        return Serving(history, engine, server, method, configuration)

    def train(history: History) -> None:
        try:
            serving(history).revocable.train(until)
        except ValueError as error:
            if not isinstance(method, Dp):
                raise
            raise BrokenDownError(history.newest) from error

    with trained(configuration, engine, train) as history:
        served, training = serving(history), history.newest.round
        first = history.model(history.newest)
        shares = {share: Rounds.share(share, training).most for share in configuration.get("shares", ())}
        gone: list[str] = []
        for number, group in enumerate(configuration["groups"], 1):
            names = list(everybody[group * leaving : (group + 1) * leaving])
            said: Row = {"method": configuration["method"], "request": number, "trained": training}
            before = history.newest.branch
            try:
                # The models at the smaller shares lie on the way to the largest one.
                said |= served.forget(names, Rounds(max(shares.values())) if shares else until, shares.values())
            except ValueError as refusal:
                # Weights under noise, or noise, that no grid holds: what comes after it cannot be served either.
                begun = history.timeline.branches[history.newest.branch]
                noisy = begun.sigma > 0 or isinstance(method, Dp | NoisedStart)
                if begun.number > before and noisy:
                    why: Exception = BrokenDownError(history.newest)
                elif isinstance(method, Last):
                    why = refusal
                else:
                    raise
                found.append(said | {"refusal": str(why)})
                break
            ends: dict[float | None, int] = {**shares} or {None: said["rounds"]}
            for share, rounds in ends.items():
                model = served.seen[rounds]
                row = said | ({"share": share, "rounds": rounds} if share else {})
                row |= scores(engine, model, names, gone, [name for name in everybody if name not in {*gone, *names}])
                # The rule looks only at those who took part by then, so its answer may differ from ``retain``.
                ended = not share and rounds < until.most and not isinstance(method, Solve)
                row["reached"] = row["retain"] >= until.threshold or ended
                if marked:
                    row |= marked.recalled(engine, number, model)
                    row["before"] = marked.recalled(engine, number, first)["hits"]
                if "reference" in configuration:
                    reference = reference_of(configuration, federation)
                    left, never = compared(plain, marked, number, names)
                    row["attack"], row["attack_before"] = (
                        round(told_apart(engine, each, reference, left, never), 4) for each in (model, first)
                    )
                found.append(row)
            gone += names
    return found


_trained: dict[str, History] = {}
_references: dict[str, Mapping[str, Tensor]] = {}


def trained(configuration: Configuration, engine: Departing, train: Callable[[History], object]) -> History:
    """Return a history of the training; one that this process has trained already is copied."""
    later = FORGETTING if configuration.get("marked") else (*FORGETTING, "groups")
    stores = _update_interval(configuration["method"])
    key = f"{engine.facts} {stores} {_without(configuration, later)}"
    if key not in _trained:
        while len(_trained) >= TRAININGS:
            _trained.pop(next(iter(_trained))).close()
        history = History.in_memory()
        train(history)
        _trained[key] = history
    return copied(_trained[key])


def _without(configuration: Configuration, names: Collection[str]) -> str:
    return json.dumps({name: value for name, value in configuration.items() if name not in names})


def _update_interval(method: str) -> int:
    return UPDATE_INTERVAL if method in (FedEraser.name, FedAccum.name) else 0


def copied(history: History) -> History:
    """Return another history of the same."""
    copy = History.in_memory()
    copy.ledger = deepcopy(history.ledger)
    for own, new in ((history.models, copy.models), (history.updates, copy.updates)):
        for digest in own.digests():
            new.put(own.load(digest))
    return copy


def scores(
    engine: Simulation, model: Mapping[str, Tensor], leaving: Sequence[str], gone: Sequence[str], stay: Sequence[str]
) -> Row:
    """Return the accuracies on those who have just left, on who remains, on held-out data, on who left before."""
    return {
        "forget": round(engine.accuracy(model, leaving), 4),
        "retain": round(engine.accuracy(model, stay), 4),
        "test": round(engine.test_accuracy(model), 4),
        "earlier": round(engine.accuracy(model, gone), 4) if gone else None,
    }


def reference_of(configuration: Configuration, federation: Federation) -> Mapping[str, Tensor]:
    """Return a model that never had anybody who leaves in any request, trained by other draws; made once."""
    key = _without(configuration, (*FORGETTING, *ENDING))
    if key not in _references:
        engine, _ = _engine({**configuration, "method": Scratch.name}, federation, b"reference")
        leaving = configuration["leaving"]
        ever = {engine.clients[group * leaving + at] for group in configuration["groups"] for at in range(leaving)}
        others = [name for name in engine.clients if name not in ever]
        _references[key] = trained_on(engine, engine.start(), others, configuration["reference"])
    return _references[key]


def compared(
    plain: Federation, marked: marks.Marked | None, request: int, names: Sequence[str]
) -> tuple[Compared, Compared]:
    """Return the examples of who leaves, and held-out ones; both with their marks, by their classes without them."""
    own = together([plain.shards[name] for name in names])
    if marked is None:
        return Compared(own, own.labels), Compared(plain.test, plain.test.labels)
    shown = together([marked.federation.shards[name] for name in names])
    return Compared(shown, own.labels), Compared(marked.put_on(plain.test, request), plain.test.labels)


def _engine(configuration: Configuration, data: Federation, world: bytes = b"requests") -> tuple[Departing, Server]:
    """Return the engine and the server that a method needs: DP's noises every round, by its own kind of sample."""
    method, drawn = configuration["method"], configuration["drawn"]
    training, model = trained_by(configuration, data)
    kind = Assuming if method == PUBLISHED else Departing
    options: dict[str, Any] = {"batch": configuration.get("batch"), "secret_noise": False}
    secret = options["secret"] = b"%b %d" % (world, configuration["seed"])
    if method != Dp.name:
        return kind(data, model, training, sampling=Sampling.FIXED_SIZE, size=drawn, **options), Average()
    server = NoisedAverage(
        clip=configuration["clip"],
        denominator=drawn,
        noise_multiplier=configuration["noise_multiplier"],
        seed=secret,
    )
    engine = kind(
        data,
        model,
        replace(training, clips_updates=True),
        sampling=Sampling.POISSON,
        rate=drawn / configuration["clients"],
        public_schedule=True,
        public=server.facts,
        **options,
    )
    return engine, server


class Serving:
    """A method at work on one history; ``seen`` holds the models that the last request's branch was asked for."""

    def __init__(
        self, history: History, engine: Departing, server: Server, method: Method, configuration: Configuration
    ) -> None:
        self._history, self._engine, self._method, self._capacity = history, engine, method, configuration["capacity"]
        self._seed = noise_seed(configuration)
        self._published = configuration["method"] == PUBLISHED
        budget = ClassicBudget if self._published else Budget
        # The signature of ``ask`` offers only what can be certified.
        self._budget = cast(Budget, budget(configuration["epsilon"], configuration["delta"]))
        self._scope = PrivacyScope.INDIVIDUAL if self._published else PrivacyScope.GROUP
        self.seen: dict[int, Mapping[str, Tensor]] = {}
        self._wanted: frozenset[int] = frozenset()
        self.revocable = Revocable(
            history,
            engine,
            server,
            capacity=self._capacity,
            update_interval=_update_interval(method.name),
            seed=self._seed,
            watch=self._watch,
            scored=False,
        )

    def forget(self, names: Sequence[str], until: Stop, wanted: Collection[int]) -> Row:
        """Serve one request and tell how; the model of the last round is seen, and those of the rounds wanted."""
        history, engine = self._history, self._engine
        known = list(history.ledger.pseudonyms(names))
        engine.gone |= set(names).difference(known)
        number = history.ask(known, self._budget, scope=self._scope)
        self.seen, self._wanted = {}, frozenset(wanted)
        if self._published:
            self._begin(number)
        (outcome,) = self.revocable.forget(self._method, until, level=ErasureLevel.OUTPUT)
        if outcome.planned is None:
            raise RuntimeError(f"the newest model knows nobody of {', '.join(known)}: there is nothing to measure")
        self.seen[outcome.rounds] = history.model(history.newest)
        candidate = outcome.planned.candidate
        return {
            "way": "published" if self._published else "sound",
            "rounds": outcome.rounds,
            "from": f"{candidate.node.branch}.{candidate.node.round}",
            # The control's noise hides nobody, and is in no plan.
            "sigma": self._method.sigma if isinstance(self._method, NoisedStart) else candidate.sigma,
            "mode": claim(outcome, number, public_rounds=history.facts.public_rounds).value,
        }

    def _watch(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        if model_id.branch and model_id.round in self._wanted:
            self.seen[model_id.round] = model

    def _begin(self, number: int) -> None:
        """Begin the branch as the paper does: with the noised model as it is. ``forget`` goes on from there."""
        history, engine = self._history, self._engine
        plan = self.revocable.plan(self._method, number)
        sigma, grid = plan.candidate.sigma, history.run.grid
        if not sigma:
            return
        parent = ModelId(plan.candidate.node.branch, plan.candidate.node.round)
        model = history.model(parent)
        noised = draw_noise(model, sigma, self._seed, "restart", history.newest.branch + 1, grid=grid)
        unit = UNIT_ROUNDOFF[engine.facts.training.precision]
        parameters = sum(tensor.size for tensor in model.values())
        rounding = grid_rounding(parameters, norm(noised), unit, grid)
        # The same facts and numbers as the federation's own recording.
        options: dict[str, Any] = {"capacity": self._capacity, "goal": None, "update_interval": 0}
        with history.recording(engine.facts, engine.start(), **options) as recorder:
            recorder.restart(
                parent, noised, requests=plan.requests, sigma=sigma, noise_rounding=rounding, unit_roundoff=unit
            )


def claim(outcome: Outcome, number: int, *, public_rounds: bool) -> Mode:
    """Return what would be claimed right after a request was served, had its noise been drawn in secret."""
    plan, branch = outcome.planned, outcome.branch
    if plan is None or branch is None or plan.candidate.mode is Mode.EXACT:
        return Mode.EXACT
    if not plan.candidate.obstacles or set(plan.candidate.obstacles) != {REPRODUCIBLE}:
        return plan.candidate.mode
    # Noise that only earlier requests need leaves this one as untouched as it was.
    if branch.sigma and number not in branch.hidden:
        return Mode.EXACT
    return Mode.STRICT if plan.public_plan and public_rounds else Mode.INSTANCE
