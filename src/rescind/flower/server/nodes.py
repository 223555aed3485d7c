"""Who is who: a SuperNode is known by its registered public key, or by what it says where no keys are registered."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from rescind.certificates.leaving import SignedRequest
from rescind.core.facts import PrivacyScope
from rescind.flower.server.grid import Backoff, Notify, describe, exchange
from rescind.flower.server.wishes import answer_wish, asks_to_leave, read_wish
from rescind.flower.versions import NodeInfo, list_nodes
from rescind.flower.wire import EXECUTED, KEYED, PASSWORD, REFUSED, seal
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.participants import name_key
from rescind.ledger.contract import LONGEST_NAME, is_name
from rescind.texts import is_digest, list_some, make_plain
from rescind.views.overview import find_unfinished

_LOG = logging.getLogger("flwr")
# Seconds between two looks at who is connected.
_PAUSE = 1.0
# Seconds between two looks while there is nothing to do.
_IDLE = 5.0
# Seconds that a client may take to say who it is.
_ANSWER = 30.0
# Seconds that it may take to say whether it asks to be forgotten: who has said it is asked once for every start.
_WISH = 60.0
# Seconds for which nothing is said of a client that has not answered: on a slow machine it takes that long to start.
_PATIENCE = 60.0
# Seconds after which it is no use to wait for others, if all that are connected do not say who they are.
_GRACE = 30.0
# So many are named in a message.
_MOST_NAMED = 10
IDENTIFY = "Without a registered key a ClientApp has to answer with rescind.flower.identify in @app.query()"
KEYS_END_IT = "Registered keys end this (flwr supernode register)"


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client: its ``name`` tells it from all others, ``label`` is what people call it.

    ``since`` is when its node was started last.
    """

    name: str
    node: int
    label: str
    since: str = ""


class _Look(NamedTuple):
    """How many are connected who may take part, for how many it is waited, and in words who is missing, if known."""

    ready: int
    wanted: int
    missing: str = ""


class Nodes:
    """The clients that are connected to a Grid, by name.

    Names are keys where ``authenticated``, else what clients tell. That stays as it is, since a client with two names
    could be forgotten under one and train under the other. From the first registered key on, whoever comes without
    one stays outside, whatever names are. ``ready`` is how many of those connected may take part, by the last look.

    Args:
        grid: the ServerApp's.
        history: whom it knows may be waited for, or have left.
        least: how many who may take part have to be connected before a round begins; one fewer for each who has left
            or asked to, if it cannot be reached without them.
        timeout: how many seconds to wait for them.
        authenticated: whether names are keys, None if the first look is to decide that.
    """

    def __init__(self, grid: Grid, history: History, least: int, timeout: float, authenticated: bool | None) -> None:
        self.grid, self._history, self._least, self._timeout = grid, history, least, timeout
        self._told: dict[int, str] = {}
        # When those were started whose wishes are known, and what they wish.
        self._heard: dict[int, str] = {}
        # None if it is not signed.
        self._wishes: dict[int, SignedRequest | None] = {}
        self._passwords: dict[int, str] = {}
        # Who answered and did not say who it is, and how it failed.
        self._nameless: dict[int, str] = {}
        # When each node was seen first.
        self._seen: dict[int, float] = {}
        # Who is connected, by node, and who it is.
        self._known: dict[int, Member] = {}
        self._backoff = Backoff()
        # A run that waits for requests may last for months: who was silent once may wish something all the same.
        self._wish_backoff = Backoff()
        self._warned: set[str | tuple[str, int]] = set()
        self.ready = 0
        if authenticated is None:
            self._wait(lambda: _Look(len(list_nodes(grid)), least))
            authenticated = any(node.registered for node in list_nodes(grid))
        self.authenticated = self._closed = authenticated

    def begin_turn(self) -> None:
        """Begin the next round: however often it is looked in one, who was silent is not asked again."""
        self._backoff.begin_turn()
        self._wish_backoff.begin_turn()

    def forget_silences(self) -> None:
        """Ask everybody again who has not said who it is."""
        self._backoff = Backoff()

    def exchange(
        self, messages: Sequence[Message], seconds: float, notify: Notify = lambda *_: None
    ) -> tuple[list[Message], set[int]]:
        """Send messages that their nodes obey, and that nobody else can answer; see ``exchange``."""
        for message in messages:
            seal(message, self._passwords.get(message.metadata.dst_node_id))
        return exchange(self.grid, messages, seconds, notify)

    def show_failure(self, node: int, error: Error) -> str:
        """Return what kind of failure it is, and show the first of each kind."""
        kind = describe(error)
        about = (
            f"{self.call(node)} failed: {kind}. Its SuperNode's log says more; others of this kind are only counted"
        )
        self._say(about, once=kind)
        return kind

    def call(self, node: int) -> str:
        """Return what a log may call a node: what people call its client, unless a request is about that, or may be.

        Flower keeps its logs. A line has the number in place of the name, never both: else an older line would tell
        whose number it was once somebody leaves.
        """
        member, people = self._known.get(node), self._history.participants
        # Of whoever had rows forgotten it may be the failure to leave them out that is told.
        if member is None or node in self._wishes or people.removals([member.name]):
            return f"node {node}"
        return f"client {member.label!r}" if people.remaining([member.name]) else f"node {node}"

    def ask_again(self, node: int) -> None:
        """Ask a node again, at the next look, for what it says of itself: it does not obey what it was sent."""
        self._heard.pop(node, None)
        self._told.pop(node, None)

    def connected(self) -> dict[str, Member]:
        """Return who is connected and was not forgotten, sorted by name; waits until enough are who may take part."""
        members: dict[str, Member] = {}

        def take() -> _Look:
            nonlocal members
            members, compared = self._look()
            return compared

        self._wait(take)
        return members

    def here(self, *, enough: bool) -> dict[str, Member]:
        """Return the same without waiting; nobody if it has to be ``enough`` and is not."""
        members, compared = self._look()
        return {} if enough and compared.ready < compared.wanted else members

    def _look(self) -> tuple[dict[str, Member], _Look]:
        everybody = self._members()
        members = self._admit(everybody)
        members = {name: members[name] for name in sorted(members.keys() - self._hear(members))}
        self._known = {member.node: member for member in members.values()}
        self.ready = len(self._stay(list(members)))
        return members, self._compare(members, nobody=not everybody)

    def listen(self) -> None:
        """Wait a little, and record who of those connected asks to be forgotten meanwhile; nobody is waited for."""
        time.sleep(min(_IDLE, self._timeout))
        self.begin_turn()
        self._hear(self._admit(self._members()))

    def _admit(self, everybody: Mapping[str, Member]) -> dict[str, Member]:
        """Return who of those connected was not forgotten, sorted by name; say who was, without its name."""
        barred = self._history.participants.barred({name: member.label for name, member in everybody.items()})
        for name in sorted(barred):
            # Flower keeps the log.
            node = everybody[name].node
            bar = f"to bar its key: flwr supernode unregister {node} FEDERATION; " if self.authenticated else ""
            self._say(
                f"a forgotten participant is connected (node {node}) and ignored; {bar}to readmit it: rescind "
                "request readmit HISTORY NAME --reason REASON"
            )
        return {name: everybody[name] for name in sorted(everybody.keys() - barred)}

    def _compare(self, members: Mapping[str, Member], *, nobody: bool) -> _Look:
        """Return how those connected compare with those who are waited for; ``nobody`` if none are connected."""
        if self.ready >= self._least:
            return _Look(self.ready, self._least)
        pseudonyms = self._history.participants.all()
        staying = self._stay(sorted(pseudonyms))
        could = len(self._stay(sorted({*members, *staying})))
        # Of those who took part some have left for good, or asked to.
        requests = [filed.request for filed in self._history.timeline.requests if not filed.dropped]
        for_good = (request.group for request in requests if request.scope is not PrivacyScope.RECORDS)
        left = len(frozenset[int]().union(*for_good))
        wanted = min(self._least, max(could, self._least - left))
        if wanted < self._least:
            self._say(
                f"the strategy waits for {self._least} SuperNodes, and {left} of those who took part have left or "
                f"asked to: {wanted} are enough",
                logging.INFO,
            )
        absent = [[pseudonyms[name]] for name in staying if name not in members]
        called = [repr(label) for (label,) in self._history.participants.describe(absent)]
        missing = f" (missing: {list_some(called, _MOST_NAMED)})" if absent else ""
        # If all who are connected have left, nobody is waited for; while nobody is, somebody may come.
        return _Look(self.ready, max(wanted, int(nobody)), missing)

    def _stay(self, names: Sequence[str]) -> list[str]:
        """Return who takes part now or, once rows of theirs are forgotten, again: it is worth waiting for them."""
        return self._history.participants.remaining(names, back=True)

    def _wait(self, take: Callable[[], _Look]) -> None:
        begun, announced = time.monotonic(), None
        while (look := take()).ready < look.wanted:
            nodes = {node.node_id for node in list_nodes(self.grid)}
            nameless = [f"node {node} ({kind})" for node, kind in self._nameless.items() if node in nodes]
            # Enough are there, and all of them answer without a name: hardly anybody will come who has one.
            in_vain = len(nameless) == len(nodes) >= look.wanted
            waited, limit = time.monotonic() - begun, min(self._timeout, _GRACE if in_vain else math.inf)
            if waited >= limit:
                advice = "" if in_vain else ". Start what is missing, or lower the strategy's min_available_nodes"
                if self._history.sums.digests():
                    advice += ". To forget somebody nobody has to be there: rescind request forget HISTORY"
                if nameless:
                    advice += f". Connected, but without a name: {list_some(nameless, _MOST_NAMED)}. {IDENTIFY}"
                if slow := nodes - self._told.keys() - self._nameless.keys() - self._known.keys():
                    listed = list_some([*map(str, sorted(slow))], _MOST_NAMED)
                    advice += (
                        f". Connected, but did not answer yet: {listed}; look at their SuperNodes' logs and load"
                    )
                raise TimeoutError(
                    f"{look.ready} SuperNodes that may take part are connected after {waited:.0f} s, and "
                    f"{look.wanted} are waited for{look.missing}{advice}"
                )
            if announced is None and (waiting := find_unfinished(self._history)):
                # In a line without names: of rows that are to be forgotten it would tell whose they may be.
                numbers = list_some([str(asked.number) for asked in waiting], _MOST_NAMED)
                due = min((asked.deadline for asked in waiting), key=parse_time)[:10]
                _LOG.info("rescind: request %s waits for SuperNodes, and has to be served by %s", numbers, due)
            if look != announced:
                announced = look
                _LOG.info(
                    "rescind: %d SuperNodes that may take part are connected, waiting at most %.0f s for %d%s",
                    *(look.ready, limit - waited, look.wanted, look.missing),
                )
            time.sleep(min(_PAUSE, self._timeout))
            # No round begins without those who are waited for, so they are asked again before it does.
            self.begin_turn()

    def _members(self) -> dict[str, Member]:
        # The newest node last: where one that came back is still counted under its old node, the newer one is it.
        now, nodes = time.monotonic(), list_nodes(self.grid)
        nodes.sort(key=lambda info: (info.last_activated_at, self._seen.setdefault(info.node_id, now)))
        members: dict[str, Member] = {}
        registered = [node for node in nodes if node.registered]
        if registered and not self._closed:
            self._closed = True
            self._say("keys are registered by now: whoever has none stays outside; names stay what clients tell")
        if self.authenticated:
            names = {node.node_id: name_key(node.public_key) for node in registered}
        else:
            names = self._asked(registered if self._closed else nodes)
        if self._closed:
            strangers = [node.node_id for node in nodes if not node.registered]
            self._say_of(strangers, "cannot take part without a registered key (flwr supernode register)")
        for node in nodes:
            name = names.get(node.node_id)
            if name is None:
                continue
            if name in members:
                self._say(
                    f"nodes {members[name].node} and {node.node_id} say that they are the same client: the one that "
                    f"came last takes part, node {node.node_id}. {KEYS_END_IT}"
                )
            label = make_plain(node.name)[:LONGEST_NAME].strip() if self.authenticated else name
            members[name] = Member(name, node.node_id, label or name, node.last_activated_at)
        return members

    def _asked(self, nodes: Sequence[NodeInfo]) -> dict[int, str]:
        """Ask those of some clients that have not said it yet who they are; return the names of all who have."""
        unknown = self._backoff.asked(node.node_id for node in nodes if node.node_id not in self._told)
        wait = min(_ANSWER, self._timeout)
        replies, late = self._query({node: {} for node in unknown}, wait)
        for reply in replies:
            node = reply.metadata.src_node_id
            record = None if reply.has_error() else reply.content.config_records.get(EXECUTED)
            name = None if record is None else record.get("client-id")
            if is_name(name):
                self._told[node] = name
                self._nameless.pop(node, None)
            elif node in unknown:
                self._nameless[node] = self.show_failure(node, reply.error) if reply.has_error() else "no name"
        # An error, or a name that cannot be one, is as good as silence: a stranger must not end a run by it.
        self._backoff.note_replies(unknown, self._told.keys() - late)
        missing = [node.node_id for node in nodes if node.node_id not in self._told]
        again = f". {IDENTIFY}. Until then it is asked again, ever more seldom"
        wrong = f"answered without a name of at most {LONGEST_NAME} characters that can be seen"
        self._say_of([node for node in missing if node in self._nameless], wrong + again)
        begun = time.monotonic() - _PATIENCE
        slow = [node for node in missing if node not in self._nameless and self._seen[node] <= begun]
        self._say_of(slow, f"did not give a name in {_PATIENCE:g} s{again}")
        return {node.node_id: self._told[node.node_id] for node in nodes if node.node_id in self._told}

    def _hear(self, members: Mapping[str, Member]) -> set[str]:
        """Ask whoever is new, or was started again, whether it asks to be forgotten, and record it if it does.

        Returns:
            the names of those who want to leave and of whom nothing can be recorded: they are left out, too. Whoever
            was refused stays.
        """
        if not self.authenticated:
            for member in members.values():
                if member.node in self._wishes:
                    self._say(
                        f"node {member.node} asks to be forgotten, and without registered keys nobody knows who "
                        "asks: ask its owner, then record it (rescind request add)"
                    )
            return set()
        new = [member.node for member in members.values() if self._heard.get(member.node) != member.since]
        wait = min(_WISH, self._timeout)
        asked = self._wish_backoff.asked(new)
        replies, late = self._query({node: {KEYED: True} for node in asked}, wait)
        # An error is an answer, too: an app without @app.query() has nothing to say.
        answered = {reply.metadata.src_node_id for reply in replies}
        self._wish_backoff.note_replies(asked, answered - late)
        heard = answered.intersection(new)
        told, left_out = dict[int, Mapping[str, str]](), set[str]()
        for member in members.values():
            if member.node in heard:
                self._heard[member.node] = member.since
            if member.node not in self._wishes:
                continue
            wish = self._wishes[member.node]
            if wish is None or wish.client != member.name:
                self._say(
                    f"node {member.node} asks to be forgotten, and its own key has not signed that: nothing is "
                    "recorded. Its owner signs it (rescind leave) and names the file in its node-config "
                    '(rescind-leave="FILE"), or asks the operator (rescind request add)'
                )
                continue
            answer = answer_wish(self._history, member.label, wish)
            if REFUSED in answer.told:
                self._say(f"a participant's own request is not taken up: {answer.told[REFUSED]}", logging.INFO)
            if answer.told and member.node in heard:
                told[member.node] = answer.told
            if not answer.stays:
                left_out.add(member.name)
        self._query({node: {KEYED: True, **words} for node, words in told.items()}, wait)
        return left_out

    def _query(
        self, questions: Mapping[int, Mapping[str, bool | str]], seconds: float
    ) -> tuple[list[Message], set[int]]:
        """Ask nodes, each with what it is told; remember what they say of themselves.

        Returns:
            the answers, and the nodes whose answers came late.
        """
        messages = [
            Message(RecordDict({"config": ConfigRecord(dict(config))}), node, MessageType.QUERY)
            for node, config in questions.items()
        ]
        replies, late = self.exchange(messages, seconds)
        for reply in replies:
            node = reply.metadata.src_node_id
            record = None if reply.has_error() else reply.content.config_records.get(EXECUTED)
            if record is not None and node in questions:
                self._wishes.pop(node, None)
                if asks_to_leave(record):
                    self._wishes[node] = read_wish(record)
                if is_digest(password := record.get(PASSWORD)):
                    self._passwords[node] = str(password)
        return replies, late

    def _say_of(self, nodes: Sequence[int], message: str) -> None:
        """Log in one line what is true of those of some nodes of whom it was not logged before."""
        new = [node for node in nodes if (message, node) not in self._warned]
        self._warned.update((message, node) for node in new)
        if new:
            numbers = list_some([*map(str, new)], _MOST_NAMED)
            subject = f"node {numbers}" if len(new) == 1 else f"{len(new)} nodes ({numbers})"
            _LOG.warning("rescind: %s %s", subject, message)

    def _say(self, message: str, level: int = logging.WARNING, once: str = "") -> None:
        """Log a message, unless it, or another with the same ``once``, was logged before."""
        if (once or message) not in self._warned:
            self._warned.add(once or message)
            _LOG.log(level, "rescind: %s", message)
