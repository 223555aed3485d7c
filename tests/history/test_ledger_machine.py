"""Whatever is done in whatever order: SQLite and the reference agree on all that can be read, heads included."""

import hashlib
import secrets
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rescind.core.edges import ModelId
from rescind.errors import HistoryError
from rescind.ledger.commitments import broken_links
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import Span
from rescind.ledger.sql import SqlLedger
from tests.history.ledger_suite import NOW, a_round, a_stretch, digest, group, readable

BRANCHES = st.integers(0, 3)
NUMBERS = st.integers(0, 6)
PLACES = st.builds(ModelId, BRANCHES, NUMBERS)
SPANS = st.builds(lambda branch, first, length: Span(branch, first, first + length), BRANCHES, NUMBERS, NUMBERS)
CLIENTS = st.lists(st.integers(1, 12), max_size=6, unique=True)
NAMES = ["ann", "Ann", "ann ", "bob", "'; --", "病院", "\u00e9", "e\u0301", "x" * 256, "1", "null", "🏥"]
SEEDS = st.integers(0, 3)
BODIES = st.dictionaries(
    st.text(max_size=3),
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
)


class Counted:
    """Bytes that look random and that a counter decides, so that two ledgers can draw the same ones."""

    def __init__(self):
        self.count = 0

    def __call__(self, size):
        self.count += 1
        return hashlib.sha256(str(self.count).encode()).digest()[:size]


class TwoLedgers(RuleBasedStateMachine):
    """The same calls to the reference and to SQLite."""

    def __init__(self):
        super().__init__()
        self._true_bytes = secrets.token_bytes
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "run.db"
        self.draws = [Counted(), Counted()]
        self.ledgers = []

    @initialize()
    def create(self):
        makers = (MemoryLedger, lambda: SqlLedger.sqlite(self.path, self.folder / "secret", create=True))
        self.ledgers = [self.drawing(draw, make) for draw, make in zip(self.draws, makers, strict=True)]

    def teardown(self):
        for ledger in self.ledgers:
            ledger.close()
        shutil.rmtree(self.folder)

    def drawing(self, draw, call):
        secrets.token_bytes = draw
        try:
            return call()
        finally:
            secrets.token_bytes = self._true_bytes

    def both(self, method, *arguments):
        """Call a method of both, and compare what they answer, or what they refuse it with."""
        answers = []
        for draw, ledger in zip(self.draws, self.ledgers, strict=True):
            try:
                answer = self.drawing(draw, lambda ledger=ledger: getattr(ledger, method)(*arguments))
                answers.append(answer.tolist() if isinstance(answer, np.ndarray) else answer)
            except (HistoryError, ValueError) as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]

    @rule(names=st.lists(st.sampled_from([*NAMES, "", "\0"]), max_size=4))
    def register(self, names):
        self.both("register", names, NOW)
        self.both("pseudonyms", names)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=4, max_size=8))
    def register_many(self, names):
        self.both("register", names, NOW)

    @rule(labels=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["north", "south"]), max_size=3))
    def label(self, labels):
        self.both("label", labels, NOW)

    @rule(kind=st.sampled_from(["request", "plan", "round"]), body=BODIES)
    def append(self, kind, body):
        self.both("append", kind, body, NOW)

    @rule(number=BRANCHES, seed=SEEDS)
    def start_branch(self, number, seed):
        self.both("start_branch", number, digest("start", number, seed), {"number": number}, NOW)

    @rule(branch=BRANCHES, clients=CLIENTS, seed=SEEDS, gram=st.booleans(), release=st.lists(PLACES, max_size=2))
    def commit_round(self, branch, clients, seed, gram, release):
        model_id = ModelId(branch, self.ledgers[0].last_round(branch) + 1)
        self.both("commit_round", a_round(model_id, clients, seed, gram), NOW, release)

    @rule(clients=CLIENTS, seed=SEEDS)
    def keep_objects(self, clients, seed):
        objects = {client: digest("object", client, seed) for client in clients}
        self.both("keep_objects", objects, ModelId(0, seed), NOW)

    @precondition(lambda self: self.ledgers and self.ledgers[0].identities())
    @rule(branch=BRANCHES, seed=SEEDS, data=st.data())
    def commit_round_of_known_clients(self, branch, seed, data):
        keyed = sorted(self.ledgers[0].keys(group(*range(20))))
        clients = data.draw(st.lists(st.sampled_from(keyed), unique=True)) if keyed else []
        self.commit_round(branch, clients, seed, gram=False, release=[])

    @rule(model_id=PLACES, clients=CLIENTS)
    def commit_round_anywhere(self, model_id, clients):
        self.both("commit_round", a_round(model_id, clients), NOW)

    @rule(clients=CLIENTS)
    def erase_identities(self, clients):
        self.both("erase_identities", group(*clients))

    @rule(clients=CLIENTS)
    def readmit(self, clients):
        self.both("readmit", clients, "a reason", NOW)

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=3))
    def forgotten(self, names):
        self.both("forgotten", names, ["north", "south"])

    @rule(clients=CLIENTS)
    def erase_keys(self, clients):
        self.both("erase_keys", group(*clients))

    @rule(clients=CLIENTS)
    def erase_objects(self, clients):
        self.both("erase_objects", group(*clients))

    @rule(
        spans=st.lists(SPANS, max_size=2),
        stretch=st.none() | st.builds(a_stretch, BRANCHES, PLACES, CLIENTS, SEEDS),
        superseded=st.lists(BRANCHES, max_size=2),
    )
    def erase_rounds(self, spans, stretch, superseded):
        self.both("erase_rounds", spans, stretch, superseded)

    @rule(model_id=PLACES, content=st.binary(max_size=9))
    def keep_bounds(self, model_id, content):
        self.both("keep_bounds", model_id, content)
        self.both("keep_bounds", ModelId(0, self.ledgers[0].last_round(0)), content)

    @rule()
    def compact(self):
        self.both("compact")

    @rule()
    def reopen(self):
        self.ledgers[1].close()
        self.ledgers[1] = SqlLedger.sqlite(self.path, self.folder / "secret")

    @invariant()
    def all_that_can_be_read_is_equal(self):
        if not self.ledgers:
            return
        reference, durable = (readable(ledger, range(4), range(14)) for ledger in self.ledgers)
        for part, expected in reference.items():
            if part == "identities":
                assert sorted(durable[part].items()) == sorted(expected.items())
            else:
                assert durable[part] == expected, part
        assert self.ledgers[0].forgotten(NAMES) == self.ledgers[1].forgotten(NAMES)
        assert broken_links(durable["entries"]) == []


TestTwoLedgers = TwoLedgers.TestCase
# An example takes a second: the gate tries five, `.ci/full` a hundred.
TestTwoLedgers.settings = settings(
    max_examples=settings().max_examples // 10, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
