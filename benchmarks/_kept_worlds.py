"""Kept sums in two worlds: whoever left, and whatever its rows were, the model is the one without it, bit by bit.

Clients join, leave, are readmitted, have other rows and fall silent; servers die in between, and old backups are
restored. The same script is lived through without the leaver, and with two versions of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar, TypeAlias, cast
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from rescind import Budget, History, LocalTraining, Revocable, Rounds, Solve, SquaredL2
from rescind.core import ridge
from rescind.core.arrays import Floats, Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, Mode, PrivacyScope, Sampling, Source, Sources
from rescind.core.ridge import Integers, RidgeSums
from rescind.core.rounds import Answers
from rescind.engines.engine import Keep, show_each
from rescind.engines.heads import sum_ridge
from rescind.errors import ForgottenClientError, UnknownClientError
from rescind.history import subtotals, sums
from rescind.history.participants import Participants
from rescind.history.recorder import Recorder
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import ErasureLevel
from rescind.serving import serve
from rescind.unattended import Unattended
from rescind.views.overview import find_unfinished

LEAVER, OTHERS = "a leaver", ("bern", "cork", "delft")
EVERYBODY = (LEAVER, *OTHERS)
# What happens, and to whom; "" where it happens to nobody in particular.
Event: TypeAlias = tuple[str, str]
CONNECT: list[Event] = [("connect", name) for name in EVERYBODY]
RUN: Event = ("run", "")
# One of them is asked in vain, and has its voice back.
BEGIN: list[Event] = [*CONNECT, ("mute", "cork"), RUN, ("mute", "cork")]
_OUTPUTS, _ROWS, _MORE_ROWS = 2, 12, 3
_LOSS = SquaredL2(0.01, 1.0, most_rows=1000, most_clients=10)
# So many that more than one thread would solve for them in another order.
_MANY_FEATURES = 150
# So fine that any other rows would choose another.
_CHOICES = tuple(np.geomspace(1e-3, 10, 80))
# A server dies at another client's answer, or where nobody is asked: when the leaver is there decides nothing then.
EVENTS: list[Event] = [
    *product(("connect", "disconnect", "rows", "mute", "renew", "leave", "records", "readmit"), EVERYBODY),
    *product(("die asking", "die storing"), OTHERS),
    *[(event, "") for event in ("die recording", "die erasing", "back up", "restore") for _ in range(2)],
    *[(event, "") for event in ("run", "forget") for _ in range(4)],
]


class Died(Exception):  # noqa: N818
    """The server died."""


@dataclass(frozen=True)
class Setting:
    """How many features the head has, and whether its L2 term is chosen."""

    features: int = 4
    choosing: bool = False

    @property
    def facts(self) -> Facts:
        loss = replace(_LOSS, l2_choices=_CHOICES) if self.choosing else _LOSS
        return Facts(
            training=LocalTraining.solved(loss),
            sampling=Sampling.EVERYBODY,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=True,
            sources=Sources(training=Source.EXECUTED),
            keeps_sums=True,
        )


class Clinics:
    """Clients that come and go, have more or fewer rows, and do not always answer.

    What a client sends follows from the model that it is shown, if that is not the first: some code would do that.
    """

    refuse = Unattended.refuse
    draw = train = refuse
    accuracy = test_accuracy = Unattended.measure

    def __init__(self, setting: Setting, version: int) -> None:
        self.facts, self.features, self.version = setting.facts, setting.features, version
        self.connected, self.mute, self.fatal = dict[str, int](), set[str](), ""

    def start(self) -> dict[str, Tensor]:
        return {"weight": np.zeros((_OUTPUTS, self.features)), "bias": np.zeros(_OUTPUTS)}

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(name for name in EVERYBODY if name in self.connected)

    def ridge_sums(
        self, model: Mapping[str, Tensor], _: ModelId, names: Sequence[str], keep: Keep | None = None
    ) -> Answers:
        bent = float(sum(np.abs(tensor).sum() for tensor in model.values()))
        return Answers.collect_ridge(show_each(self.answers(names, bent), keep))

    def answers(self, names: Sequence[str], bent: float) -> Iterator[tuple[str, RidgeSums]]:
        for name in names:
            if name == self.fatal:
                raise Died
            if name not in self.mute:
                yield name, self.sum_rows(self.rows(name) + bent, name, bent)

    def rows(self, name: str) -> Floats:
        return self._draw(name, 0).normal(size=(self.connected[name], self.features))

    def sum_rows(self, rows: Floats, name: str, bent: float) -> RidgeSums:
        # They tell something of their labels, else the largest L2 term would always suit best.
        labels = (rows[:, 0] + self._draw(name, 1).normal(size=len(rows)) > bent).astype(int)
        return sum_ridge(rows, np.eye(_OUTPUTS)[labels], _LOSS)

    def _draw(self, name: str, purpose: int) -> np.random.Generator:
        return np.random.default_rng((EVERYBODY.index(name), self.version if name == LEAVER else 0, purpose))


@dataclass(frozen=True)
class End:
    """How a world ends: with which model, of whose sums, and what is wrong with it."""

    model: Mapping[str, bytes] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()


class World:
    """A federation and its operator; without a ``version`` the leaver never was."""

    def __init__(self, setting: Setting, version: int | None, clinics: type[Clinics] = Clinics) -> None:
        self.history, self.version = History.in_memory(), version
        self.clinics, self.barred = clinics(setting, version or 0), set[str]()
        self.backup: History | None = None
        # The operator's own list, of what was asked since the backup.
        self.asked: list[tuple[str, PrivacyScope]] = []

    def live(self, script: Sequence[Event]) -> End | None:
        """Return how it ends once the leaver has left; None if somebody still waits: then nothing is claimed."""
        # However many threads there are in one of the worlds, the solution is the other's.
        with threadpool_limits(1 if self.version is None else 2, "blas"):
            for event, name in [*script, ("leave", LEAVER), RUN]:
                if name != LEAVER or self.version is not None:
                    self.happen(event, name)
            if self.version is not None:
                self.ask(LEAVER)
            self.clinics.connected.pop(LEAVER, None)
            self.run()
        history = self.history
        if not history.timeline.branches:
            return End()
        if find_unfinished(history):
            return None
        inexact = [f"it ends {outcome.mode}" for outcome in history.outcomes() if outcome.mode is not Mode.EXACT]
        unsolved = [] if history.timeline.solved else ["nothing is solved"]
        faults = (*inexact, *unsolved, *map(str, history.integrity.verify()))
        model = {name: tensor.tobytes() for name, tensor in history.model(history.newest).items()}
        return End(model, frozenset(history.sums.digests()), faults)

    def happen(self, event: str, name: str) -> None:
        clinics, history = self.clinics, self.history
        match event:
            case "connect" if name not in self.barred:
                clinics.connected.setdefault(name, _ROWS)
            case "disconnect":
                clinics.connected.pop(name, None)
            case "rows" if name in clinics.connected:
                clinics.connected[name] += _MORE_ROWS
            case "mute":
                clinics.mute ^= {name}
            case "renew":
                with suppress(ValueError):
                    history.sums.ask_again([history.participants.all().get(name, 0)])
            case "leave":
                self.ask(name)
            case "records":
                # Of the leaver all rows go.
                self.ask(name, PrivacyScope.GROUP if name == LEAVER else PrivacyScope.RECORDS)
            case "readmit":
                self.barred.discard(name)
                with suppress(ValueError, UnknownClientError):
                    history.participants.readmit(name, "a new contract")
            case "run":
                self.run()
            case "forget":
                with suppress(ValueError):
                    self._federation().forget(Solve(), Rounds(1), level=ErasureLevel.PURGE)
            case "die asking" | "die storing" | "die recording" | "die erasing":
                self.die(event, name)
            case "back up":
                self.backup, self.asked = copy_history(history), []
            case "restore" if self.backup is not None:
                self.history = copy_history(self.backup)
                self.ask_once_more()

    def run(self) -> None:
        # Else there is nobody to begin with.
        if self.clinics.clients or self.history.sums.digests():
            with suppress(ValueError):
                serve(self._federation(), Rounds(1), Solve())

    def ask(self, name: str, scope: PrivacyScope = PrivacyScope.GROUP) -> None:
        client = self.history.participants.all().get(name)
        if client is not None:
            # Whoever waits already, or is being served, does not ask again.
            with suppress(ValueError):
                self.history.requests.ask([name], Budget(1.0, 1e-5), scope=scope)
                self.asked.append((name, scope))

    def ask_once_more(self) -> None:
        """Do what the documentation says of a restored backup: bar whoever left, and record all requests again."""
        again, self.asked = self.asked, []
        for name, scope in again:
            if scope is PrivacyScope.GROUP:
                self.barred.add(name)
                self.clinics.connected.pop(name, None)
            self.ask(name, scope)
        # The same backup may be restored once more.
        self.asked = again

    def die(self, event: str, name: str) -> None:
        """Let the server die in the middle of a run: at a client's answer, or in its own work with nobody there."""
        connected, keep = dict(self.clinics.connected), Recorder.keep_sums

        def keep_and_die(recorder: Recorder, sent: Mapping[str, str], *more: Mapping[str, int]) -> None:
            keep(recorder, sent, *more)  # type: ignore[arg-type]
            if name in sent:
                raise Died

        def die(*_: object, **__: object) -> None:
            raise Died

        own = {
            "die storing": ("keep_sums", keep_and_die),
            "die recording": ("record", die),
            "die erasing": ("erase", die),
        }
        if event == "die asking":
            self.clinics.fatal = name
        elif event != "die storing":
            self.clinics.connected = {}
        with suppress(Died), patch.object(Recorder, *own[event]) if event in own else nullcontext():
            self.run()
        self.clinics.fatal, self.clinics.connected = "", connected
        self.history = copy_history(self.history)

    def _federation(self) -> Revocable:
        return Revocable(self.history, self.clinics, scored=False)


def copy_history(history: History) -> History:
    """Return the history that is opened where another one's files were copied to."""
    copied = History.in_memory(deepcopy(cast(MemoryLedger, history.ledger)))
    for files, own in ((history.models, copied.models), (history.objects, copied.objects)):
        for file in files.digests():
            own.put_named(file, files.load_named(file))
    return copied


@contextmanager
def few() -> Iterator[None]:
    """Let a few clients have subtotals of subtotals, and be parted in two."""
    with (
        patch.object(subtotals, "_FAN_OUT", 2),
        patch.object(sums, "_FOLDS", 2),
        # Who is left out together follows from the secret, which both worlds have.
        patch.object(MemoryLedger, "outside_secret", lambda _, purpose: purpose.encode()),
    ):
        yield


@dataclass(frozen=True)
class Compared:
    """How many worlds with the leaver were compared with the one without, and how many of them differ."""

    pairs: int
    different: int


@dataclass(frozen=True)
class Case:
    """A script, and where it is lived through; ``wrong`` is what changes the product."""

    script: Sequence[Event]
    setting: Setting = Setting()
    clinics: type[Clinics] = Clinics
    world: type[World] = World
    wrong: Callable[[], AbstractContextManager[object]] = nullcontext

    def compare(self) -> Compared:
        """Live through the script in all three worlds."""
        with few(), self.wrong():
            without = self.world(self.setting, None, self.clinics).live(self.script)
            left = [self.world(self.setting, version, self.clinics).live(self.script) for version in (1, 2)]
        pairs = [end for end in left if end is not None and without is not None]
        return Compared(len(pairs), sum(end != without or end.faults != () for end in pairs))


def judge_kept_sums(index: int) -> Compared:
    """Compare the worlds of a random script."""
    rng = np.random.default_rng((index, 17))
    events = [EVENTS[at] for at in rng.integers(len(EVENTS), size=int(rng.integers(5, 30)))]
    setting = Setting(_MANY_FEATURES if rng.random() < 0.2 else 4, choosing=bool(rng.random() < 0.2))
    return Case([*BEGIN, *events], setting).compare()


def judge_wrong_sums(name: str) -> bool:
    """Return whether it shows that one wrong version is wrong."""
    try:
        return CASES[name].compare().different > 0
    except ForgottenClientError:
        # The recorder refuses it, whatever the sums are.
        return True


# What people get wrong


class SharingRoom(Clinics):
    """Those first by name are believed as long as there is room for all their rows."""

    _room: ClassVar[int] = 3 * _ROWS

    def answers(self, names: Sequence[str], bent: float) -> Iterator[tuple[str, RidgeSums]]:
        left = self._room
        for name, answer in super().answers(names, bent):
            left -= answer.rows
            if left >= 0:
                yield name, answer


class Standardised(Clinics):
    """The mean of everybody's rows is taken off them."""

    def sum_rows(self, rows: Floats, name: str, bent: float) -> RidgeSums:
        everybody = np.concatenate([self.rows(client) for client in self.clients])
        return super().sum_rows(rows - everybody.mean(axis=0), name, bent)


class Forgetful(World):
    """Nobody's request is recorded once more, as it was served before."""

    def ask(self, name: str, scope: PrivacyScope = PrivacyScope.GROUP) -> None:
        if (name, scope) not in self.asked:
            super().ask(name, scope)

    def ask_once_more(self) -> None:
        """Do nothing."""


@contextmanager
def _asking() -> Iterator[None]:
    solve = Revocable._solve
    with patch.object(Revocable, "_solve", lambda *args, asking=None: solve(*args)):  # noqa: ARG005
        yield


def _showing() -> AbstractContextManager[object]:
    return patch.object(Recorder, "first_model", Recorder.model)


@contextmanager
def _adding() -> Iterator[None]:
    remaining = Participants.remaining

    def everybody(self: Participants, names: Sequence[str], **more: bool) -> list[str]:
        return remaining(self, names, **more) if more else list(names)

    with patch.object(Participants, "remaining", everybody):
        yield


@contextmanager
def _placing() -> Iterator[None]:
    join = subtotals._join

    def join_by_place(below: list[subtotals.Node]) -> subtotals.Node:
        node = join(below)
        return replace(node, file=f"{min(node.clients) // 8:064x}") if node.below else node

    with patch.object(subtotals, "_join", join_by_place):
        yield


@contextmanager
def _choosing() -> Iterator[None]:
    choose = sums.KeptSums.choose_l2

    def choose_with_everybody(self: sums.KeptSums, _: Sequence[str], loss: SquaredL2) -> float:
        return choose(self, [*self.digests()], loss)

    with patch.object(sums.KeptSums, "choose_l2", choose_with_everybody):
        yield


def _parting() -> AbstractContextManager[object]:
    def part(self: sums.KeptSums, names: Sequence[str]) -> list[list[str]]:
        known = self._ledger.pseudonyms(list(names))
        return [[name for name in names if known[name] % 2 == fold] for fold in range(2)]

    return patch.object(sums.KeptSums, "_part", part)


@contextmanager
def _subtracting() -> Iterator[None]:
    read = sums.KeptSums.read

    def subtract(
        self: sums.KeptSums, names: Sequence[str], **_: bool
    ) -> Iterator[tuple[Mapping[str, int], RidgeSums]]:
        parts = [part for name in self.digests() for part in read(self, [name])]
        rows = {name: count for own, _ in parts for name, count in own.items() if name in names}

        def take_off(arrays: list[tuple[bool, Integers]]) -> Integers:
            total = sum(array.astype(np.float32) for _, array in arrays)
            gone = sum(array.astype(np.float32) for stays, array in arrays if not stays)
            return np.asarray(total - gone, dtype=np.int64)

        stay = [not own.keys().isdisjoint(names) for own, _ in parts]
        features = take_off([(stays, answer.features) for stays, (_, answer) in zip(stay, parts, strict=True)])
        targets = take_off([(stays, answer.targets) for stays, (_, answer) in zip(stay, parts, strict=True)])
        yield rows, RidgeSums(sum(rows.values()), parts[0][1].bits, features, targets)

    with patch.object(sums.KeptSums, "read", subtract):
        yield


def _threading() -> AbstractContextManager[object]:
    return patch.object(ridge, "_one_thread", nullcontext)


# Somebody else leaves, and then the client that was asked in vain has more rows.
LATE = [*BEGIN, ("leave", LEAVER), ("forget", ""), ("rows", "cork")]
_JOINS = [("connect", LEAVER), ("connect", "bern"), RUN, ("connect", "cork"), RUN]
# A subtotal was made with the leaver, and is needed once more without it.
_AGAIN = [*CONNECT, RUN, ("leave", LEAVER), RUN, ("rows", "bern"), ("renew", "bern"), RUN]
_BETWEEN = [("connect", "bern"), RUN, *CONNECT, RUN]
_LEAVES = [*CONNECT, RUN]
_RESTORED = [*CONNECT, RUN, ("back up", ""), ("leave", LEAVER), ("forget", ""), ("restore", ""), ("leave", "bern")]
CASES: Mapping[str, Case] = {
    "asks because somebody leaves": Case(LATE, wrong=_asking),
    "shows the newest model": Case(_JOINS, wrong=_showing),
    "adds up whoever left": Case(LATE, wrong=_adding),
    "names subtotals by their place": Case(_AGAIN, wrong=_placing),
    "chooses with everybody whose sums are kept": Case(_BETWEEN, Setting(choosing=True), wrong=_choosing),
    "parts clients by their pseudonym": Case(_BETWEEN, Setting(choosing=True), wrong=_parting),
    "lets clients share the room for rows": Case([*_LEAVES, ("disconnect", "delft")], clinics=SharingRoom),
    "takes the leaver's sums off a total in float32": Case(_LEAVES, wrong=_subtracting),
    "adds up whom a backup brought back": Case(_RESTORED, world=Forgetful),
    "takes everybody's mean off the features": Case(_LEAVES, clinics=Standardised),
    "solves in as many threads as are free": Case(_LEAVES, Setting(_MANY_FEATURES), wrong=_threading),
}
