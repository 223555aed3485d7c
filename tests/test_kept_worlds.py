"""Kept sums in two worlds: whoever left, and whatever its rows were, the model is the one without it, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rescind import Budget, History, LocalTraining, Revocable, Rounds, Solve, SquaredL2
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, Mode, PrivacyScope, Sampling, Source, Sources
from rescind.core.ridge import RidgeSums
from rescind.core.rounds import Answers
from rescind.engines.engine import Keep, show_each
from rescind.engines.heads import sum_ridge
from rescind.errors import ForgottenClientError
from rescind.history import subtotals, sums
from rescind.history.participants import Participants
from rescind.history.recorder import Recorder
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import ErasureLevel
from rescind.serving import serve
from rescind.unattended import Unattended

LOSS = SquaredL2(0.01, 1.0, most_rows=1000, most_clients=10)
FACTS = Facts(
    training=LocalTraining.solved(LOSS),
    sampling=Sampling.EVERYBODY,
    independent_randomness=True,
    redrawn_rounds=False,
    secret_noise=True,
    sources=Sources(training=Source.EXECUTED),
    keeps_sums=True,
)
LEAVER, OTHERS = "a leaver", ("bern", "cork", "delft")
EVERYBODY = (LEAVER, *OTHERS)
FEATURES, OUTPUTS = 4, 2
Event: TypeAlias = tuple[str, str]


class Clinics:
    """Clients that come and go, have more or fewer rows, and do not always answer.

    What a client sends follows from the model that it is shown, if that is not the first: some code would do that.
    """

    facts = FACTS
    refuse = Unattended.refuse
    draw = train = refuse
    accuracy = test_accuracy = Unattended.measure

    def __init__(self, history: History, version: int) -> None:
        self.history, self.version = history, version
        self.connected, self.mute = dict[str, int](), set[str]()

    def start(self) -> dict[str, Tensor]:
        return {"weight": np.zeros((OUTPUTS, FEATURES)), "bias": np.zeros(OUTPUTS)}

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(name for name in EVERYBODY if name in self.connected)

    def ridge_sums(
        self, model: Mapping[str, Tensor], _: ModelId, names: Sequence[str], keep: Keep | None = None
    ) -> Answers:
        bent = float(sum(np.abs(tensor).sum() for tensor in model.values()))

        def answer() -> list[tuple[str, RidgeSums]]:
            return [(name, self.sum_rows(name, bent)) for name in names if name not in self.mute]

        return Answers.collect_ridge(show_each(answer(), keep))

    def sum_rows(self, name: str, bent: float) -> RidgeSums:
        seed = [EVERYBODY.index(name), self.version if name == LEAVER else 0]
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(self.connected[name], FEATURES)) + bent
        # They tell something of their labels, else the largest L2 term would always suit best.
        labels = (rows[:, 0] + rng.normal(size=len(rows)) > bent).astype(int)
        return sum_ridge(rows, np.eye(OUTPUTS)[labels], LOSS)


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Let a few clients have subtotals of subtotals, and be parted in two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subtotals, "_FAN_OUT", 2)
        patch.setattr(sums, "_FOLDS", 2)
        # Who is left out together follows from the secret, which both worlds have.
        patch.setattr(MemoryLedger, "outside_secret", lambda _, purpose: purpose.encode())
        yield


@pytest.fixture
def choosing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the L2 term be chosen, so finely that any other rows would choose another."""
    loss = replace(LOSS, l2_choices=tuple(np.geomspace(1e-3, 10, 80)))
    monkeypatch.setattr(Clinics, "facts", replace(FACTS, training=LocalTraining.solved(loss)))


def live(script: Sequence[Event], version: int | None) -> tuple[dict[str, Tensor], set[str]] | None:
    """Return the last model, and who is in it; without a ``version`` the leaver never was.

    None if somebody still waits, as nobody is left: then nothing is claimed.
    """
    history = History.in_memory()
    clinics = Clinics(history, version or 0)
    federation = Revocable(history, clinics, scored=False)

    def run() -> None:
        if not (clinics.clients or history.sums.digests()):
            return
        with suppress(ValueError):
            serve(federation, Rounds(1), Solve())

    def forget() -> None:
        with suppress(ValueError):
            federation.forget(Solve(), Rounds(1), level=ErasureLevel.PURGE)

    def ask(name: str, scope: PrivacyScope = PrivacyScope.GROUP) -> None:
        waiting = {client for filed in history.timeline.open_requests.values() for client in filed.request.group}
        if history.participants.all().get(name, 0) in {*history.participants.all().values()} - waiting:
            history.requests.ask([name], Budget(1.0, 1e-5), scope=scope)

    for event, name in [*script, ("leave", LEAVER), ("run", OTHERS[0])]:
        if version is None and name == LEAVER and event != "run":
            continue
        if event == "connect":
            clinics.connected.setdefault(name, 12)
        elif event == "disconnect":
            clinics.connected.pop(name, None)
        elif event == "rows" and name in clinics.connected:
            clinics.connected[name] += 3
        elif event == "mute":
            clinics.mute ^= {name}
        elif event == "renew":
            with suppress(ValueError):
                history.sums.ask_again([history.participants.all().get(name, 0)])
        elif event in ("leave", "records"):
            ask(name, PrivacyScope.RECORDS if event == "records" and name != LEAVER else PrivacyScope.GROUP)
        elif event == "readmit":
            with suppress(Exception):
                history.participants.readmit(name, "a new contract")
        elif event == "forget" and history.timeline.branches:
            forget()
        elif event == "run":
            run()
    if version is not None:
        ask(LEAVER)
    clinics.connected.pop(LEAVER, None)
    run()
    if not history.timeline.branches:
        return {}, set()
    assert history.timeline.solved
    assert all(outcome.mode is Mode.EXACT for outcome in history.outcomes())
    assert history.integrity.verify() == []
    if history.timeline.open_requests:
        return None
    known = history.sums.digests().keys()
    return history.model(history.newest), {*known}


EVENTS = st.tuples(
    st.sampled_from(
        ["connect", "run", "rows", "renew", "leave", "records", "readmit", "mute", "forget", "disconnect"]
    ),
    st.sampled_from(EVERYBODY),
)
CONNECT = [("connect", name) for name in EVERYBODY]
# A client was asked in vain, and has its voice back when somebody else leaves.
LATE = [
    *CONNECT,
    ("mute", "bern"),
    ("run", ""),
    ("mute", "bern"),
    ("leave", LEAVER),
    ("forget", ""),
    ("rows", "bern"),
]


def compare(script: Sequence[Event]) -> None:
    never = live(script, None)
    for version in (1, 2):
        left = live(script, version)
        if left is None or never is None:
            continue
        (without, others), (model, known) = never, left
        assert known == others
        assert {name: tensor.tobytes() for name, tensor in model.items()} == {
            name: tensor.tobytes() for name, tensor in without.items()
        }


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(EVENTS, max_size=15).map(lambda events: [*CONNECT, ("run", ""), *events]))
@example(script=LATE)
def test_the_model_is_the_one_without_whoever_left(script: list[Event]) -> None:
    compare(script)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(script=st.lists(EVENTS, max_size=12).map(lambda events: [*CONNECT, ("run", ""), *events]))
@example(script=LATE)
def test_the_l2_term_is_the_one_without_whoever_left(choosing: None, script: list[Event]) -> None:
    compare(script)


JOINS = [("connect", LEAVER), ("connect", "bern"), ("run", ""), ("connect", "cork"), ("run", "")]


# A subtotal was made with the leaver, and is needed once more without it.
AGAIN = [*CONNECT, ("run", ""), ("leave", LEAVER), ("run", ""), ("rows", "bern"), ("renew", "bern"), ("run", "")]
WRONG = {
    "asks because somebody leaves": LATE,
    "shows the newest model": JOINS,
    "adds up whoever left": LATE,
    "names subtotals by their place": AGAIN,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_versions_are_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "asks because somebody leaves":
        original = Revocable._solve
        monkeypatch.setattr(Revocable, "_solve", lambda *args, asking=None: original(*args))  # noqa: ARG005
    elif wrong == "shows the newest model":
        monkeypatch.setattr(Recorder, "first_model", Recorder.model)
    elif wrong == "names subtotals by their place":
        join = subtotals._join

        def join_by_place(below: list[subtotals.Node]) -> subtotals.Node:
            node = join(below)
            return replace(node, file=f"{min(node.clients) // 8:064x}") if node.below else node

        monkeypatch.setattr(subtotals, "_join", join_by_place)
    else:
        remaining = Participants.remaining
        monkeypatch.setattr(
            Participants, "remaining", lambda self, names, **more: list(names) if not more else remaining(self, names)
        )
    with pytest.raises((AssertionError, ForgottenClientError)):
        compare(WRONG[wrong])


BETWEEN = [("connect", "bern"), ("run", ""), *CONNECT, ("run", "")]


@pytest.mark.parametrize("wrong", ["chooses with everybody whose sums are kept", "parts clients by their pseudonym"])
def test_wrong_choices_are_caught(choosing: None, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = sums.KeptSums.choose_l2
    if wrong == "parts clients by their pseudonym":

        def part(self: sums.KeptSums, names: Sequence[str]) -> list[list[str]]:
            known = self._ledger.pseudonyms(list(names))
            return [[name for name in names if known[name] % 2 == fold] for fold in range(2)]

        monkeypatch.setattr(sums.KeptSums, "_part", part)
    else:
        monkeypatch.setattr(sums.KeptSums, "choose_l2", lambda self, _, loss: choose(self, [*self.digests()], loss))
    with pytest.raises(AssertionError):
        compare(BETWEEN)
