"""Requests one after the other, by one method: how many rounds each costs, and what is left of those who left.

Softmax regression on pixels, or a small convolutional network on images. Groups of clients leave in turn; after each,
the method trains on until the remaining clients' mean accuracy on their own data is back at the threshold, or for
``shares`` of the training's rounds; ``solve`` ends by itself. The prefix before a restart is kept, as in the paper.

There are two ways to have SIFU. ``sound`` is the product's: exact noise, the group jointly, a proven B. ``published``
is the paper's, with the weights put right: B = 1 taken as given, the largest Psi of a single client, the classic
formula, and sigma to the letter. The others are the same in both. FedEraser, FedAccum and the noised start go back by
a tape, without a history.

Everything is drawn by the configuration's seed, noise too, and noise that can be drawn again is never certified. So
``mode`` is what the same plan claims with secret noise: the product's own answer, with that one obstacle left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, cast

from experiments.data.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from experiments.runs import marks
from experiments.runs.membership import Compared, together, told_apart
from experiments.runs.restarts import trained_on
from experiments.taped import tape
from experiments.taped.fedaccum import FedAccum
from experiments.taped.federaser import FedEraser
from rescind import History, Sampling
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.edges import ModelId
from rescind.core.facts import REPRODUCIBLE, Facts, Mode, PrivacyScope
from rescind.core.noise import GRID, grid_rounding, public_sigma
from rescind.core.regularity import NetworkLoss
from rescind.core.solver import Solving
from rescind.core.training import UNIT_ROUNDOFF
from rescind.engines.server import Average, NoisedAverage, Server, draw_noise, norm
from rescind.engines.stops import Accuracy, Rounds, Stop
from rescind.forgetting import Revocable
from rescind.history.outcomes import Outcome
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, FineTuning, Last, Method, PaperSifu, Scratch, Sifu, Solve
from rescind.simulation import Federation, Simulation

PUBLISHED = "SIFU as published"
# As exact; but noise can no longer be planned from where it ends.
LOOSE = "solve to 0.01"
# FedEraser and FedAccum go back by what clients sent in every tenth round; this one by all of it.
TAPE_INTERVAL, EVERY_ROUND = 10, "FedAccum, every round"
# What says how to forget, not how to train: runs that differ only in these have their training in common.
FORGETTING = ("method", "fixed_sigma", "epsilon", "delta", "shares", "reference")
# What does not matter to the attack's reference either, which is trained for a number of rounds, and never by DP.
ENDING = ("capacity", "clip", "noise_multiplier", "threshold", "least", "most", "every")
# So many trainings a process keeps for the runs that come next.
TRAININGS = 3


Training = TypeVar("Training", History, tape.Tape)


@dataclass(frozen=True, slots=True)
class NoisedStart(tape.TapeMethod):
    """Trains again from the start under the paper's noise: a control, for what noise by itself does to training."""

    sigma: float
    seed: bytes
    name: ClassVar[str] = "Scratch, noised start"
    why: ClassVar[str] = "there is nobody to hide in the start, and no plan has noise there"

    def begin(self, start: tape.Model, rounds: Sequence[tape.TapedRound], branch: int) -> tape.Beginning:  # noqa: ARG002
        """Add the noises of all branches so far: the published rule mostly goes back to a model that has had them."""
        model: Mapping[str, Tensor] = start
        for number in range(1, branch + 1):
            model = draw_noise(model, self.sigma, self.seed, "restart", number, grid=GRID)
        return tape.Beginning(model)


METHODS: Mapping[str, Callable[[Configuration], Method | tape.TapeMethod]] = {
    Scratch.name: lambda _: Scratch(),
    NoisedStart.name: lambda asked: NoisedStart(asked["fixed_sigma"], noise_seed(asked)),
    Sifu.name: lambda _: Sifu(),
    PaperSifu.name: lambda asked: PaperSifu(public_sigma(asked["fixed_sigma"])),
    PUBLISHED: lambda asked: PaperSifu(asked["fixed_sigma"]),
    Last.name: lambda _: Last(),
    FineTuning.name: lambda _: FineTuning(),
    FedEraser.name: lambda _: FedEraser(),
    FedAccum.name: lambda _: FedAccum(),
    EVERY_ROUND: lambda _: FedAccum(),
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

    def __init__(self, round_: int) -> None:
        super().__init__(f"training broke down under its own noise after round {round_}")


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

    with ExitStack() as stack:
        served: Serving | TapeServing
        if isinstance(method, tape.TapeMethod):
            served = TapeServing(trained_tape(configuration, engine, until), engine, method)
        else:
            history = stack.enter_context(trained(configuration, engine, server, method, until))
            served = Serving(history, engine, server, method, configuration)
        training, first = served.newest
        shares = {share: Rounds.share(share, training).most for share in configuration.get("shares", ())}
        gone: list[str] = []
        for number, group in enumerate(configuration["groups"], 1):
            names = list(everybody[group * leaving : (group + 1) * leaving])
            said: Row = {"method": configuration["method"], "request": number, "trained": training}
            try:
                # The models at the smaller shares lie on the way to the largest one.
                said |= served.forget(names, Rounds(max(shares.values())) if shares else until, shares.values())
            except (BrokenDownError, ValueError) as refusal:
                if isinstance(refusal, ValueError) and not isinstance(method, Last):
                    raise
                # What comes after it cannot be served either.
                found.append(said | {"refusal": str(refusal)})
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


_trained: dict[str, History | tape.Tape] = {}
_references: dict[str, Mapping[str, Tensor]] = {}


def trained(configuration: Configuration, engine: Departing, server: Server, method: Method, until: Stop) -> History:
    """Return a history of the training; one that this process has trained already is copied."""

    def train() -> History:
        history = History.in_memory()
        try:
            Serving(history, engine, server, method, configuration).revocable.train(until)
        except ValueError as error:
            if not isinstance(method, Dp):
                raise
            raise BrokenDownError(history.newest.round) from error
        return history

    return copied(_remember(configuration, engine, "history", train))


def trained_tape(configuration: Configuration, engine: Departing, until: Stop) -> tape.Tape:
    """Return a tape of the training."""
    interval = 1 if configuration["method"] == EVERY_ROUND else TAPE_INTERVAL
    start = tape.Tape(engine.start(), interval)
    kind = f"tape of every {interval}"
    return _remember(configuration, engine, kind, lambda: tape.train(engine, start, engine.clients, until))


def _remember(configuration: Configuration, engine: Departing, kind: str, train: Callable[[], Training]) -> Training:
    """Return what a training leaves; if this process has trained alike already, that of then."""
    later = FORGETTING if configuration.get("marked") else (*FORGETTING, "groups")
    key = f"{engine.facts} {kind} {_without(configuration, later)}"
    if key not in _trained:
        while len(_trained) >= TRAININGS:
            oldest = _trained.pop(next(iter(_trained)))
            if isinstance(oldest, History):
                oldest.close()
        _trained[key] = train()
    return cast(Training, _trained[key])


def _without(configuration: Configuration, names: Collection[str]) -> str:
    return json.dumps({name: value for name, value in configuration.items() if name not in names})


def copied(history: History) -> History:
    """Return another history of the same."""
    copy = History.in_memory(deepcopy(cast(MemoryLedger, history.ledger)))
    for digest in history.models.digests():
        copy.models.put(history.models.load(digest))
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
            seed=self._seed,
            watch=self._watch,
            scored=False,
        )

    @property
    def newest(self) -> tuple[int, Mapping[str, Tensor]]:
        """The number of the newest branch's rounds, and the newest model."""
        return self._history.newest.round, self._history.model(self._history.newest)

    def forget(self, names: Sequence[str], until: Stop, wanted: Collection[int]) -> Row:
        """Serve one request and tell how; the model of the last round is seen, and those of the rounds wanted."""
        history, before = self._history, self._history.newest.branch
        try:
            return self._forget(names, until, wanted)
        except ValueError as error:
            # Weights under noise, or noise, that no grid holds.
            begun = history.timeline.branches[history.newest.branch]
            if begun.number > before and (begun.sigma > 0 or isinstance(self._method, Dp)):
                raise BrokenDownError(history.newest.round) from error
            raise

    def _forget(self, names: Sequence[str], until: Stop, wanted: Collection[int]) -> Row:
        history, engine = self._history, self._engine
        known = list(history.ledger.pseudonyms(names))
        engine.gone |= set(names).difference(known)
        number = history.requests.ask(known, self._budget, scope=self._scope)
        self.seen, self._wanted = {}, frozenset(wanted)
        if self._published:
            self._begin(number)
        (outcome,) = self.revocable.forget(self._method, until, level=ErasureLevel.OUTPUT)
        if outcome.restart is None:
            raise RuntimeError(f"the newest model knows nobody of {', '.join(known)}: there is nothing to measure")
        self.seen[outcome.rounds] = history.model(history.newest)
        candidate = outcome.restart.planned.candidate
        return {
            "way": "published" if self._published else "sound",
            "rounds": outcome.rounds,
            "from": f"{candidate.node.branch}.{candidate.node.round}",
            "sigma": candidate.sigma,
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
        options: dict[str, Any] = {"capacity": self._capacity, "goal": None}
        with history.recording(engine.facts, engine.start(), **options) as recorder:
            recorder.restart(
                parent, noised, requests=plan.requests, sigma=sigma, noise_rounding=rounding, unit_roundoff=unit
            )


class TapeServing:
    """A method at work on a tape; ``seen`` holds the models that the last request's branch was asked for."""

    def __init__(self, start: tape.Tape, engine: Departing, method: tape.TapeMethod) -> None:
        self._tape, self._engine, self._method = start, engine, method
        self._gone: set[str] = set()
        self.seen: dict[int, Mapping[str, Tensor]] = {}

    @property
    def newest(self) -> tuple[int, Mapping[str, Tensor]]:
        """The number of the newest branch's rounds, and the newest model."""
        return self._tape.round, self._tape.model

    def forget(self, names: Sequence[str], until: Stop, wanted: Collection[int]) -> Row:
        """Serve one request and tell how; the model of the last round is seen, and those of the rounds wanted."""
        self._gone |= set(names)
        if self._gone.isdisjoint(self._tape.joined):
            raise RuntimeError(f"nobody of {', '.join(names)} took part: there is nothing to measure")
        self.seen = {}

        def watch(model_id: ModelId, model: Mapping[str, Tensor]) -> None:
            if model_id.round in wanted:
                self.seen[model_id.round] = model

        try:
            self._tape = tape.forget(self._engine, self._tape, self._method, self._gone, until, watch)
        except tape.DivergedError as error:
            if isinstance(self._method, NoisedStart):
                raise BrokenDownError(error.round) from error
            raise
        self.seen[self._tape.round] = self._tape.model
        return {
            "way": "sound",
            "rounds": self._tape.round,
            "from": "0.0",
            # The control's noise hides nobody.
            "sigma": self._method.sigma if isinstance(self._method, NoisedStart) else 0.0,
            "mode": Mode.HEURISTIC.value,
        }


def claim(outcome: Outcome, number: int, *, public_rounds: bool) -> Mode:
    """Return what would be claimed right after a request was served, had its noise been drawn in secret."""
    if outcome.restart is None or outcome.restart.planned.candidate.mode is Mode.EXACT:
        return Mode.EXACT
    plan, branch = outcome.restart.planned, outcome.restart.branch
    if not plan.candidate.obstacles or set(plan.candidate.obstacles) != {REPRODUCIBLE}:
        return plan.candidate.mode
    # Noise that only earlier requests need leaves this one as untouched as it was.
    if branch.sigma and number not in branch.hidden:
        return Mode.EXACT
    return Mode.STRICT if plan.public_plan and public_rounds else Mode.INSTANCE
