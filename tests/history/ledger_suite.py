"""The contract of a ledger as tests: every sentence of ``Ledger``, for whatever a ledger is built on.

``LedgerConformance`` needs one fixture, ``open_ledger``: a function that opens the same store each time it is called,
and makes it the first time.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from rescind.core.arrays import Clients
from rescind.core.edges import ModelId
from rescind.errors import ForgottenClientError, LockedError
from rescind.ledger.commitments import NO_HEAD, broken_links, merkle_root, object_leaf, round_root
from rescind.ledger.contract import ABSENT_ROUNDS, LARGEST_BOUNDS, LONGEST_NAME, Ledger
from rescind.ledger.records import REMAINING, RoundRecord, Span, Stretch, pack_participants

OpenLedger: TypeAlias = Callable[[], Ledger]

NOW = "2025-03-01T12:00:00Z"
LATER = "2025-03-01T12:00:01Z"

UGLY_NAMES = (
    " ",
    "a\nb\tc\r",
    "'; DROP TABLE identity; --",
    '"double" \\back\\slash %s %(x)s :x ? {} ${HOME}',
    "[1, null]",
    "null",
    "\u0001\u001f\u007f",
    "\u00e9",
    "e\u0301",
    "Straße",
    "STRASSE",
    "İstanbul",
    "病院",
    "مستشفى",
    "🏥\U0010ffff",
    "\ufeff",
    "\ufffe",
    "𝔘" * LONGEST_NAME,
    "x" * LONGEST_NAME,
    "1",
    "01",
    "1.0",
    "trailing ",
    "trailing",
    "../../etc/passwd",
)
NO_NAMES = ("", "\0", "a\0b", "\ud800", "x" * (LONGEST_NAME + 1))


def group(*clients: int) -> Clients:
    """Return pseudonyms as the array that a ledger takes."""
    return np.array(clients, dtype=np.int64)


def digest(*words: object) -> str:
    """Return a SHA-256 that stands for a model or an update."""
    return hashlib.sha256(repr(words).encode()).hexdigest()


def a_round(model_id: ModelId, clients: Sequence[int], seed: int = 0, gram: bool = False) -> RoundRecord:
    """Return a round of these clients, with numbers that the seed and the place decide."""
    generator = np.random.default_rng([seed, model_id.branch, model_id.round])
    count = len(clients)
    return RoundRecord(
        model_id=model_id,
        participants=pack_participants(
            group(*sorted(clients)),
            generator.uniform(1, 100, count),
            generator.exponential(1, count),
            generator.integers(1, 10, count).astype(np.int32),
        ),
        update_norm=float(generator.exponential()),
        rounding=float(generator.uniform(0, 1e-6)),
        factor=float(generator.uniform(0.5, 1.5)),
        model=digest("model", model_id, seed),
        gram=generator.normal(size=(count, count)) if gram else None,
        salt=generator.bytes(32),
    )


def a_stretch(branch: int, origin: ModelId, clients: Sequence[int], seed: int = 0) -> Stretch:
    """Return what is left of an erased stretch; the first of the clients was forgotten."""
    generator = np.random.default_rng([seed, branch])
    remaining = np.empty(len(clients), dtype=REMAINING)
    remaining["client"] = sorted(clients)
    remaining["sensitivity"] = generator.exponential(1, len(clients))
    remaining["largest_weight"] = generator.uniform(0, 1, len(clients))
    remaining["sensitivity"][:1] = np.inf
    return Stretch(branch, origin, remaining, common_factor=bool(seed % 2))


def readable(
    ledger: Ledger, branches: Sequence[int] = range(6), clients: Sequence[int] = range(40)
) -> dict[str, Any]:
    """Return all that can be read from a ledger, down to the last bit, in a form that can be compared."""
    spans = [Span(branch, 0, 10**6) for branch in branches]
    return {
        "head": ledger.head(),
        "entries": list(ledger.entries()),
        "identities": ledger.identities(),
        "names known": ledger.count_names(),
        "names": ledger.names(group(*clients)),
        "labels": ledger.labels(),
        "name leaves": ledger.name_leaves(0, 2**31 - 1),
        "label leaves": ledger.label_leaves(),
        "secret": ledger.secret("tests"),
        "name secret": ledger.outside_secret("tests"),
        "keys": ledger.keys(group(*clients)),
        "last rounds": [ledger.last_round(branch) for branch in branches],
        "rounds": [_bits(round_) for span in spans for round_ in ledger.rounds(span)],
        "absent rounds": [ledger.absent_rounds(span).tolist() for span in spans],
        "joined": {client: ledger.rounds_of(group(client)) for client in clients},
        "joined by any": ledger.rounds_of(group(*clients)),
        "kept": list(ledger.kept().items()),
        "objects": list(ledger.objects().items()),
        "stretches": [_stretch_bits(branch, stretch) for branch, stretch in ledger.stretches().items()],
        "suppressed": ledger.erased_name_digests(),
        "bounds": (ledger.bounds_since(), ledger.bounds()),
    }


@contextmanager
def refused(kind: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error whose message has all these words."""
    message: str | None = None
    try:
        yield
    except kind as error:
        message = str(error)
    assert message is not None, f"nothing was refused, and {kind.__name__} was expected"
    assert [word for word in words if word not in message] == [], message


class LedgerConformance:
    """What every ledger has to do; ``open_ledger`` is the fixture that a derived class gives."""

    # The journal

    def test_a_new_ledger_is_empty(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert ledger.head() == NO_HEAD
        assert list(ledger.entries()) == []
        assert ledger.identities() == {}
        assert ledger.last_round(0) == -1
        assert ledger.rounds_of(group(1)) == []
        assert ledger.rounds_of(group()) == []
        assert ledger.kept() == {}
        assert ledger.stretches() == {}
        assert (ledger.bounds_since(), ledger.bounds()) == (None, None)
        assert len(ledger.absent_rounds(Span(0, 0, 10))) == 0
        assert ledger.absent_rounds(Span(0, 0, 10)).dtype == ABSENT_ROUNDS

    def test_entries_are_numbered_from_1_and_chained(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        entries = [ledger.append(kind, {"number": at}, NOW) for at, kind in enumerate("abcab")]
        assert [entry.sequence for entry in entries] == [1, 2, 3, 4, 5]
        assert list(ledger.entries()) == entries
        assert broken_links(ledger.entries()) == []
        assert ledger.head() == entries[-1].head
        assert len({entry.head for entry in entries}) == 5
        assert {entry.root for entry in entries} == {b""}

    def test_entries_are_found_by_their_kinds_in_order(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        ledger.append("request", {"of": "x"}, NOW)
        _train(ledger, 0, [[1], [2]])
        ledger.append("plan", {}, NOW)
        ledger.append("request", {"of": "y"}, LATER)
        kinds = [entry.kind for entry in ledger.entries()]
        assert kinds == ["branch", "request", "registration", "round", "round", "plan", "request"]
        assert [entry.body["of"] for entry in ledger.entries("request")] == ["x", "y"]
        assert [entry.sequence for entry in ledger.entries("round", "request")] == [2, 4, 5, 7]
        assert [entry.sequence for entry in ledger.entries("plan", "branch", "nothing")] == [1, 6]
        assert list(ledger.entries("nothing")) == []
        assert list(ledger.entries("' OR 1=1 --")) == []

    def test_a_body_comes_back_as_json_gives_it(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        body: dict[str, Any] = {
            "z": [1, 2.5, None, True, "", [[]], {}],
            "a": {"nested": {"ü": "病 \u2028 \u0000 \x7f 😀", "quote'\"": "\\"}},
            "numbers": [0.1, 5e-324, 1.7976931348623157e308, 2**70, -0.0, 1e22],
        }
        entry = ledger.append("kind", body, NOW)
        assert entry.body == body
        assert next(ledger.entries()) == entry
        assert str(next(ledger.entries()).body["numbers"]) == str(body["numbers"])
        odd = ledger.append("odd", {10: "ten", 2: ("a", "tuple")}, NOW)  # type: ignore[dict-item]
        assert odd.body == {"10": "ten", "2": ["a", "tuple"]}
        assert broken_links(ledger.entries()) == []

    def test_a_body_that_is_no_json_is_refused(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        before = readable(ledger)
        for body in ({"x": float("nan")}, {"x": float("inf")}, {"x": "\ud800"}):
            with refused(ValueError):
                ledger.append("kind", body, NOW)
            with refused(ValueError):
                ledger.start_branch(1, digest("m"), body, NOW)
        with refused(TypeError):
            ledger.append("kind", {"x": object()}, NOW)
        assert readable(ledger) == before

    def test_many_entries_are_all_given(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        for number in range(150):
            ledger.append("kind", {"number": number}, NOW)
        assert [entry.body["number"] for entry in ledger.entries()] == list(range(150))
        assert [entry.sequence for entry in ledger.entries("kind")] == list(range(1, 151))

    def test_appending_while_entries_are_read_disturbs_neither(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        for number in range(5):
            ledger.append("kind", {"number": number}, NOW)
        seen = []
        for entry in ledger.entries():
            seen.append(entry.sequence)
            if len(seen) < 3:
                ledger.append("late", {}, LATER)
        assert seen[:5] == [1, 2, 3, 4, 5]
        assert [entry.sequence for entry in ledger.entries()] == list(range(1, 8))

    # Clients

    def test_pseudonyms_are_given_out_in_order_and_once(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert ledger.register(["ann", "bob", "ann"], NOW).tolist() == [1, 2, 1]
        pseudonyms = ledger.register(["cyd", "bob", "dan"], NOW)
        assert pseudonyms.tolist() == [3, 2, 4]
        assert pseudonyms.dtype == np.int64
        assert ledger.register([], NOW).tolist() == []
        assert ledger.identities() == {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
        assert ledger.names(group(2, 4, 99, -1, 2**40)) == {2: "bob", 4: "dan"}
        assert ledger.pseudonyms(["dan", "nobody"]) == {"dan": 4}
        # Whoever draws from them draws the same ones from every ledger.
        assert list(ledger.pseudonyms(["dan", "ann", "nobody", "bob"])) == ["dan", "ann", "bob"]

    def test_every_client_has_a_key_of_its_own(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob"], NOW)
        ledger.register(["cyd", "ann"], NOW)
        keys = ledger.keys(group(1, 2, 3, 4, 2**40))
        assert sorted(keys) == [1, 2, 3]
        assert len(set(keys.values())) == 3
        assert {len(key) for key in keys.values()} == {32}
        assert ledger.keys(group(1)) == {1: keys[1]}

    def test_the_journal_commits_to_new_names_at_once(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob", "ann"], NOW)
        ledger.register(["bob"], LATER)
        ledger.register(["cyd", "bob"], LATER)
        first, second = ledger.entries("registration")
        assert [first.body, second.body] == [{"first": 1, "last": 2}, {"first": 3, "last": 3}]
        assert (first.time, second.time) == (NOW, LATER)
        leaves = _again(ledger, open_ledger).name_leaves(1, 3)
        assert list(leaves) == [1, 2, 3]
        assert merkle_root([leaves[1], leaves[2]]) == first.root
        assert leaves[3] == second.root
        assert open_ledger().name_leaves(2, 2) == {2: leaves[2]}
        assert len(set(leaves.values())) == 3

    def test_an_erased_name_leaves_its_leaf_alone(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob"], NOW)
        ledger.label({"ann": "Ann", "bob": "Bob"}, NOW)
        before = ledger.name_leaves(1, 2)
        ledger.erase_identities(group(1))
        ledger.erase_keys(group(1))
        assert _again(ledger, open_ledger).name_leaves(1, 2) == before
        assert list(open_ledger().label_leaves()) == [2]

    def test_the_journal_commits_to_labels_that_change(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["key-a", "key-b"], NOW)
        ledger.label({"key-a": "ann", "key-b": "bob", "unknown": "cyd"}, NOW)
        ledger.label({"key-a": "ann", "unknown": "cyd"}, LATER)
        ledger.label({"key-a": "Ann", "key-b": "bob"}, LATER)
        first, second = (dict(entry.body["labels"]) for entry in ledger.entries("label"))
        leaves = {client: leaf.hex() for client, leaf in ledger.label_leaves().items()}
        assert (sorted(first), second) == ([1, 2], {1: leaves[1]})
        assert leaves == first | second
        assert first[1] != second[1]

    def test_names_are_told_apart_exactly(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        expected = {name: number for number, name in enumerate(UGLY_NAMES, start=1)}
        assert ledger.register(UGLY_NAMES, NOW).tolist() == list(expected.values())
        ledger = _again(ledger, open_ledger)
        assert ledger.identities() == expected
        assert ledger.pseudonyms(UGLY_NAMES) == expected
        assert ledger.register(UGLY_NAMES, NOW).tolist() == list(expected.values())
        assert ledger.names(group(*expected.values())) == {number: name for name, number in expected.items()}
        ledger.erase_identities(group(*expected.values()))
        assert ledger.forgotten([*UGLY_NAMES, "other"]) == set(UGLY_NAMES)

    def test_what_is_no_name_is_refused(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        for name in NO_NAMES:
            with refused(ValueError, "not a valid name"):
                ledger.register(["fine", name], NOW)
            for method in (ledger.pseudonyms, ledger.forgotten):
                with refused(ValueError, "not a valid name"):
                    method(["fine", name])
        with refused(ValueError, "not a valid name"):
            ledger.register(["fine", 7], NOW)  # type: ignore[list-item]
        assert ledger.identities() == {}

    def test_many_names_at_once(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        names = [f"client {number}" for number in range(3000)]
        ledger.register(names[1000:2000], NOW)
        assert sorted(ledger.register(names, NOW).tolist()) == list(range(1, 3001))
        assert len(ledger.identities()) == 3000
        assert len(ledger.keys(np.arange(5000))) == 3000

    # Rounds and kept models

    def test_only_a_rounds_own_salt_and_keys_open_its_root(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        round_ = a_round(ModelId(0, 1), [1, 2])
        root = ledger.commit_round(round_, NOW).root
        keys = ledger.keys(group(1, 2, 3))
        assert round_root(replace(round_, salt=bytes(32)), keys) != root
        assert round_root(round_, {**keys, 1: keys[3]}) != root
        nobody = a_round(ModelId(0, 2), [])
        assert round_root(replace(nobody, salt=bytes(32)), {}) != ledger.commit_round(nobody, NOW).root

    def test_a_round_comes_back_bit_for_bit(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=9)
        plain, with_gram = a_round(ModelId(0, 1), [1, 5, 9]), a_round(ModelId(0, 2), [2, 3, 4], gram=True)
        extremes = a_round(ModelId(0, 3), [1, 2, 3])
        extremes.participants["weight"] = [5e-324, 1.7976931348623157e308, 0.0]
        extremes.participants["distance"] = [-0.0, np.inf, 1 + 2.0**-52]
        extremes.participants["steps"] = [0, 2**31 - 1, -1]
        bounds = RoundRecord(
            ModelId(0, 4), plain.participants, 5e-324, 0.0, 1.7976931348623157e308, digest("x"), salt=bytes(32)
        )
        rounds = [plain, with_gram, extremes, bounds]
        for round_ in rounds:
            ledger.commit_round(round_, NOW)
        ledger = _again(ledger, open_ledger)
        assert [_bits(round_) for round_ in ledger.rounds(Span(0, 1, 4))] == [_bits(round_) for round_ in rounds]

    def test_a_rounds_entry_commits_to_its_numbers(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=5)
        round_ = a_round(ModelId(0, 1), [2, 4], gram=True)
        entry = ledger.commit_round(round_, NOW)
        assert (entry.sequence, entry.kind, entry.time) == (3, "round", NOW)
        assert entry.body == {"branch": 0, "round": 1}
        assert entry.root == round_root(round_, ledger.keys(group(2, 4)))
        (stored,) = ledger.rounds(Span(0, 1, 1))
        assert round_root(stored, ledger.keys(stored.clients)) == entry.root
        assert list(ledger.entries("round")) == [entry]
        assert broken_links(ledger.entries()) == []

    def test_a_round_that_nobody_joined_is_a_round(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        nobody = [a_round(ModelId(0, 1), []), a_round(ModelId(0, 2), [], gram=True)]
        for round_ in nobody:
            ledger.commit_round(round_, NOW)
        assert [_bits(round_) for round_ in ledger.rounds(Span(0, 1, 9))] == [_bits(round_) for round_ in nobody]
        assert ledger.rounds_of(group(1, 2, 3)) == []
        assert ledger.last_round(0) == 2

    def test_rounds_are_given_by_span_in_order(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        _train(ledger, 0, [[1], [2], [3]])
        ledger.start_branch(1, digest("start"), {"number": 1}, NOW)
        _train(ledger, 1, [[2, 3], [1]])
        _train(ledger, 0, [[3], [1, 2, 3]], after=3)
        assert [round_.model_id for round_ in ledger.rounds(Span(0, 2, 4))] == [
            ModelId(0, 2),
            ModelId(0, 3),
            ModelId(0, 4),
        ]
        assert [round_.model_id for round_ in ledger.rounds(Span(1, 0, 99))] == [ModelId(1, 1), ModelId(1, 2)]
        assert list(ledger.rounds(Span(2, 0, 99))) == []
        assert list(ledger.rounds(Span(0, 3, 2))) == []
        assert [ledger.last_round(branch) for branch in (0, 1, 2)] == [5, 2, -1]

    def test_some_rounds_of_a_span_are_given_by_their_numbers(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        rounds = _train(ledger, 0, [[1, at % 5 + 1] if at % 5 else [1] for at in range(40)])
        for wanted in ([], [3], [40, 2, 2, 7], [0, 41, -1, 2**40], list(range(5, 36))):
            chosen = [_bits(round_) for round_ in ledger.rounds(Span(0, 2, 40), wanted)]
            assert chosen == [_bits(rounds[at - 1]) for at in range(2, 41) if at in wanted]

    def test_absent_rounds_gives_the_rounds_factors(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        rounds = _train(ledger, 0, [[1], [], [3], [2]])
        absent = ledger.absent_rounds(Span(0, 2, 4))
        assert absent.dtype == ABSENT_ROUNDS
        assert absent.tolist() == [(round_.model_id.round, round_.factor, round_.rounding) for round_ in rounds[1:]]

    def test_joined_gives_the_rounds_of_any_client_in_order(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=5)
        _train(ledger, 0, [[1, 2], [3], [1]])
        ledger.start_branch(1, digest("start"), {}, NOW)
        _train(ledger, 1, [[1, 3], [2]])
        _train(ledger, 0, [[1, 2, 3]], after=3)
        assert ledger.rounds_of(group(2)) == [ModelId(0, 1), ModelId(0, 4), ModelId(1, 2)]
        assert ledger.rounds_of(group(2, 3)) == [
            ModelId(0, 1),
            ModelId(0, 2),
            ModelId(0, 4),
            ModelId(1, 1),
            ModelId(1, 2),
        ]
        assert ledger.rounds_of(group(5, 99, -3, 2**40)) == []
        assert ledger.rounds_of(group()) == []

    def test_many_clients_are_found_in_many_rounds(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=1500)
        generator = np.random.default_rng(7)
        teams = [sorted(generator.choice(1500, 5, replace=False) + 1) for _ in range(140)]
        with ledger.writing():
            _train(ledger, 0, teams)
        for clients in ([7], [7, 8, 9], range(1, 150), range(1, 1501)):
            expected = [ModelId(0, at) for at, team in enumerate(teams, start=1) if set(team) & set(clients)]
            assert ledger.rounds_of(group(*clients)) == expected

    def test_a_large_round(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=2000)
        round_ = a_round(ModelId(0, 1), range(1, 2001))
        ledger.commit_round(round_, NOW)
        (stored,) = ledger.rounds(Span(0, 1, 1))
        assert _bits(stored) == _bits(round_)
        assert ledger.rounds_of(group(1999)) == [ModelId(0, 1)]

    def test_a_round_has_to_follow_the_last_one(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        _train(ledger, 0, [[1], [2]])
        before = readable(ledger)
        for model_id, words in (
            (ModelId(0, 2), "round 2"),
            (ModelId(0, 4), "round 2"),
            (ModelId(1, 1), "not started"),
        ):
            with refused(ValueError, words):
                ledger.commit_round(a_round(model_id, [1, 2]), LATER, [ModelId(0, 1)], {1: "late"})
        with refused(ValueError, "round 2"):
            ledger.commit_round(a_round(ModelId(0, 0), [1]), LATER)
        assert readable(ledger) == before

    def test_a_round_with_a_client_without_key_is_refused(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        ledger.erase_keys(group(2))
        before = readable(ledger)
        for client in (2, 77):
            with refused(ValueError, f"client {client} has no key"):
                ledger.commit_round(a_round(ModelId(0, 1), [1, client]), NOW)
        assert readable(ledger) == before

    def test_numbers_that_a_store_could_change_are_refused(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        before = readable(ledger)
        good = a_round(ModelId(0, 1), [1])
        for bad in (float("nan"), -0.0, -1.0):
            for numbers in ((bad, 0.0, 1.0), (1.0, bad, 1.0), (1.0, 0.0, bad)):
                odd = RoundRecord(good.model_id, good.participants, *numbers, good.model, salt=good.salt)
                with refused(ValueError, "at least 0"):
                    ledger.commit_round(odd, NOW)
        for model in ("", "ab", "A" * 64, "g" * 64, "a" * 63, "a" * 64 + "\n"):
            with refused(ValueError, "SHA-256"):
                ledger.commit_round(replace(good, model=model), NOW)
            with refused(ValueError, "SHA-256"):
                ledger.keep_objects({1: model}, ModelId(0, 1), NOW)
            with refused(ValueError, "SHA-256"):
                ledger.start_branch(1, model, {}, NOW)
        for salt in (b"", bytes(31), bytes(33)):
            with refused(ValueError, "salt", "32"):
                ledger.commit_round(replace(good, salt=salt), NOW)
        assert readable(ledger) == before

    def test_a_branch_starts_once_and_keeps_its_model(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        entry = ledger.start_branch(0, digest("zero"), {"number": 0, "more": [1]}, NOW)
        assert (entry.sequence, entry.kind, entry.body) == (1, "branch", {"number": 0, "more": [1]})
        assert (ledger.last_round(0), ledger.last_round(1)) == (0, -1)
        ledger.start_branch(3, digest("three"), {}, LATER)
        assert ledger.kept() == {ModelId(0, 0): digest("zero"), ModelId(3, 0): digest("three")}
        before = readable(ledger)
        with refused(ValueError, "branch 3", "already"):
            ledger.start_branch(3, digest("other"), {}, LATER)
        assert readable(ledger) == before

    def test_models_are_kept_and_released(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        first, second, third = (a_round(ModelId(0, number), [1]) for number in (1, 2, 3))
        ledger.commit_round(first, NOW)
        ledger.commit_round(second, NOW, release=[ModelId(0, 1), ModelId(0, 77), ModelId(9, 9)])
        assert list(ledger.kept()) == [ModelId(0, 0), ModelId(0, 2)]
        ledger.commit_round(third, NOW, release=[ModelId(0, 3)])
        assert ledger.kept() == {ModelId(0, 0): digest("start", 0), ModelId(0, 2): second.model}
        assert [round_.model_id.round for round_ in ledger.rounds(Span(0, 1, 9))] == [1, 2, 3]

    def test_a_client_has_one_object(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=4)
        first = {client: digest("first", client) for client in (4, 1)}
        before = ledger.keep_objects(first, ModelId(0, 1), NOW)
        after = ledger.keep_objects({4: digest("second", 4)}, ModelId(0, 2), NOW)
        ledger = _again(ledger, open_ledger)
        assert list(ledger.objects().items()) == [(1, digest("first", 1)), (4, digest("second", 4))]
        # What the journal says of them shows nothing without the client's key.
        leaves = {client: leaf.hex() for client, leaf in ledger.object_leaves().items()}
        assert (before.kind, after.body) == ("sums", {"branch": 0, "round": 2, "sums": [[4, leaves[4]]]})
        assert before.body["sums"][0] == [1, leaves[1]]
        assert leaves[4] == object_leaf(ledger.keys(group(4))[4], 4, digest("second", 4)).hex()
        ledger.erase_keys(group(2))
        for client in (2, 5):
            with refused(ValueError, f"client {client} has no key"):
                ledger.keep_objects({1: digest("third"), client: digest("third")}, ModelId(0, 3), NOW)
        assert ledger.objects() == {1: digest("first", 1), 4: digest("second", 4)}
        assert list(ledger.entries())[-1] == after

    # Transactions and the writer

    def test_what_is_derived_is_kept_until_the_next_erasure(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        _train(ledger, 0, [[1], [1, 2]])
        last, content = list(ledger.entries())[-1].sequence, bytes(range(256)) * 40
        ledger.keep_bounds(ModelId(0, 2), b"\0")
        ledger.keep_bounds(ModelId(0, 2), content)
        assert (ledger.bounds_since(), ledger.bounds()) == (last, (last, content))
        # It stays what followed from the rounds up to there, whatever comes after them.
        _train(ledger, 0, [[2]], after=2)
        ledger.append("kind", {}, NOW)
        ledger = _again(ledger, open_ledger)
        assert ledger.bounds() == (last, content)
        ledger.erase_rounds([])
        assert (ledger.bounds_since(), ledger.bounds()) == (None, None)
        ledger.keep_bounds(ModelId(0, 3), b"")
        assert ledger.bounds() == (last + 2, b"")

    def test_what_is_derived_from_other_rounds_is_refused(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger())
        _train(ledger, 0, [[1], [1]])
        ledger.keep_bounds(ModelId(0, 2), b"kept")
        before = readable(ledger)
        for model_id in (ModelId(0, 1), ModelId(0, 3), ModelId(1, 0)):
            with refused(ValueError, "not the last one"):
                ledger.keep_bounds(model_id, b"other")
        with refused(ValueError, "too many"):
            ledger.keep_bounds(ModelId(0, 2), bytes(LARGEST_BOUNDS + 1))
        assert readable(ledger) == before

    def test_reopening_finds_everything(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        before = readable(ledger)
        ledger = _again(ledger, open_ledger)
        assert readable(ledger) == before
        following = ledger.append("after", {}, LATER)
        assert following.sequence == before["entries"][-1].sequence + 1
        assert broken_links(ledger.entries()) == []
        assert ledger.register(["yet another"], NOW).tolist() == [max(before["identities"].values()) + 1]

    def test_closing_twice_does_nothing(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.close()
        ledger.close()

    def test_a_second_writer_is_refused_and_told_who_writes(self, open_ledger: OpenLedger) -> None:
        first, second = open_ledger(), open_ledger()
        with first.writing():
            for ledger in (first, second):
                with refused(LockedError, "process"), ledger.writing():
                    pass
            first.start_branch(0, digest("start"), {}, NOW)
        with second.writing():
            assert second.last_round(0) == 0
            second.commit_round(a_round(ModelId(0, 1), []), NOW)
        with first.writing():
            first.commit_round(a_round(ModelId(0, 2), []), NOW)
        assert second.last_round(0) == 2

    def test_a_writer_that_fails_lets_go(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        with refused(ZeroDivisionError), ledger.writing():
            _fail()
        with ledger.writing():
            pass

    def test_closing_lets_go(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        with ledger.writing():
            ledger.close()
            with open_ledger().writing():
                pass

    def test_requests_and_clients_arrive_while_another_writes(self, open_ledger: OpenLedger) -> None:
        first, second = open_ledger(), open_ledger()
        with first.writing():
            _started(first, clients=2)
            assert second.register(["newcomer"], NOW).tolist() == [3]
            assert second.append("request", {"client": 1}, NOW).sequence == 4
            entry = first.commit_round(a_round(ModelId(0, 1), [1, 3]), NOW)
        assert entry.sequence == 5
        kinds = ["registration", "branch", "registration", "request", "round"]
        assert [written.kind for written in second.entries()] == kinds
        assert broken_links(second.entries()) == []

    def test_of_many_that_look_before_they_append_one_does(self, open_ledger: OpenLedger) -> None:
        ledgers = [open_ledger() for _ in range(4)]
        together = threading.Barrier(len(ledgers))

        def ask(ledger: Ledger) -> None:
            together.wait()
            with ledger.turn():
                asked = list(ledger.entries("request"))
                # Long enough for the others to look as well, were it not for the turn.
                time.sleep(0.05)
                if not asked:
                    ledger.append("request", {}, NOW)

        threads = [threading.Thread(target=ask, args=(ledger,)) for ledger in ledgers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry.kind for entry in open_ledger().entries()] == ["request"]

    # Erasure

    def test_people_may_call_clients_otherwise_and_several_alike(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["key-a", "key-b", "key-c"], NOW)
        assert ledger.labels() == {}
        ledger.label({"key-a": "ann", "key-c": "ann", "unknown": "bob"}, NOW)
        assert open_ledger().labels() == {1: "ann", 3: "ann"}
        ledger.label({"key-a": "Ann’s"}, NOW)
        assert ledger.labels() == {1: "Ann’s", 3: "ann"}
        with refused(ValueError, "not a valid name"):
            ledger.label({"key-b": ""}, NOW)
        ledger.erase_identities(group(1))
        ledger.label({"key-a": "back"}, NOW)
        assert ledger.labels() == {3: "ann"}

    def test_a_secret_is_the_runs_own_and_each_purpose_has_another(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert len(ledger.secret("seeds")) == 32
        assert ledger.secret("seeds") == open_ledger().secret("seeds")
        assert ledger.secret("seeds") != ledger.secret("noise")

    def test_the_secret_of_names_is_the_runs_own_and_another_one(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert len(ledger.outside_secret("receipts")) == 32
        assert ledger.outside_secret("receipts") == open_ledger().outside_secret("receipts")
        assert len({ledger.outside_secret("receipts"), ledger.outside_secret("more"), ledger.secret("receipts")}) == 3

    def test_whatever_is_written_is_stamped(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.append("run", {}, NOW)
        ledger.register(["ann"], NOW)
        ledger.label({"ann": "Ann"}, NOW)
        ledger.start_branch(0, digest("start"), {}, NOW)
        ledger.commit_round(a_round(ModelId(0, 1), [1]), NOW, rejected={1: "late"})
        ledger.erase_rounds([Span(0, 1, 1)], remains=({}, NOW))
        assert len(list(ledger.entries())) == 7
        assert ledger.unstamped_entries() == open_ledger().unstamped_entries() == []
        ledger.check_stamps()

    def test_an_erased_identity_is_gone_and_recognised(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob", "cyd"], NOW)
        ledger.erase_identities(group(1, 3, 77))
        assert ledger.identities() == {"bob": 2}
        assert ledger.names(group(1, 2, 3)) == {2: "bob"}
        assert ledger.pseudonyms(["ann", "bob"]) == {"bob": 2}
        assert ledger.forgotten(["ann", "bob", "cyd", "nobody"]) == {"ann", "cyd"}
        assert ledger.erased_name_digests() == sorted(set(ledger.erased_name_digests()))
        assert [client for _, client in ledger.erased_name_digests()] in ([1, 3], [3, 1])
        assert sorted(ledger.keys(group(1, 2, 3))) == [1, 2, 3]
        before = readable(ledger)
        with refused(ForgottenClientError, "'ann'"):
            ledger.register(["new", "ann", "bob"], NOW)
        assert readable(ledger) == before
        assert ledger.pseudonyms(["new"]) == {}
        assert ledger.register(["new"], NOW).tolist() == [4]

    def test_a_name_that_may_return_gets_a_new_pseudonym(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob"], NOW)
        before = ledger.name_leaves(1, 2)
        ledger.erase_identities(group(1), may_return=True)
        assert ledger.identities() == {"bob": 2}
        assert ledger.forgotten(["ann"]) == set()
        assert ledger.erased_name_digests() == []
        assert ledger.name_leaves(1, 2) == before
        assert ledger.register(["ann"], NOW).tolist() == [3]
        ledger.erase_identities(group(1))
        assert ledger.identities() == {"bob": 2, "ann": 3}
        assert ledger.forgotten(["ann"]) == set()

    def test_an_erased_label_is_recognised_and_is_no_name(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["key 1", "key 2", "north"], NOW)
        ledger.label({"key 1": "north", "key 2": "north", "north": "north"}, NOW)
        ledger.erase_identities(group(1, 2))
        assert ledger.forgotten(["key 1", "north"]) == {"key 1"}
        assert ledger.forgotten([], ["north", "key 1", "south"]) == {"north"}
        assert ledger.erased_as(["key 2"], ["north"]) == {"key 2": {2}, "north": {1, 2}}
        assert len(ledger.erased_name_digests()) == 4
        ledger.erase_identities(group(3))
        assert [client for _, client in ledger.erased_name_digests()].count(3) == 1

    def test_who_is_readmitted_is_registered_anew_and_can_be_erased_again(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["key 1", "key 2"], NOW)
        ledger.label({"key 1": "north", "key 2": "north"}, NOW)
        ledger.erase_identities(group(1, 2))
        before = ledger.erased_name_digests()
        assert ledger.readmitted() == set()
        entry = ledger.readmit([1], "a new contract", NOW)
        assert (entry.kind, entry.body) == ("readmission", {"clients": [1], "reason": "a new contract"})
        # Another one who was called so is not readmitted, and may be the same.
        assert ledger.linked({1}) == {1, 2}
        assert ledger.forgotten(["key 1", "key 2"], ["north"]) == {"key 1", "key 2", "north"}
        ledger.readmit([2], "another one", NOW)
        assert ledger.forgotten(["key 1", "key 2"], ["north"]) == set()
        assert ledger.forgotten(["key 1"], leaving={2}) == set()
        assert (ledger.readmitted(), ledger.erased_name_digests()) == ({1, 2}, before)
        assert ledger.unstamped_entries() == []
        assert ledger.register(["key 1"], NOW).tolist() == [3]
        ledger.erase_identities(group(3))
        assert ledger.forgotten(["key 1", "key 2"], ["north"]) == {"key 1", "key 2", "north"}
        assert ledger.erased_as(["key 1"]) == {"key 1": {1, 3}}
        assert ledger.linked({2}) == {1, 2, 3}

    def test_a_pseudonym_is_never_given_twice(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        ledger.register(["ann", "bob"], NOW)
        ledger.erase_identities(group(1, 2))
        ledger.erase_keys(group(1, 2))
        assert ledger.register(["cyd"], NOW).tolist() == [3]

    def test_erased_keys_are_gone(self, open_ledger: OpenLedger) -> None:
        ledger = _started(open_ledger(), clients=3)
        _train(ledger, 0, [[1, 2, 3]])
        keys = ledger.keys(group(1, 2, 3))
        ledger.erase_keys(group(2, 77))
        assert ledger.keys(group(1, 2, 3)) == {1: keys[1], 3: keys[3]}
        assert ledger.register(["client 2"], NOW).tolist() == [2]
        assert sorted(ledger.keys(group(1, 2, 3))) == [1, 3]

    def test_erased_rounds_leave_their_entries(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        entries, head, rounds = list(ledger.entries()), ledger.head(), list(ledger.rounds(Span(0, 0, 99)))
        ledger.erase_rounds([Span(0, 2, 3)])
        assert list(ledger.foreign_objects()) == []
        assert (list(ledger.entries()), ledger.head()) == (entries, head)
        assert broken_links(ledger.entries()) == []
        assert ledger.last_round(0) == 5
        left = [rounds[0], rounds[3], rounds[4]]
        assert [_bits(round_) for round_ in ledger.rounds(Span(0, 0, 99))] == [_bits(round_) for round_ in left]
        assert ledger.absent_rounds(Span(0, 0, 99))["round"].tolist() == [1, 4, 5]
        assert all(model_id not in Span(0, 2, 3) for model_id in ledger.kept())
        assert all(model_id not in Span(0, 2, 3) for model_id in ledger.rounds_of(group(*range(1, 10))))

    def test_a_branch_goes_on_after_its_rounds_were_erased(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        ledger.erase_rounds([Span(0, 0, 5)])
        assert list(ledger.rounds(Span(0, 0, 99))) == []
        assert ledger.last_round(0) == 5
        ledger.commit_round(a_round(ModelId(0, 6), [1, 2]), NOW)
        assert ledger.rounds_of(group(1)) == [ModelId(0, 6), ModelId(1, 1)]

    def test_a_span_from_0_covers_the_first_model(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        ledger.erase_rounds([Span(0, 1, 5)])
        assert ModelId(0, 0) in ledger.kept()
        ledger.erase_rounds([Span(0, 0, 0), Span(1, 0, 1)])
        assert list(ledger.kept()) == [ModelId(1, 2)]

    def test_a_stretch_is_written_with_the_erasure_and_replaced_by_the_next(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        first = a_stretch(1, ModelId(0, 0), [1, 2, 3])
        ledger.erase_rounds([Span(0, 1, 2)], first, remains=({"branch": 1}, NOW))
        assert [(entry.body, entry.time) for entry in ledger.entries("remains")] == [({"branch": 1}, NOW)]
        assert _stretches(ledger) == [_stretch_bits(1, first)]
        nobody = a_stretch(2, ModelId(0, 1), [], seed=1)
        ledger.erase_rounds([Span(0, 3, 3)], nobody)
        assert _stretches(ledger) == [_stretch_bits(1, first), _stretch_bits(2, nobody)]
        again = a_stretch(2, ModelId(1, 1), [2, 4], seed=2)
        ledger.erase_rounds([], again, superseded=[1, 77])
        ledger = _again(ledger, open_ledger)
        assert _stretches(ledger) == [_stretch_bits(2, again)]
        ledger.erase_rounds([], again, superseded=[2])
        assert _stretches(ledger) == [_stretch_bits(2, again)]
        ledger.erase_rounds([], superseded=[2])
        assert _stretches(ledger) == []

    def test_erased_objects_are_gone(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        before = ledger.objects()
        ledger.erase_objects(group(2, 77))
        assert ledger.objects() == {client: value for client, value in before.items() if client != 2}
        assert 2 in before
        assert len(list(ledger.rounds(Span(0, 1, 5)))) == 5

    def test_erasing_what_is_gone_does_nothing(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        everybody = group(1, 2, 3, 50)
        for _ in range(2):
            ledger.erase_identities(everybody)
            ledger.erase_keys(everybody)
            ledger.erase_objects(everybody)
            ledger.erase_rounds([Span(0, 1, 3), Span(0, 2, 4), Span(7, 0, 9)], superseded=[1])
            after = readable(ledger)
        ledger.erase_identities(group())
        ledger.erase_keys(group())
        ledger.erase_objects(group())
        ledger.erase_rounds([])
        assert readable(ledger) == after

    def test_compacting_changes_nothing_that_can_be_read(self, open_ledger: OpenLedger) -> None:
        ledger = _busy(open_ledger())
        ledger.erase_rounds([Span(0, 1, 2)], a_stretch(1, ModelId(0, 0), [1, 2]))
        ledger.erase_identities(group(1))
        ledger.erase_keys(group(1))
        before = readable(ledger)
        for sentence in ledger.compact():
            assert sentence.endswith(".")
        assert readable(ledger) == before
        ledger = _again(ledger, open_ledger)
        assert readable(ledger) == before


def _started(ledger: Ledger, clients: int = 0) -> Ledger:
    ledger.register([f"client {number}" for number in range(1, clients + 1)], NOW)
    ledger.start_branch(0, digest("start", 0), {"number": 0}, NOW)
    return ledger


def _train(ledger: Ledger, branch: int, teams: Sequence[Sequence[int]], after: int = 0) -> list[RoundRecord]:
    rounds = [a_round(ModelId(branch, at), team) for at, team in enumerate(teams, start=after + 1)]
    ledger.register([f"client {number}" for number in range(1, max(max(team, default=0) for team in teams) + 1)], NOW)
    for round_ in rounds:
        ledger.commit_round(round_, NOW)
    return rounds


def _busy(ledger: Ledger) -> Ledger:
    """Fill a ledger with some of everything."""
    _started(ledger, clients=9)
    for number in range(1, 6):
        clients = [number, number + 1, number + 4]
        ledger.commit_round(a_round(ModelId(0, number), clients, gram=number % 2 == 0), NOW)
        ledger.keep_objects({number: digest("object", number)}, ModelId(0, number), NOW)
    ledger.append("request", {"clients": [1]}, LATER)
    ledger.start_branch(1, digest("start", 1), {"number": 1}, LATER)
    _train(ledger, 1, [[1, 2], [8]])
    return ledger


def _fail() -> None:
    raise ZeroDivisionError


def _again(ledger: Ledger, open_ledger: OpenLedger) -> Ledger:
    ledger.close()
    return open_ledger()


def _bits(round_: RoundRecord) -> Mapping[str, object]:
    return {
        "place": round_.model_id,
        "participants": round_.participants.tobytes(),
        "numbers": np.array([round_.update_norm, round_.rounding, round_.factor]).tobytes(),
        "model": round_.model,
        "salt": round_.salt,
        "gram": None if round_.gram is None else (round_.gram.shape, round_.gram.tobytes()),
    }


def _stretch_bits(branch: int, stretch: Stretch) -> tuple[object, ...]:
    factor = bool(stretch.common_factor)
    return branch, stretch.branch, stretch.origin, stretch.remaining.tobytes(), factor


def _stretches(ledger: Ledger) -> list[tuple[object, ...]]:
    return [_stretch_bits(branch, stretch) for branch, stretch in ledger.stretches().items()]
