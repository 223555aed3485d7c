"""What clients are sent is what was recorded, and nothing that a server app remembers outlives a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedProx

import rescind.flower
from benchmarks._strategies import Half, LookAhead, Plateau, certify, head, head_app, network, network_app, on_grid
from rescind import Budget, History
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Predicate
from rescind.engines.server import NoisedAverage
from rescind.errors import RunMismatchError
from rescind.flower import Recorded
from rescind.flower.server.arrays import is_same_record
from rescind.history.events import SettingsTold
from rescind.simulation import Shard
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, TRAINING, federation
from tests.builders import rounds_of

CLINICS = federation(6).shards
LEAVER = "clinic-5"


def plain(**options: Any) -> FedAvg:
    return FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **options)


def on_the_servers_word(predicate: Predicate) -> str:
    """Say on whose word it is known that nothing outlives a restart."""
    spoken_of = ("settings that were fixed", "the server's own code")
    (basis,) = [held.basis for held in predicate.assumptions if any(words in held.what for words in spoken_of)]
    return basis


# The model


class ForOne(FedAvg):
    """Sends another model to one client, and to all others what it was given."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        first, *others = super().configure_train(server_round, arrays, config, grid)
        other = ArrayRecord({name: Array(array.numpy() + 1.0) for name, array in arrays.items()})
        first.content = RecordDict({"arrays": other, "config": config})
        return [first, *others]


@pytest.mark.parametrize("strategy", [LookAhead, Half, ForOne])
def test_a_strategy_that_sends_another_model_than_the_recorded_one_is_refused(
    history: History, strategy: Callable[..., FedAvg]
) -> None:
    chosen = strategy(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    with pytest.raises(ValueError, match="another model than the one it was given"):
        rescind.flower.run(
            Recorded(chosen, history, training=TRAINING), on_grid(head_app(CLINICS), CLINICS), head(), 3
        )
    # In the first round there is nothing ahead, and zeros are the same in half precision.
    assert history.newest.round <= 1


class Belated(FedAvg):
    """Changes what it was given once its messages are written and looked at."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        self.lent = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def spoil(self) -> None:
        for name, array in list(self.lent.items()):
            array.data = self.lent[name].data = Array(array.numpy() + 1.0).data


class Watching(InProcessGrid):
    """Keeps the models of all messages; ``before`` is called before they go out."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.models: list[ArrayRecord] = []
        self.before: Callable[[], None] = lambda: None

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        self.before()
        self.models += [record for message in sent for record in message.content.array_records.values()]
        return super().send_and_receive(sent, timeout=timeout)


def test_what_a_strategy_does_to_the_model_later_reaches_nobody(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rescind.flower.server import engine

    used: list[Belated] = []
    real = engine.lift_limits
    monkeypatch.setattr(engine, "lift_limits", lambda own: used.append(copied := real(own)) or copied)
    grid = Watching(head_app(CLINICS), {name: {"client-id": name} for name in CLINICS})
    grid.before = lambda: [own.spoil() for own in used if hasattr(own, "lent")] and None
    strategy = Belated(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    rescind.flower.run(Recorded(strategy, history, training=TRAINING), grid, head(), 1)
    assert used
    assert grid.models
    assert all(is_same_record(model, head()) for model in grid.models)


# What is told beside it


def released(
    history: History, strategy: FedAvg, variant: int, told: list[Any] | None = None, **options: Any
) -> Predicate:
    """Train; somebody comes after round 3, asks after round 6, and is forgotten while the run is under way."""
    own = CLINICS[LEAVER]
    shards = {**CLINICS, LEAVER: Shard(own.features, (own.labels + variant) % CLASSES)}
    grid = on_grid(network_app(shards, told), CLINICS)
    grid.gone.add(LEAVER)
    shown = options.pop("evaluate_fn", lambda *_: None)

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 3:
            grid.gone.discard(LEAVER)
        if server_round == 6 and not history.timeline.requests:
            history.requests.ask([LEAVER], Budget(1.0, 1e-5))
        shown(server_round, arrays)
        return None

    rescind.flower.run(Recorded(strategy, history), grid, network(), 10, evaluate_fn=evaluate_fn, **options)
    return certify(history)


def test_what_a_strategy_remembers_ends_with_the_line_of_training() -> None:
    digests = set()
    for variant in (0, 1, 2):
        with History.in_memory() as history:
            told = list[Any]()
            predicate = released(history, Plateau(), variant, told)
            assert predicate.mode == "exact"
            assert on_the_servers_word(predicate) == "declared by the operator"
            digests.add(history.digest_of(history.newest))
            # It did change, and began anew.
            rates = [rate for _, rate in told]
            assert min(rates) < 0.5
            assert (4, 0.5) in told[-7 * 5 :]
    assert len(digests) == 1


def test_settings_that_other_code_of_the_server_changes_are_refused(history: History) -> None:
    config = ConfigRecord({"lr": 0.5})

    def lower(server_round: int, _arrays: ArrayRecord) -> None:
        if server_round == 5:
            config["lr"] = 0.1

    with pytest.raises(ValueError, match="train_config was changed while the run was under way"):
        released(history, plain(), 0, evaluate_fn=lower, train_config=config)


def test_what_other_code_does_to_the_strategy_reaches_no_message(history: History) -> None:
    strategy, told = (
        FedProx(proximal_mu=0.1, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        list[Any](),
    )

    def change(_round: int, _arrays: ArrayRecord) -> None:
        strategy.proximal_mu = 7.0

    predicate = released(history, strategy, 0, told, evaluate_fn=change)
    assert len(list(history.timeline.of(SettingsTold))) == 1
    assert on_the_servers_word(predicate) == "checked by the server"


class Reaching:
    """Combines metrics, and asks for other weights once somebody's loss is high."""

    strategy: FedAvg

    def combine(self, contents: list[RecordDict], _weighted_by: str) -> MetricRecord:
        worst = max(float(content["metrics"]["loss"]) for content in contents)  # type: ignore[arg-type]
        if worst > 5:
            self.strategy.weighted_by_key, self.strategy.configrecord_key = "other", "others"
        return MetricRecord({"loss": worst})


@pytest.mark.parametrize("derived", [False, True])
def test_a_function_for_metrics_does_not_decide_whose_reply_is_used(history: History, *, derived: bool) -> None:
    inner = head_app(CLINICS)
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        reply, name = inner(msg, context), str(context.node_config["client-id"])
        told = reply.content["metrics"]
        assert isinstance(told, MetricRecord)
        # By another number of rows in one round than in the next a client is rejected.
        (settings,) = msg.content.config_records.values()
        other = 1 if name == "clinic-0" else settings["server-round"]
        values = {"loss": 9.0 if name == LEAVER else 1.0, "other": other}
        reply.content["metrics"] = MetricRecord({**told, **values})
        return reply

    class Derived(FedAvg):
        pass

    reaching = Reaching()
    chosen = (Derived if derived else FedAvg)(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, train_metrics_aggr_fn=reaching.combine
    )
    reaching.strategy = chosen
    rescind.flower.run(Recorded(chosen, history, training=TRAINING), on_grid(app, CLINICS), head(), 4)
    assert [len(made.clients) for made in rounds_of(history)] == [len(CLINICS)] * 4
    # Whoever derives a strategy can change what it writes, and that is recorded.
    assert (len(list(history.timeline.of(SettingsTold))) > 1) is derived


def test_code_of_the_clients_own_is_not_told_what_follows_from_all_models(history: History) -> None:
    seen, inner = list[object](), network_app(CLINICS)
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        (config,) = msg.content.config_records.values()
        seen.append(config["rescind.head"])
        return inner(msg, context)

    rescind.flower.run(Recorded(plain(), history), on_grid(app, CLINICS), network(), 3)
    assert set(seen) == {"0" * 64}


def test_settings_by_the_round_are_fixed_beforehand_and_known_to_be(history: History) -> None:
    told, rates = list[Any](), [0.5, 0.4, 0.3, 0.2, 0.1]
    schedule = [ConfigRecord({"lr": rate}) for rate in rates]
    predicate = released(history, plain(), 0, told, train_config=schedule)
    assert predicate.mode == "exact"
    assert on_the_servers_word(predicate) == "checked by the server"
    # The last ones stay; after the restart from round 3 the schedule goes on with round 4.
    assert set(told) == {(number, rates[min(number, 5) - 1]) for number in range(1, 11)}
    assert told[-7 * 5][0] == 4
    assert len(list(history.timeline.of(SettingsTold))) == 1


@pytest.mark.parametrize("train_config", [[], [{"lr": 1.0}], "lr", {"lr": 1.0}, lambda _: ConfigRecord()])
def test_what_is_no_schedule_is_refused(history: History, train_config: Any) -> None:
    with pytest.raises(ValueError, match="give a ConfigRecord, or a list of them"):
        rescind.flower.run(
            Recorded(plain(), history),
            on_grid(network_app(CLINICS), CLINICS),
            network(),
            1,
            train_config=train_config,
        )


class Live(float):
    """A number that is another one whenever it is copied, and always looks the same."""

    now = 0.5

    def __deepcopy__(self, memo: object) -> Live:
        return Live(Live.now)

    def __repr__(self) -> str:
        return "0.5"


class Steered(ConfigRecord):
    """Settings that are never copied."""

    def __deepcopy__(self, memo: object) -> Steered:
        return self


@pytest.mark.parametrize("argument", ["train_config", "evaluate_config"])
@pytest.mark.parametrize(
    "settings", [ConfigRecord({"lr": Live(0.5)}), Steered({"lr": 0.5}), ConfigRecord({"lr": [Live(0.5)]})]
)
def test_settings_that_change_by_themselves_are_refused(
    history: History, argument: str, settings: ConfigRecord
) -> None:
    with pytest.raises(ValueError, match=argument):
        rescind.flower.run(
            Recorded(plain(), history), on_grid(network_app(CLINICS), CLINICS), network(), 1, **{argument: settings}
        )


class Favouring(FedAvg):
    """Tells one client something else than all others; who it is changes."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        # Flower hands them over in any order.
        chosen = sorted(messages, key=lambda message: message.metadata.dst_node_id)[server_round % len(messages)]
        chosen.content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "lr": 0.2})})
        return messages


@pytest.mark.parametrize(
    ("strategy", "entries"), [(plain, 1), (lambda: Favouring(0.0, 1.0, 1, 0, 1), 2)], ids=["plain", "favouring"]
)
def test_what_clients_are_told_is_recorded_where_it_changes(
    history: History, strategy: Callable[[], FedAvg], entries: int
) -> None:
    chosen = strategy()
    chosen.fraction_train, chosen.fraction_evaluate, chosen.min_evaluate_nodes = 1.0, 0.0, 0
    rescind.flower.run(Recorded(chosen, history), on_grid(network_app(CLINICS), CLINICS), network(), 2)
    assert len(list(history.timeline.of(SettingsTold))) == entries
    assert history.timeline.fixed_settings is (entries == 1)


def test_settings_of_a_later_run_are_compared_with_the_earlier_ones(history: History) -> None:
    for rounds, rate in ((2, 0.5), (4, 0.5), (6, 0.1)):
        recorded = Recorded(plain(), history)
        rescind.flower.run(
            recorded,
            on_grid(network_app(CLINICS), CLINICS),
            network(),
            rounds,
            train_config=ConfigRecord({"lr": rate}),
        )
        assert history.timeline.fixed_settings is (rate == 0.5)
    assert history.facts.sources.server.value == "declared by the operator"


# DP-FedAvg

NOISED = NoisedAverage(clip=1.0, denominator=6.0, noise_multiplier=5.5)


@pytest.mark.parametrize(
    "strategy",
    [Plateau, lambda: plain(train_metrics_aggr_fn=lambda *_: MetricRecord()), lambda: Belated(1.0, 0.0)],
    ids=["plateau", "metrics", "subclass"],
)
def test_with_noised_rounds_nothing_that_clients_tell_may_reach_what_they_are_told(
    history: History, strategy: Callable[[], FedAvg]
) -> None:
    with pytest.raises(ValueError, match="must not reach what they are told"):
        Recorded(strategy(), history, server=NOISED)


def test_nothing_is_strict_where_clients_were_told_what_may_follow_data(history: History) -> None:
    grid = on_grid(network_app(CLINICS), CLINICS)
    rescind.flower.run(Recorded(plain(), history, server=NOISED), grid, network(), 2)
    # Told by the name of a record: chosen, maybe, by what clients reported without noise.
    recorded = Recorded(plain(configrecord_key="slow"), history, server=NOISED)
    rescind.flower.run(recorded, grid, network(), 4)
    assert any("told other settings" in obstacle for obstacle in history.facts.strict_obstacles)
    history.requests.ask([LEAVER], Budget(8.0, 1e-3))
    rescind.flower.run(recorded, grid, network(), 4)
    assert certify(history).mode == "exact"


def test_a_strategy_that_was_changed_is_not_flowers_own(history: History) -> None:
    strategy = plain()
    strategy.configure_train = strategy.configure_train  # type: ignore[method-assign]
    assert not Recorded(strategy, history).is_plain
    with pytest.raises(ValueError, match="must not reach what they are told"):
        Recorded(strategy, history, server=NOISED)


class Named(FedAvg):
    """Tells clients by the name of a record what nobody looks at."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        self.configrecord_key = "slow" if server_round > 1 else "config"
        return super().configure_train(server_round, arrays, config, grid)


def test_what_is_told_by_names_is_recorded_and_of_no_other_strategy_anything_is_called_checked(
    history: History,
) -> None:
    strategy = Named(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    rescind.flower.run(Recorded(strategy, history), on_grid(network_app(CLINICS), CLINICS), network(), 2)
    assert not history.timeline.fixed_settings
    assert history.run.facts.sources.server.value == "declared by the operator"


def test_a_strict_claim_ends_where_clients_are_told_other_settings_later(history: History) -> None:
    grid, recorded = on_grid(network_app(CLINICS), CLINICS), Recorded(plain(), history, server=NOISED)
    rescind.flower.run(recorded, grid, network(), 4)
    history.requests.ask([LEAVER], Budget(8.0, 1e-3))
    rescind.flower.run(recorded, grid, network(), 4)
    assert certify(history).mode == "strict"
    rescind.flower.run(recorded, grid, network(), 6, train_config=ConfigRecord({"lr": 0.1}))
    statement = build_statement(history, 1)
    assert statement.predicate.mode == "heuristic"
    assert "told other settings" in statement.predicate.reasons[0]


class Chatty(FedAvg):
    """Sends messages of its own."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        grid.send_and_receive(messages)
        return messages


def test_a_strategy_sends_nothing_by_itself(history: History) -> None:
    chosen = Chatty(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    with pytest.raises(ValueError, match="a strategy writes messages"):
        rescind.flower.run(Recorded(chosen, history), on_grid(network_app(CLINICS), CLINICS), network(), 1)


def test_a_strategy_that_cannot_be_copied_is_refused_in_words(history: History) -> None:
    chosen = plain()
    chosen.lock = Lock()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"FedAvg cannot be copied .*lock.*take locks"):
        rescind.flower.run(Recorded(chosen, history), on_grid(network_app(CLINICS), CLINICS), network(), 1)


def test_frozen_tensors_stay_what_they_were_whatever_the_server_app_does_to_those_it_has(history: History) -> None:
    grid = Watching(head_app(CLINICS), {name: {"client-id": name} for name in CLINICS}, authenticated=False)
    arrays = ArrayRecord({**head(), "body": Array(np.ones(3))})
    before = np.ones(3)

    def spoil(_round: int, shown: ArrayRecord) -> None:
        for record in (arrays, shown):
            record["body"].data = Array(np.zeros(3)).data

    recorded = Recorded(plain(), history, training=TRAINING, trained=["weight", "bias"])
    result = rescind.flower.run(recorded, grid, arrays, 3, evaluate_fn=spoil)
    assert all(np.array_equal(model["body"].numpy(), before) for model in grid.models)
    assert np.array_equal(result.arrays["body"].numpy(), before)
    assert history.newest.round == 3


def test_a_plainer_strategy_goes_on_and_a_less_plain_one_does_not(history: History) -> None:
    grid = on_grid(network_app(CLINICS), CLINICS)
    own = Named(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    rescind.flower.run(Recorded(own, history), grid, network(), 1)
    rescind.flower.run(Recorded(plain(), history), grid, network(), 2)
    assert history.facts.sources.server.value == "declared by the operator"
    with History.in_memory() as other:
        rescind.flower.run(Recorded(plain(), other), grid, network(), 1)
        with pytest.raises(RunMismatchError, match="server"):
            rescind.flower.run(Recorded(own, other), grid, network(), 2)
