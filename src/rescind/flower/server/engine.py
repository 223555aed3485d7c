"""Flower as an engine: clients are SuperNodes, a round is one exchange of messages."""

from __future__ import annotations

import copy
import hmac
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, PublicHead, Sampling, find_head
from rescind.core.regularity import LogisticL2, SoftmaxL2, SquaredL2
from rescind.core.ridge import RidgeSums, check_ridge_sums, fixed_point_bits
from rescind.core.sums import Sums, Wanted, check_sums, flatten, head_shape
from rescind.engines.complaints import Complaint
from rescind.engines.engine import Answers, Doubt, Keep, Replies, show_each
from rescind.engines.seeds import client_seed, draw
from rescind.engines.server import norm
from rescind.engines.stops import format_accuracy
from rescind.flower.server.arrays import copy_record, is_same_record, pack
from rescind.flower.server.grid import PROMPT, Backoff, FilteredGrid
from rescind.flower.server.nodes import KEYS_END_IT, Member, Nodes
from rescind.flower.server.recorded import Options, Recorded, find_average
from rescind.flower.server.replies import (
    NOT_EXECUTED,
    Expected,
    RejectedReplyError,
    Reply,
    WeightMismatchError,
    check_answer,
    check_reply,
    check_ridge_answer,
    combinable,
    describe_metrics,
    kinds,
    list_metrics,
    read_named,
    read_root,
)
from rescind.flower.wire import DISTANCE, Instructions
from rescind.progress import tell_listener
from rescind.serving import TotalRounds
from rescind.texts import list_some

_LOG = logging.getLogger("flwr")
# So many rounds without a usable reply, and something is set up wrongly; unless it is one client of several that was
# asked: it must not take anything from the others.
_MOST_IN_VAIN = 3
_OTHER_CODE = "Do they train with rescind.flower.train_head, or is it Options(declared=True) that is missing?"
_MOST_METRICS = 50
# So many are named in a line.
_MOST_NAMED = 3
# What the accuracy is called unless somebody says otherwise, and by Flower's templates.
_USUAL, _TEMPLATES = Options().accuracy, "eval_acc"

# What a check makes of a message.
Checked = TypeVar("Checked", Reply, Sums, RidgeSums)


@dataclass(slots=True, eq=False)
class _Exchange:
    """A round's exchange: who was ``asked`` of the ``names``, what each was told, and what came back.

    ``settings`` is a digest of what they were told beside the model.
    """

    model_id: ModelId
    names: Sequence[str]
    asked: Sequence[str]
    instructions: Mapping[str, Instructions]
    settings: str = ""
    answers: dict[str, Message] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class FlowerEngine:
    """Trains on a Grid with the messages of a user's strategy; which clients they go to is decided here.

    ``recorded`` has the user's strategy as it was when the run began; what a copy of it keeps of a branch's rounds, a
    momentum or what a function for metrics remembers, ends with the branch. Its history is asked for the head of the
    chain, for clients to witness, for the weights that clients had when they took part first, and whose rows are to
    be left out. ``trained`` names the tensors that are learned; ``schedule`` has the settings of each round by its
    number, from 1 on; the last ones stay. ``total`` is asked for how many rounds of earlier branches count as the
    newest one's, if any do. ``members`` are those who were connected when ``clients`` was last asked.
    """

    recorded: Recorded
    facts: Facts
    trained: tuple[str, ...]
    secret: bytes
    schedule: Sequence[ConfigRecord]
    evaluate_config: ConfigRecord
    timeout: float
    arrays: ArrayRecord
    nodes: Nodes
    total: TotalRounds | None = None
    train_metrics: dict[int, MetricRecord] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    _copies: tuple[Strategy, FedAvg] | None = None
    # The branch, and whether it is its head that is solved after a body was trained.
    _line: tuple[int, bool] = (-1, False)
    _weights: dict[str, float] = field(default_factory=dict)
    _named: dict[str, int] = field(default_factory=dict)
    _accepted: list[tuple[Message, Reply]] = field(default_factory=list)
    # How those failed who did in the last exchange.
    _failed: dict[str, str] = field(default_factory=dict)
    # Who was asked in the rounds since something could last be used, and what came of it.
    _in_vain: list[Sequence[str]] = field(default_factory=list)
    _reasons: Counter[str] = field(default_factory=Counter)
    # Two, as who evaluates depends on who else is there: that must not reach training.
    _backoff: Backoff = field(default_factory=Backoff)
    _evaluating: Backoff = field(default_factory=Backoff)
    _asking: Backoff = field(default_factory=Backoff)

    @property
    def strategy(self) -> Strategy:
        """The copy of the strategy that writes the newest branch's messages."""
        return self._copy()[0]

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who is connected."""
        self.members = self.nodes.connected()
        return tuple(self.members)

    @property
    def here(self) -> tuple[str, ...]:
        """Everybody who is connected, and nobody while too few are for a round: nobody is waited for."""
        self.members = self.nodes.here(enough=True)
        return tuple(self.members)

    @property
    def anchors(self) -> dict[str, str]:
        """What people call those of everybody connected who train the body, by name."""
        named = self.recorded.anchors
        labels = {name: self.members[name].label for name in self.clients}
        return {name: label for name, label in labels.items() if name in named or label in named}

    @property
    def frozen(self) -> dict[str, Array]:
        """The tensors that nobody trains."""
        return {name: array for name, array in self.arrays.items() if name not in self.trained}

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0: the trained part of the initial arrays."""
        return {name: self.arrays[name].numpy() for name in self.trained}

    def packed(self, model: Mapping[str, Tensor]) -> ArrayRecord:
        """Return a whole model as Flower sends it."""
        return pack(model, self.arrays)

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        """Choose who takes part: as many as the strategy would sample, or each by its own coin."""
        self._check_names(present)
        if self.facts.sampling is Sampling.POISSON:
            return draw(self.secret, model_id, present, rate=self.facts.sample)
        mean = self.recorded.mean
        size = max(int(len(present) * mean.fraction_train), mean.min_train_nodes)
        return draw(self.secret, model_id, present, size=size)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Send the model to the named clients, and return what comes back from them and passes every check."""
        done = self._ask(model, model_id, names)
        # Not from a copy: what its functions do to it must not decide whose reply is used.
        weighted_by, reach = self.recorded.mean.weighted_by_key, self._reach(model)
        own = {name: model[name] for name in self.trained}

        def check(_: str, content: RecordDict, expected: Expected) -> Reply:
            return check_reply(content, expected, own, self.frozen, reach)

        accepted = dict(self._sort_out(done, check, weighted_by))
        self._accepted = [(done.answers[name], reply) for name, reply in accepted.items()]
        combine = self._copy()[1].train_metrics_aggr_fn
        metrics = self._combined(combine, {name: done.answers[name] for name in accepted})
        if metrics is not None:
            self.train_metrics[self.server_round(model_id)] = metrics
            if metrics:
                _LOG.info("rescind: clients tell of training %s: %s", model_id, describe_metrics(metrics))
        examples = np.array([reply.rows for reply in accepted.values()], dtype=np.float64)
        most = math.inf if self.facts.batch is None else self.facts.batch
        return Replies(
            names=tuple(accepted),
            weights=np.ones(len(accepted)) if self.facts.equal_weights else examples,
            steps=(self.facts.training.steps,) * len(accepted),
            tensors={name: [reply.tensors[name] for reply in accepted.values()] for name in own},
            batch=int(min(examples.max(initial=0), most)),
            **self._describe(done),
        )

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,
    ) -> Answers:
        """Ask the named clients for sums over their rows at a model, and return the answers that can be honest."""
        tensors, loss = find_head(model, self.facts), self.facts.head_loss
        if not isinstance(loss, SoftmaxL2 | LogisticL2):
            raise ValueError(f"the loss is {type(loss).__name__}; a head is solved for SoftmaxL2 or LogisticL2")
        head, (classes, width) = flatten(tensors), head_shape(tensors)
        length = float(np.linalg.norm(head))
        curvature = {Wanted.FULL: len(head), Wanted.FEATURES: width + 1, Wanted.GRADIENT: 0}[wanted]

        def check(name: str, content: RecordDict, expected: Expected) -> Sums:
            sums = check_answer(content, expected, len(head), curvature)
            reason = check_sums(sums, loss, classes, width, length, wanted)
            reason = reason or (doubt(name, sums) if doubt else None)
            if reason is not None:
                raise RejectedReplyError(reason)
            return sums

        # Of how a body was trained whoever answers need not know.
        training = replace(self.facts.training, loss=loss)
        done = self._ask(model, model_id, names, training=training, trained=tuple(tensors), wanted=wanted)
        return Answers.collect(self._sort_out(done, check), **self._describe(done))

    def ridge_sums(
        self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], keep: Keep | None = None
    ) -> Answers:
        """Ask the named clients for the sums that a ridge head is solved from, and return what can be honest."""
        tensors, loss = find_head(model, self.facts), cast(SquaredL2, self.facts.head_loss)
        (outputs, width), bits = head_shape(tensors), fixed_point_bits(loss)

        def check(_: str, content: RecordDict, expected: Expected) -> RidgeSums:
            sums = check_ridge_answer(content, expected, outputs, width + 1, bits)
            if (reason := check_ridge_sums(sums, loss, outputs, width)) is not None:
                raise RejectedReplyError(reason)
            return sums

        done = self._ask(model, model_id, names, trained=tuple(tensors), ridge=loss)
        return Answers.collect_ridge(show_each(self._sort_out(done, check), keep), **self._describe(done))

    @property
    def names_rows(self) -> bool:
        """Whether clients can be asked if they have named the rows of a request: our helper answers that."""
        return self.facts.rows_are_named

    def ask_for_rows(self, number: int, names: Sequence[str]) -> None:
        """Ask those of some clients that are connected whether they have named the rows of a request."""
        self.members = self.nodes.here(enough=False)
        self._asking.begin_turn()
        asked = self._asked([name for name in names if name in self.members], self._asking)
        start = self.start()
        told = replace(
            self._usual(ModelId(0, 0), {"trained": tuple(find_head(start, self.facts)), **self._question()}),
            removal=number,
            only_rows=True,
        )
        messages = [
            Message(
                RecordDict({"arrays": self.packed(start), "config": ConfigRecord({**told.record()})}),
                self._node(name),
                MessageType.TRAIN,
            )
            for name in asked
        ]
        named = list[int]()
        for name, reply in self._exchange(messages, asked, Backoff()).items():
            try:
                root = read_named(reply.content, told.digest())
            except RejectedReplyError as reason:
                _LOG.warning("rescind: the reply of %s is not used: %s", self._call(name), reason)
                continue
            self.recorded.history.requests.name_rows(name, number, root or "")
            named.append(self._node(name))
        # Whoever has not named them is asked again ever more seldom, whatever it answers.
        self._asking.note_replies([self._node(name) for name in asked], named)

    def _question(self) -> dict[str, Any]:
        """Return what makes a message a question for our helper, where code of the clients' own trains the rest."""
        loss = self.facts.head_loss
        if isinstance(loss, SquaredL2):
            return {"ridge": loss}
        return {"training": replace(self.facts.training, loss=loss), "wanted": Wanted.GRADIENT}

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        """Ask the named clients for their accuracies, and return the mean over those that tell one."""
        metric, replies = self.recorded.options.accuracy, self._evaluated(model, names, {})
        told = _read_numbers(replies, (metric, *([_TEMPLATES] if metric == _USUAL else [])), most=1.0).values()
        if not told:
            others = list_metrics(reply.content for reply in replies.values())
            _LOG.warning(
                "rescind: no client tells a metric %r from 0 to 1 in evaluation%s",
                *(metric, f", they tell {others}: say which it is (Options(accuracy=...))" if others else ""),
            )
            return None
        mean = math.fsum(sorted(told)) / len(told)
        _LOG.info("rescind: %d clients have a mean accuracy of %s", len(told), format_accuracy(mean))
        return mean

    def test_accuracy(self, model: Mapping[str, Tensor]) -> None:
        """Return nothing: what belongs to no client is the ServerApp's own, and so is its evaluation."""

    def distances(
        self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], most: float
    ) -> dict[str, float]:
        """Return how far the named clients say that their results are from a round's mean, if at most ``most``."""
        return _read_numbers(self._evaluated(model, names, {DISTANCE: str(model_id)}), [DISTANCE], most)

    def take_accepted(self) -> list[Message]:
        """Return the last round's accepted replies, once, made anew of nothing but what was checked."""
        mean, taken = self.recorded.mean, self._accepted
        self._accepted = []
        for message, reply in taken:
            weight = MetricRecord({mean.weighted_by_key: reply.rows})
            message.content = RecordDict({mean.arrayrecord_key: self.packed(reply.tensors), "metrics": weight})
        return [message for message, _ in taken]

    def evaluate_by_clients(
        self, model_id: ModelId, model: Mapping[str, Tensor], present: Sequence[str]
    ) -> MetricRecord | None:
        """Let as many clients evaluate a model as the strategy would sample; combine what they tell as it does."""
        mean = self.recorded.mean
        combine = self._copy()[1].evaluate_metrics_aggr_fn
        size = max(int(len(present) * mean.fraction_evaluate), mean.min_evaluate_nodes)
        names = draw(self.secret, model_id, present, size=size)
        replies = self._evaluated(model, names, {"server-round": self.server_round(model_id)})
        return self._combined(combine, replies)

    def server_round(self, model_id: ModelId) -> int:
        """Return the number by which strategy and clients know a round: a schedule of theirs goes on with it."""
        return model_id.round + (self.total.count_before() if self.total else 0)

    def begin_line(self) -> None:
        """Forget all that was kept of a line of training: it may follow the leaver, as may who was silent when."""
        self._copies, self._backoff, self._evaluating = None, Backoff(), Backoff()
        self.nodes.forget_silences()

    def filter_grid(self, names: Sequence[str]) -> FilteredGrid:
        """Return the Grid on which only the named clients are."""
        return FilteredGrid(self.nodes.grid, [self.members[name].node for name in names])

    def check_use(self) -> None:
        """Refuse to go on after three rounds in a row in which nothing that clients sent could be used."""
        # A body that nobody trains must not be passed over, however few its anchors are.
        several = 1 if self.facts.stages else min(2, self.nodes.ready)
        alone = len({name for asked in self._in_vain for name in asked}) < several
        if len(self._in_vain) < _MOST_IN_VAIN or alone:
            return
        reasons = "; ".join(f"{count} x {reason}" for reason, count in self._reasons.most_common())
        advice = _OTHER_CODE if NOT_EXECUTED in self._reasons else "The SuperNodes' logs say more."
        raise ValueError(
            f"nothing that clients sent in the last {len(self._in_vain)} rounds could be used: {reasons}. {advice} "
            "These rounds are recorded, with nobody in them, and are not made again: once the clients are mended, "
            "ask for more rounds (num_rounds), or start a new history"
        )

    # One step each

    def _copy(self) -> tuple[Strategy, FedAvg]:
        """Return the newest branch's copies: of the strategy, and of the FedAvg whose functions combine metrics.

        These functions are the user's own. Of a strategy of Flower's own they get another copy, as whoever reaches
        the one that writes can change what it sends.
        """
        if self._copies is None:
            writing, mean = lift_limits(self.recorded.strategy), self.recorded.mean
            self._copies = writing, copy.deepcopy(mean) if self.recorded.is_plain else find_average(writing)
        return self._copies

    def _ask(
        self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], **question: Any
    ) -> _Exchange:
        """Send a round's messages; ``question`` is what is told otherwise where a head is solved."""
        self.check_use()
        line = model_id.branch, bool(question and self.facts.stages)
        if line != self._line:
            # Whoever leaves out rows since has another weight, and who trains a body may do so with fewer rows.
            self._line, self._copies, self._weights = line, None, {}
        # Else the last round's messages would be held while this one's come in.
        self._accepted = []
        self._backoff.begin_turn()
        self._evaluating.begin_turn()
        self.nodes.begin_turn()
        asked = self._asked(names, self._backoff)
        done = _Exchange(model_id, names, asked, self._instructions(model_id, asked, question))
        messages = self._messages(self.packed(model), done)
        done.answers = self._exchange(messages, asked, self._backoff)
        # Of the weights in two stages a history does not say which stage they are of. Where a head is solved they
        # would tell of rows at another time: who is in the sums must not follow from who was asked when.
        if not self.facts.equal_weights and not self.facts.stages and not question:
            new = [name for name in done.answers if name not in self._weights]
            self._weights |= self.recorded.history.participants.first_weights(new)
        return done

    def _sort_out(
        self,
        done: _Exchange,
        check: Callable[[str, RecordDict, Expected], Checked],
        weighted_by: str = "num-examples",
    ) -> Iterator[tuple[str, Checked]]:
        """Return what of the answers can be used, one by one; note why the others cannot, and what came of it all."""
        most, equal = self._most_examples(), self.facts.equal_weights
        for name, message in done.answers.items():
            told = done.instructions[name]
            expected = Expected(
                digest=told.digest() if self.recorded.helper or told.is_question else None,
                weighted_by=weighted_by,
                most_examples=most,
                first_weight=None if equal or told.ridge else self._weights.get(name),
            )
            try:
                root, checked = read_root(message.content), check(name, message.content, expected)
            except RejectedReplyError as reason:
                done.rejected[name] = str(reason)
                spoofed = isinstance(reason, WeightMismatchError) and not self.nodes.authenticated
                hint = f". Did another node use its name before? {KEYS_END_IT}" if spoofed else ""
                _LOG.warning("rescind: the reply of %s is not used: %s%s", self._call(name), reason, hint)
                continue
            # Told in every round, and recorded once.
            if root is not None and told.removal and self._named.get(name) != told.removal:
                self.recorded.history.requests.name_rows(name, told.removal, root)
                self._named[name] = told.removal
            self._weights[name] = checked.rows
            yield name, checked
        used, failed = len(done.answers) - len(done.rejected), len(self._failed)
        if used:
            self._in_vain, self._reasons = [], Counter()
        elif done.asked:
            silent = len(done.asked) - len(done.answers) - failed
            self._in_vain = [*self._in_vain, done.asked]
            self._reasons += Counter([*done.rejected.values(), *self._failed.values()]) + Counter(
                {"no answer": silent}
            )
        _LOG.info(
            "rescind: %s with %d of %d clients that were drawn (%d rejected, %s%d silent)",
            *(done.model_id, used, len(done.names), len(done.rejected), f"{failed} failed, " if failed else ""),
            len(done.names) - len(done.answers) - failed,
        )

    def _describe(self, done: _Exchange) -> dict[str, Any]:
        """Return what is recorded of an exchange whatever was asked, with what people call those in it."""
        return {
            "rejected": done.rejected,
            "silent": tuple(self._call(name) for name in done.names if name not in done.answers),
            "settings": done.settings,
            "labels": {name: self.members[name].label for name in done.answers},
        }

    def _instructions(
        self, model_id: ModelId, names: Sequence[str], question: Mapping[str, Any]
    ) -> dict[str, Instructions]:
        """Return what each client is told; ``question`` is what differs where a head is solved."""
        general, removals = self._usual(model_id, question), self.recorded.history.participants.removals(names)
        return {
            name: replace(general, seed=client_seed(self.secret, name, model_id), removal=removals.get(name, 0))
            for name in names
        }

    def _usual(self, model_id: ModelId, question: Mapping[str, Any]) -> Instructions:
        """Return what every client is told alike."""
        history = self.recorded.history
        # It follows from all models, the leaver's too, and code of the clients' own has no use for it.
        witnessed = self.recorded.helper or bool(question)
        usual = Instructions(
            training=self.facts.training,
            trained=self.trained,
            batch=self.facts.batch or 0,
            seed=b"",
            model_id=model_id,
            head=history.head if witnessed else bytes(32),
            masked=self.recorded.options.masked,
            body=self.facts.body.digest if self.facts.body else "",
        )
        return replace(usual, **question)

    def _reach(self, model: Mapping[str, Tensor]) -> tuple[float, float] | None:
        """Return where results from a model can be, a factor and a radius, if that is known and they can be seen."""
        training = self.facts.training
        # The norm of a network is worth its time only if something follows from it.
        if self.recorded.options.masked or training.longest_update(0.0) is None:
            return None
        length = norm(model)
        longest = training.longest_update(length)
        return training.head_reach(length) or (None if longest is None else (1.0, longest))

    def _most_examples(self) -> int:
        """Return how many examples a client may have; a strict bound may rest on that, and everybody's rounding."""
        public, most = self.facts.public, self.recorded.options.most_examples
        if self.facts.batch is not None:
            return most
        if isinstance(public, PublicHead):
            most = min(most, public.batch)
        parameters = sum(tensor.size for tensor in self.start().values())
        return int(min(most, self.facts.training.most_examples(parameters)))

    def _messages(self, arrays: ArrayRecord, done: _Exchange) -> list[Message]:
        """Let the strategy write the messages to exactly those asked, and add what our helper is told."""
        names = done.asked
        if not names:
            return []
        server_round, strategy = self.server_round(done.model_id), type(self.strategy).__name__
        scheduled = self.schedule[min(server_round, len(self.schedule)) - 1]
        # Lent: whatever the strategy does to what it is handed, clients are sent what is recorded.
        lent, config = copy_record(arrays), copy.deepcopy(scheduled)
        written = list(self.strategy.configure_train(server_round, lent, config, self.filter_grid(names)))
        by_node = {message.metadata.dst_node_id: message for message in written}
        if len(written) != len(names) or set(by_node) != {self.members[name].node for name in names}:
            raise ValueError(
                f"{strategy}.configure_train does not write to whom it was shown: choosing "
                "participants is up to fraction_train, or to Recorded(rate=...)"
            )
        sent, told = [by_node[self.members[name].node] for name in names], dict[str, tuple[Any, ...]]()
        models = {id(record): record for message in sent for record in message.content.array_records.values()}
        if not all(is_same_record(record, arrays) for record in models.values()):
            raise ValueError(
                f"{strategy} sends another model than the one it was given: clients would train from a model that is "
                "not recorded"
            )
        for name, message in zip(names, sent, strict=True):
            content = message.content
            if len(content.array_records) != 1 or len(content.config_records) != 1 or len(content) != 2:
                raise ValueError(f"{strategy} sends more than one model and one record of settings")
            (key,), ((settings, values),) = content.array_records, content.config_records.items()
            # Names, order, kind and times of a message tell something, too.
            about = message.metadata
            written = _spell(scheduled, values, server_round)
            told[name] = (*content, about.message_type, about.group_id, about.ttl, *written)
            message.content = RecordDict(
                {key: arrays, settings: ConfigRecord({**values, **done.instructions[name].record()})}
            )
        done.settings = self._digest(told)
        return sent

    def _digest(self, told: Mapping[str, tuple[Any, ...]]) -> str:
        """Return a digest of all settings that were given for the run, and of what a strategy wrote beside them.

        It is the same in all rounds unless the strategy tells clients something that changes, or some of them
        something else than others. It is keyed: settings may follow data, and few of them are likely.
        """
        mean, alike = self.recorded.mean, set(told.values())
        spelt = repr(
            (
                [_spell(record) for record in (*self.schedule, self.evaluate_config)],
                (mean.weighted_by_key, mean.fraction_train, mean.min_train_nodes),
                *(alike if len(alike) == 1 else sorted(told.items())),
            )
        )
        return hmac.digest(self.secret, b"settings\0" + spelt.encode(), "sha256").hex()

    def _evaluated(
        self, model: Mapping[str, Tensor], names: Sequence[str], told: Mapping[str, str | int]
    ) -> dict[str, Message]:
        """Let the named clients look at a model."""
        asked = self._asked(names, self._evaluating)
        config = ConfigRecord({**self.evaluate_config, **told})
        round_ = int(told.get("server-round", 0))
        messages = self.strategy.configure_evaluate(round_, self.packed(model), config, self.filter_grid(asked))
        return self._exchange(messages, asked, self._evaluating)

    def _exchange(self, messages: Iterable[Message], names: Sequence[str], backoff: Backoff) -> dict[str, Message]:
        """Send, wait, and return the answers that are no failures, by name in the names' order."""
        sent, self._failed = list(messages), {}
        if not sent:
            return {}
        by_node = {self.members[name].node: name for name in names}
        by_name: dict[str, Message] = {}
        answered, begun = set(), time.monotonic()
        barred = {message.metadata.dst_node_id for message in sent} - by_node.keys()
        if barred:
            raise ValueError(f"node {min(barred)} may not take part: it was not drawn, or it was forgotten")
        replies, late = self.nodes.exchange(sent, self.timeout, self._show_waiting)
        for reply in replies:
            node = reply.metadata.src_node_id
            answered.add(node)
            if reply.has_error() and node not in by_node:
                # The SuperLink's own words for somebody who is gone, in which it does not say who.
                _LOG.warning("rescind: Flower has lost a node (code %d)", reply.error.code)
            elif reply.has_error():
                kind = self._failed[by_node[node]] = self.nodes.show_failure(node, reply.error)
                if Complaint.NOT_THE_SERVER in kind:
                    self.nodes.ask_again(node)
            elif node in by_node:
                by_name.setdefault(by_node[node], reply)
        for node, rounds in backoff.note_replies(list(by_node), answered - late).items():
            if node in late:
                _LOG.warning(
                    "rescind: %s took more than %.0f s, a quarter of the time limit: its answer is used, and it "
                    "is asked again %d round(s) later. If it needs that long, raise the timeout",
                    *(self.nodes.call(node), PROMPT * self.timeout, rounds),
                )
            else:
                _LOG.warning(
                    "rescind: %s did not answer in %.0f s: it is asked again %d round(s) later",
                    *(self.nodes.call(node), time.monotonic() - begun, rounds),
                )
        return {name: by_name[name] for name in names if name in by_name and name not in self._failed}

    def _show_waiting(self, nodes: Sequence[int], total: int) -> None:
        """Say who is waited for, once most of the time is left to them alone."""
        called = list_some([*map(self.nodes.call, nodes)], _MOST_NAMED)
        tell_listener(f"waiting for {called}; replied", total - len(nodes), total)
        _LOG.info(
            "rescind: %d of %d clients have replied, waiting at most %.0f s for %s",
            *(total - len(nodes), total, (1 - PROMPT) * self.timeout, called),
        )

    def _combined(
        self, combine: Callable[[list[RecordDict], str], MetricRecord], replies: Mapping[str, Message]
    ) -> MetricRecord | None:
        """Combine the metrics that fit together as the strategy does; nothing that clients tell ends a run by it."""
        weighted_by, told = self.recorded.mean.weighted_by_key, dict[str, MetricRecord]()
        for name, reply in replies.items():
            try:
                told[name] = combinable(reply.content, weighted_by, self.recorded.options.most_examples)
            except RejectedReplyError as reason:
                _LOG.warning("rescind: the metrics of %s are not used: %s", self._call(name), reason)
        # A mean is of the same metrics from everybody: whoever tells others, or a list as a number, is left out.
        for usual, _ in Counter(map(kinds, told.values())).most_common(1):
            for name in [name for name, metrics in told.items() if kinds(metrics) != usual]:
                del told[name]
                _LOG.warning("rescind: the metrics of %s are not used: most tell others", self._call(name))
        # Nothing else that a client sent reaches code of the user's.
        contents = [RecordDict({"metrics": metrics}) for metrics in told.values()]
        try:
            metrics = combine(contents, weighted_by) if contents else None
        except Exception as error:
            # Not in its own words: they may hold what clients sent.
            _LOG.warning("rescind: the clients' metrics could not be combined: %s", type(error).__name__)
            return None
        if metrics is not None and len(metrics) > _MOST_METRICS:
            _LOG.warning("rescind: of %d metrics the first %d are kept", len(metrics), _MOST_METRICS)
            return MetricRecord({name: metrics[name] for name in list(metrics)[:_MOST_METRICS]})
        return metrics

    def _asked(self, names: Sequence[str], backoff: Backoff) -> list[str]:
        """Return those of the names that are asked now; whoever was silent of late is absent, as if it were again."""
        self._check_names(names)
        by_node = {self._node(name): name for name in names}
        return [by_node[node] for node in backoff.asked(by_node)]

    def _node(self, name: str) -> int:
        return self.members[name].node

    def _call(self, name: str) -> str:
        return self.nodes.call(self._node(name))

    def _check_names(self, names: Sequence[str]) -> None:
        if set(names) - self.members.keys() and (unknown := sorted(set(names).difference(self.clients))):
            raise ValueError(f"not connected: {', '.join(map(repr, unknown))}")


def _spell(scheduled: Mapping[str, Any], values: Mapping[str, Any] | None = None, number: int = 0) -> list[Any]:
    """Spell settings, telling 1 from 1.0 and from True; with ``values``, how these differ and in what order they are.

    The ``number`` of the round is no difference.
    """
    if values is None:
        return [(key, repr(value)) for key, value in scheduled.items()]
    differ = set(_spell(values)) - {("server-round", repr(number))} ^ set(_spell(scheduled))
    return [tuple(values), *sorted(differ)]


def _read_numbers(replies: Mapping[str, Message], metrics: Sequence[str], most: float) -> dict[str, float]:
    """Return what clients tell as the first of some metrics that they tell, one number each, of 0 to ``most``."""
    numbers = {}
    for name, reply in replies.items():
        records = list(reply.content.metric_records.values())
        values = [records[0][metric] for metric in metrics if metric in records[0]] if len(records) == 1 else []
        value = values[0] if values else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
            numbers[name] = float(value)
    return numbers


def lift_limits(strategy: Strategy) -> Strategy:
    """Copy a strategy, with all it keeps, such that it writes to every node that it is shown, and waits for none."""
    own = copy.deepcopy(strategy)
    mean = find_average(own)
    mean.fraction_train = mean.fraction_evaluate = 1.0
    mean.min_train_nodes = mean.min_evaluate_nodes = mean.min_available_nodes = 0
    return own
