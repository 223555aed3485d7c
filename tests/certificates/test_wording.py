"""Every text of a certificate follows from its facts, and every number from others: a signer who lies is found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rescind import History, LocalTraining, SoftmaxL2
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError, InconsistentCertificateError, ModelMismatchError
from rescind.certificates.issue import (
    build_guarantee,
    build_statement,
    describe_facts,
    describe_noised_rounds,
    describe_training,
)
from rescind.certificates.predicate import VERSION, Noise, Predicate, Statement
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.certificates.wording import NOISE_SOURCE, format_at_most, format_share, write_texts
from rescind.checkpoints.tensors import save
from rescind.core.calibration import Budget
from rescind.core.facts import Facts, Mode, PrivacyScope, PublicHead, Sampling, Source, Sources
from rescind.core.noise import GRID, drawn_guarantee
from rescind.core.planning import Candidate, strict_candidates
from rescind.core.regularity import Curvature, DeclaredLoss, Loss
from rescind.core.summary import RESERVE, DrawnNoise, Request, Summary
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, FineTuning, Last, Method, Scratch, StrictSifu
from rescind.methods.method import Certifying
from rescind.pages.certificate import render_certificate
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.small import TRAINING, simulation
from tests.builders import BUDGET, KEY, SIGNER, everybody

HEAD = PublicHead(initial_norm=0.0, parameters=21, batch=15)
NOISED = NoisedAverage(clip=0.5, denominator=10.0, noise_multiplier=8.0)
LISTED = ("title", "claim", "counterfactual", "sampling", "constants", "public", "assumptions", "not_claimed")


def made(history: History, method: Method, *, level: ErasureLevel = ErasureLevel.OUTPUT, **options: Any) -> int:
    """Train ten clients, let one leave, and return the request's number."""
    server = {"server": NOISED} if options.get("public") == NOISED.facts else {}
    federation = Revocable(history, everybody(10, **options), **server)
    federation.train(Rounds(6))
    number = history.requests.ask(["clinic-1"], BUDGET)
    federation.forget(method, Rounds(2), level=level)
    return number


KINDS: dict[str, tuple[Method, dict[str, Any]]] = {
    "exact": (Scratch(), {}),
    "strict": (StrictSifu(), {"public": HEAD, "public_schedule": True}),
    "strict, DP-FedAvg": (Dp(), {"public": NOISED.facts, "public_schedule": True}),
    "instance": (Last(), {}),
    "heuristic": (FineTuning(), {}),
}


@pytest.fixture(scope="module")
def issued() -> Iterator[dict[str, tuple[History, Statement]]]:
    found = {}
    for kind, (method, options) in KINDS.items():
        history = History.in_memory()
        found[kind] = history, build_statement(history, made(history, method, **options))
        assert found[kind][1].predicate.mode == kind.partition(",")[0]
    yield found
    for history, _ in found.values():
        history.close()


def altered(found: Statement, **changes: Any) -> Statement:
    return found.model_copy(update={"predicate": found.predicate.model_copy(update=changes)})


def checked(found: Statement, **options: Any) -> VerifiedCertificate:
    return verify(sign(found, [SIGNER]), [KEY], **options)


def fitting(found: Statement, mode: Mode, **changes: Any) -> Statement:
    """Alter a certificate, and give it the very texts that its altered facts have."""
    other = altered(found, **changes, mode=mode.value).predicate
    return altered(found, **changes, **write_texts(other), mode=mode.value)


# Texts


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_was_recomputed_and_what_was_not(
    kind: str, issued: dict[str, tuple[History, Statement]]
) -> None:
    history, found = issued[kind]
    alone, whole = checked(found), checked(found, history=history)
    told = (
        "its claim, counterfactual and assumptions follow from the stated facts; its numbers follow from one another"
    )
    assert told in alone.holds
    assert any("who took part, how participants were drawn and weighed" in each for each in alone.unchecked)
    assert whole.unchecked == ("which model it is about: give the model's file",)


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signer_who_lies_in_a_text_is_refused(
    kind: str, name: str, issued: dict[str, tuple[History, Statement]]
) -> None:
    _, found = issued[kind]
    there = getattr(found.predicate, name)
    if isinstance(there, str):
        lies: list[Any] = ["whatever", there + " "]
    else:
        other = issued["exact" if kind != "exact" else "instance"][1].predicate.assumptions[-1]
        lies = [(*there, other if name == "assumptions" else "and more")]
        lies += [(), there[1:]] if there else []
    for lie in lies:
        with pytest.raises(InconsistentCertificateError, match=name):
            checked(altered(found, **{name: lie}))


def test_a_better_basis_than_the_facts_have_is_refused(issued: dict[str, tuple[History, Statement]]) -> None:
    _, found = issued["instance"]
    better = tuple(
        each.model_copy(update={"basis": "proven"}) if each.basis == "declared by the operator" else each
        for each in found.predicate.assumptions
    )
    assert better != found.predicate.assumptions
    with pytest.raises(InconsistentCertificateError, match="assumptions"):
        checked(altered(found, assumptions=better))


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.INSTANCE])
@pytest.mark.parametrize("kind", ["instance", "strict, DP-FedAvg"])
def test_a_guarantee_without_its_noise_is_refused_even_if_all_texts_fit(
    mode: Mode, kind: str, issued: dict[str, tuple[History, Statement]]
) -> None:
    _, found = issued[kind]
    with pytest.raises(InconsistentCertificateError, match="without noise"):
        checked(fitting(found, mode, noise=None, rounds=None))


def test_a_training_without_a_strict_bound_is_refused_as_strict(
    issued: dict[str, tuple[History, Statement]],
) -> None:
    _, found = issued["instance"]
    fast = describe_training(LocalTraining(3, 5.0, SoftmaxL2(0.02, 1.0)))
    with pytest.raises(InconsistentCertificateError, match="no strict guarantee"):
        checked(fitting(found, Mode.STRICT, training=fast))


def test_constants_and_what_is_public_are_named(issued: dict[str, tuple[History, Statement]]) -> None:
    instance = issued["instance"][1].predicate
    assert instance.constants == (
        "the round to which training went back",
        "the noise level",
        "the noise level and the round of earlier and later requests",
        "the numbers of rounds that were trained",
    )
    exact = " ".join(issued["exact"][1].predicate.constants)
    for part in (
        "follows from who took part and from numbers of rounds only",
        "predicting rounds",
        "earlier and later",
    ):
        assert part in exact
    strict = " ".join(issued["strict"][1].predicate.public)
    for part in ("who took part", "trains with equal weights", "local steps", "numbers of rounds"):
        assert part in strict
    assert issued["strict"][1].predicate.constants == instance.public == ()
    for kind, heading in (("instance", "Taken as constants"), ("exact", "Taken as constants"), ("strict", "Public")):
        found = checked(issued[kind][1])
        for text in ("\n".join(explain(found)), render_certificate(found, "today")):
            assert heading in text
        for line in (*found.statement.predicate.constants, *found.statement.predicate.public):
            assert line in " ".join(" ".join(explain(found)).split())


@pytest.mark.parametrize("kind", ["exact", "instance", "strict", "heuristic"])
def test_in_short_it_counts_what_it_does_not_list(issued: dict[str, tuple[History, Statement]], kind: str) -> None:
    found = checked(issued[kind][1])
    predicate, said = found.statement.predicate, " ".join(" ".join(explain(found, full=False)).split())
    assert said.startswith(" ".join(next(explain(found)).split()))
    assert predicate.claim in said
    counted = [line for line in found.unchecked if ": give the " in line]
    assert f"the word of whoever signed: {len(counted)} points" in said
    assert all(line in said for line in found.unchecked if line not in counted)
    assert f"rests on {len(predicate.assumptions)} assumptions" in said
    assert all(reason in said for reason in (*predicate.reasons, *found.since))
    assert len(list(explain(found, full=False))) < len(list(explain(found))) / 2


def texts_of(mode: Mode, facts: Facts) -> dict[str, Any]:
    """Return the texts of a certificate about whole clients, by training without noise of its own."""
    stated = Predicate.model_construct(
        version=VERSION,
        mode=mode.value,
        scope="group",
        facts=describe_facts(facts, 21),
        training=describe_training(facts.training),
        frozen=None,
        noise=None,
        rounds=None,
        solving=None,
    )
    return write_texts(stated)


def assumed(sources: Sources, mode: Mode = Mode.INSTANCE, loss: Loss = TRAINING.loss) -> dict[str, str]:
    """Return what a claim rests on, with its basis."""
    training = LocalTraining(3, 0.5, loss)
    facts = Facts(training, Sampling.EVERYBODY, True, False, True, sources=sources)
    words = texts_of(mode, facts)
    return {each.what: each.basis for each in words["assumptions"]}


BOUNDED, UNBOUNDED = DeclaredLoss(Curvature(0.0, 1.0), 2.0), DeclaredLoss(Curvature(0.0, 1.0))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("loss", [TRAINING.loss, BOUNDED, UNBOUNDED])
@pytest.mark.parametrize("source", [Source.DECLARED, Source.REPORTED])
def test_nothing_is_called_proven_beside_training_that_is_declared(source: Source, loss: Loss, mode: Mode) -> None:
    for what, basis in assumed(Sources(training=source), mode, loss).items():
        assert "proven" not in what + basis


@pytest.mark.parametrize("source", [Source.EXECUTED, Source.CHECKED])
def test_what_our_code_executes_rests_on_its_proofs(source: Source) -> None:
    found = assumed(Sources(training=source))
    assert found["the loss's curvature, and with it B"] == "proven"
    assert assumed(Sources(training=source), loss=BOUNDED)["the loss's curvature, and with it B"] != "proven"
    assert found["every model is the weighted mean of its round's replies"] == "checked by the server"
    (rounding,) = (what for what in found if "exp and log" in what)
    assert found[rounding] == "assumed"


def test_rounding_in_the_clients_own_code_is_declared_and_names_what_stands_in() -> None:
    term = "what floating point adds in the participants' own code stays below its term"
    stand_in = ", in which the longest update stands in for the gradients"
    for loss, what in ((TRAINING.loss, term), (BOUNDED, term), (UNBOUNDED, term + stand_in)):
        assert assumed(Sources(), loss=loss)[what] == "declared by the operator"


def test_masks_are_named_where_distances_are_reported() -> None:
    masks = "the masks cancel in the mean; what is left of them by rounding is not in the bound"
    masked = Sources(distances=Source.REPORTED)
    assert assumed(masked)[masks] == "declared by the operator"
    assert masks not in assumed(Sources())
    assert masks not in assumed(masked, Mode.EXACT)


def test_a_share_of_those_connected_is_told_from_a_fixed_number() -> None:
    facts = Facts(TRAINING, Sampling.FRACTION, True, False, True, sample=0.3)
    words = texts_of(Mode.INSTANCE, facts)
    assert words["sampling"] == "fraction, 0.3"
    assert "how many were drawn followed who was connected, the group among them" in words["counterfactual"]


def test_what_was_sent_to_participants_is_not_called_back(issued: dict[str, tuple[History, Statement]]) -> None:
    first, *_ = issued["exact"][1].predicate.not_claimed
    assert first == "that models which were released, or sent to participants, before the restart are called back"


# DP-FedAvg


def test_a_dp_certificate_says_what_hides_and_what_its_mu_is_made_of(
    issued: dict[str, tuple[History, Statement]],
) -> None:
    _, found = issued["strict, DP-FedAvg"]
    rounds = found.predicate.rounds
    assert rounds is not None
    assert (rounds.sigma, rounds.clip, rounds.denominator) == (NOISED.sigma, 0.5, 10.0)
    assert rounds.noise_multiplier == pytest.approx(NOISED.sigma * 10 / 0.5 * (1 - 1e-4), rel=1e-12)
    # One client, in each of the six rounds.
    assert (rounds.rounds, rounds.participations) == (6, 6)
    assert rounds.mu == pytest.approx(math.sqrt(6) / rounds.noise_multiplier, rel=1e-6)
    told = " ".join(" ".join(explain(checked(found))).split())
    for text in (told, render_certificate(checked(found), "today")):
        assert "updates of length 0.5 at most, whose sum is divided by 10" in text
        assert f"z = {rounds.noise_multiplier:.6g}" in text
        assert "add up to at most 6, so mu = sqrt(6) / z" in text
    assert "not public: how many examples" in " ".join(found.predicate.public)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("noise_multiplier", 1.01),
        ("sigma", 2),
        ("clip", 0.9),
        ("denominator", 1.1),
        ("participations", 0),
        ("mu", 0.9),
    ],
)
def test_a_dp_number_that_does_not_follow_is_refused(
    name: str, factor: float, issued: dict[str, tuple[History, Statement]]
) -> None:
    _, found = issued["strict, DP-FedAvg"]
    assert found.predicate.rounds is not None
    value = getattr(found.predicate.rounds, name)
    other = found.predicate.rounds.model_copy(update={name: type(value)(value * factor)})
    with pytest.raises(InconsistentCertificateError, match="do not follow from noise, clip"):
        checked(altered(found, rounds=other))


def test_dp_numbers_that_fit_one_another_have_to_fit_the_list_the_budget_and_the_history(
    issued: dict[str, tuple[History, Statement]],
) -> None:
    history, found = issued["strict, DP-FedAvg"]
    with pytest.raises(InconsistentCertificateError, match="not on the public list"):
        checked(altered(found, rounds=describe_noised_rounds(NOISED.sigma * 1.01, 0.5, 10.0, 6, 6)))
    ten = tuple(f"{at:064x}" for at in range(10))
    with pytest.raises(InconsistentCertificateError, match=r"and \(epsilon, delta\) allows"):
        checked(altered(found, forgotten=ten, rounds=describe_noised_rounds(NOISED.sigma, 0.5, 10.0, 6, 600)))
    less = altered(found, rounds=describe_noised_rounds(NOISED.sigma, 0.5, 10.0, 6, 5))
    checked(less)
    with pytest.raises(HistoryMismatchError, match="rounds"):
        checked(less, history=history)


def test_after_a_purge_participation_is_known_and_said_to_stay() -> None:
    with History.in_memory() as history:
        options = KINDS["strict, DP-FedAvg"][1]
        found = build_statement(history, made(history, Dp(), level=ErasureLevel.PURGE, **options))
        assert found.predicate.rounds is not None
        assert found.predicate.rounds.participations == 6
        assert any("how often the participants took part" in each for each in found.predicate.erasure.stays)
        unchecked = checked(found, history=history).unchecked
    assert any("how often the forgotten participants took part" in each for each in unchecked)


@pytest.mark.parametrize(("scope", "sums"), [("individual", (6, 6)), ("group", (24, 6)), ("sequence", (24, 54))])
def test_each_scope_counts_the_largest_sum(scope: str, sums: tuple[int, int]) -> None:
    server = NoisedAverage(clip=0.5, denominator=10.0, noise_multiplier=40.0)
    engine = simulation(10, rate=1.0, secret_noise=True, public_schedule=True, public=server.facts)
    with History.in_memory() as history:
        federation = Revocable(history, engine, server)
        federation.train(Rounds(6))
        for names, counted in zip((["clinic-1", "clinic-2"], ["clinic-3"]), sums, strict=True):
            number = history.requests.ask(names, BUDGET, scope=PrivacyScope(scope))
            federation.forget(Dp(), Rounds(2), level=ErasureLevel.OUTPUT)
            rounds = checked(build_statement(history, number), history=history).statement.predicate.rounds
            assert rounds is not None
            # The second leaves after two more rounds, in which the first two are gone.
            later = 2 if names == ["clinic-3"] else 0
            assert (rounds.rounds, rounds.participations) == (6 + later, counted + later)


# Epsilons and attack power of the noise as it is drawn


@pytest.mark.parametrize(
    ("epsilon", "delta", "printed"),
    [(10, 1e-5, [1e-3, 1e-5, 1e-6]), (15, 1e-5, [1e-3, 1e-5, 1e-6]), (20, 1e-2, [1e-3]), (1, 1e-5, None)],
)
def test_only_epsilons_that_are_proven_of_the_noise_as_drawn_are_printed(
    epsilon: float, delta: float, printed: list[float] | None
) -> None:
    request = Request(frozenset({1}), Budget(epsilon, delta))
    noise = Noise(sigma=1.0, grid=GRID, source=NOISE_SOURCE, earlier=0)
    found = build_guarantee(request, 7850, noise, None)
    assert [each.delta for each in found.epsilons] == (printed or [1e-3, 1e-5, 1e-6, 1e-9])
    for each in found.epsilons:
        assert each.epsilon > request.epsilon_at(each.delta * 1.01, DrawnNoise(1.0, 7850))  # type: ignore[operator]
        ideal, kept = float(each.epsilon) - drawn_guarantee(0, 0, 1.0, 7850)[0], (1 - RESERVE) * each.delta
        reached = drawn_guarantee(ideal, kept, 1.0, 7850)
        assert reached[0] <= each.epsilon * (1 + 1e-12)
        assert reached[1] <= each.delta


def test_a_budget_that_the_noise_as_drawn_does_not_keep_is_refused() -> None:
    noise = Noise(sigma=1.0, grid=GRID, source=NOISE_SOURCE, earlier=0)
    with pytest.raises(ValueError, match="does not hold for the noise as it is really drawn"):
        build_guarantee(Request(frozenset({1}), Budget(5.0, 1e-5), releases=10_000), 7850, noise, None)
    with pytest.raises(ValueError, match="does not hold"):
        build_guarantee(
            Request(frozenset({1}), Budget(5.0, 1e-5)), 7850, None, describe_noised_rounds(1.0, 1.0, 1e5, 10_000, 1)
        )
    with pytest.raises(ValueError, match="does not hold"):
        build_guarantee(
            Request(frozenset({1}), Budget(5.0, 1e-5)), 7850, noise.model_copy(update={"earlier": 10**12}), None
        )


def test_a_signer_who_lies_about_epsilons_power_or_parameters_is_refused(
    issued: dict[str, tuple[History, Statement]], tmp_path: Path
) -> None:
    history, found = issued["instance"]
    said = found.predicate.guarantee
    assert said is not None
    lower = tuple(each.model_copy(update={"epsilon": 0.999 * each.epsilon}) for each in said.epsilons)
    for lie in ({"epsilons": lower}, {"powers": ()}, {"mu": said.mu * 1.001}, {"epsilons": ()}):
        with pytest.raises(InconsistentCertificateError, match="do not follow from one another"):
            checked(altered(found, guarantee=said.model_copy(update=lie)))
    facts = found.predicate.facts
    with pytest.raises(InconsistentCertificateError):
        checked(altered(found, facts=facts.model_copy(update={"parameters": 10**15})))
    save(history.model(history.newest), tmp_path / "model")
    checked(found, model=tmp_path / "model")
    exact = issued["exact"]
    save(exact[0].model(exact[0].newest), tmp_path / "exact")
    other = exact[1].predicate.facts.model_copy(update={"parameters": 22})
    with pytest.raises(ModelMismatchError, match="number of parameters"):
        checked(altered(exact[1], facts=other), model=tmp_path / "exact")


# Equal weights


@dataclass(frozen=True)
class Newest(Certifying):
    """Noise on the newest model, by the strict bound."""

    name: ClassVar[str] = "strict last"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        return strict_candidates(summary, *requests)[-1]


def sigma_for(examples: int, equal_weights: bool) -> float:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(1000, 6)), rng.integers(0, 3, 1000)
    shards = {f"c{at}": Shard(rows[at * 10 : at * 10 + 10], labels[at * 10 : at * 10 + 10]) for at in range(20)}
    shards["leaver"] = Shard(rows[300 : 300 + examples], labels[300 : 300 + examples])
    engine = Simulation(
        Federation(shards, Shard(rows[-50:], labels[-50:]), 3),
        SoftmaxHead(6, 3),
        LocalTraining(3, 0.5, SoftmaxL2(0.5, 1.0)),
        secret=b"x",
        public_schedule=True,
        public=PublicHead(0.0, 21, 500),
        equal_weights=equal_weights,
    )
    with History.in_memory() as history:
        federation = Revocable(history, engine)
        federation.train(Rounds(3))
        number = history.requests.ask(["leaver"], Budget(5, 1e-5))
        federation.forget(Newest(), Rounds(1))
        said = checked(build_statement(history, number), history=history).statement.predicate
    assert said.mode == "strict"
    assert said.facts.equal_weights is equal_weights
    assert ("not public: how many examples" in " ".join(said.public)) is equal_weights
    assert said.noise is not None
    return said.noise.sigma


def test_with_equal_weights_strict_noise_does_not_tell_the_leavers_size() -> None:
    assert len({sigma_for(examples, equal_weights=False) for examples in (5, 50, 500)}) == 3
    assert len({sigma_for(examples, equal_weights=True) for examples in (5, 50, 500)}) == 1


def test_what_is_shown_as_at_most_is_rounded_up(issued: dict[str, tuple[History, Statement]]) -> None:
    assert [format_share(share) for share in (0.0, 0.70111, 0.7009, 1.0)] == ["0.0%", "70.2%", "70.1%", "100.0%"]
    assert [format_at_most(value) for value in (0.0, 12.31, 0.12309, 1231.0)] == ["0", "12.4", "0.124", "1240"]
    found = checked(issued["instance"][1])
    said = found.statement.predicate.guarantee
    assert said is not None
    for power in said.powers:
        assert format_share(power.true_positive_rate) in render_certificate(found, "today")
    assert format_share(said.powers[-1].true_positive_rate) in " ".join(explain(found))


# Reports, doubts, and the words of DP-FedAvg


def test_a_report_says_that_nobody_was_forgotten_and_why(issued: dict[str, tuple[History, Statement]]) -> None:
    found = checked(issued["heuristic"][1])
    told = " ".join(" ".join(explain(found)).split())
    assert "1 asked to be forgotten. Nothing is claimed." in told
    assert "compared with" not in told + render_certificate(found, "today")
    assert "Why it is no certificate: - " + found.statement.predicate.reasons[0] in told
    certificate = " ".join(explain(checked(issued["exact"][1])))
    assert "1 forgotten." in certificate
    assert "compared with" in certificate
    assert "Why it is no certificate" not in certificate


def test_dp_fedavg_draws_noise_in_every_round(issued: dict[str, tuple[History, Statement]]) -> None:
    for kind, times in (("strict, DP-FedAvg", "in every round"), ("strict", "once"), ("instance", "once")):
        said = issued[kind][1].predicate
        assert f"the noise was drawn as stated, {times}" in [each.what for each in said.assumptions]
        assert any("carry no noise" in each for each in said.erasure.stays) is (times == "once")


def test_releases_are_counted_in_plain_english(issued: dict[str, tuple[History, Statement]]) -> None:
    found = issued["instance"][1]
    said = found.predicate.guarantee
    assert said is not None
    for releases, words in ((1, "for 1 release\n"), (3, "for 3 releases\n")):
        request = Request(frozenset({1}), Budget(said.epsilon, said.delta), releases=releases)
        proven = build_guarantee(request, found.predicate.facts.parameters, found.predicate.noise, None)
        assert words in "\n".join(explain(checked(altered(found, guarantee=proven))))


def test_no_two_brackets_follow_one_another(issued: dict[str, tuple[History, Statement]]) -> None:
    for _, found in issued.values():
        assert ") (" not in " ".join(explain(checked(found)))
