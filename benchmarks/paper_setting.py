"""The paper's own setting: what its numbers really give, and what a certificate says about it.

Softmax regression on MNIST's pixels in [0, 1], 100 clients of 100 images and one class each, 10 drawn for a round,
K = 10 full-batch steps with eta = 0.01, no momentum; the ten clients with the digit 0 leave. The paper's rule has
B = 1, the largest Psi of the group, sigma = 0.05, and the classic formula at (10, 0.01). At that eta B = 1 is proven
for rows of norm up to 19.97, and no image is as long.

``promises``: for the model that a rule goes back to, the bound on one client (``psi_max``) and on the ten together
(``psi_joint``), how far from it a model retrained without the ten really is (``alpha_joint``), and the epsilons at
delta = 0.01 that noise of 0.05 gives there. ``authors`` is the released code's Psi, weighted by 1/(M-1) instead of
1/(m-1). ``draws``: the same at the paper's T when other clients are drawn for the rounds. ``statements``: what the
product says of the paper's rule and of sound ones. ``rounds``: how many it takes until the remaining clients' mean
accuracy on their own data is 90 %; ``forget`` is that of those who left then. ``worst_...`` and ``last_...``:
alpha/Psi, where ``one`` is the client whose Psi is largest in the end. ``refusal``: the product's answer to whoever
wants to restart where the released code would. Every model is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
from experiments.data import partitions, sets
from rescind import History, LocalTraining, Sampling, SoftmaxL2
from rescind.audit.replay import distance
from rescind.certificates.issue import build_statement
from rescind.core.arrays import Tensor
from rescind.core.calibration import (
    Budget,
    ClassicBudget,
    attack_power,
    reached_epsilon,
    sensitivity_threshold,
    smallest_sigma,
)
from rescind.core.edges import ModelId
from rescind.core.facts import Facts, PrivacyScope
from rescind.core.noise import public_sigma
from rescind.core.planning import assess, paper_choice
from rescind.core.regularity import NetworkLoss, expansion
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.core.summary import Request
from rescind.engines.engine import Engine
from rescind.engines.server import average, draw_noise
from rescind.engines.stops import Accuracy, Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Method, PaperSifu, Sifu
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

CLIENTS, EACH, DRAWN, LEAVING = 100, 100, 10, 10
SIGMA, EXACT, CLASSIC = 0.05, Budget(10.0, 0.01), ClassicBudget(10.0, 0.01)
# The largest round R with eta <= 2/beta, that is (R^2 + 1)/2 <= 200.
ROW_NORM = 19.9
TRAINING = LocalTraining(steps=10, learning_rate=0.01, loss=SoftmaxL2(l2=0.0, row_norm=ROW_NORM))
# How torch users usually normalise MNIST; the paper does not say how it scaled the pixels.
MEAN, DEVIATION = 0.1307, 0.3081
PREFIX = 200
RATES = (0.001, 0.01)
RELEASED = "the released code's T"
EPSILONS = ("alone", "joint", "alpha_joint")
# Of these ratios it is proven that they are at most 1.
SOUND = ("joint_against_joint", "one_against_its_own")

Trace = NDArray[np.float64]


class Assuming(Simulation):
    """Executes the same, and takes B = 1 as given instead of proving it."""

    @property
    def facts(self) -> Facts:
        """The facts, with a loss of which nothing is known."""
        facts = super().facts
        return replace(facts, training=replace(facts.training, loss=NetworkLoss()))


@dataclass(frozen=True, slots=True)
class Case:
    """A way to serve the request, and what is asked for."""

    title: str
    proven: bool
    budget: Budget | ClassicBudget
    scope: PrivacyScope
    method: Method


# Noise of 0.05 itself is planned and not drawn: the product draws only noise of the public list.
CASES = (
    Case("the paper's rule, B = 1 assumed", False, CLASSIC, PrivacyScope.INDIVIDUAL, PaperSifu(public_sigma(SIGMA))),
    Case("the paper's rule, B = 1 proven", True, CLASSIC, PrivacyScope.INDIVIDUAL, PaperSifu(public_sigma(SIGMA))),
    Case("exact sigma, each client alone", True, EXACT, PrivacyScope.INDIVIDUAL, PaperSifu(public_sigma(SIGMA))),
    Case("exact sigma, the ten together", True, EXACT, PrivacyScope.GROUP, PaperSifu(public_sigma(SIGMA))),
    Case("the planner, the ten together", True, EXACT, PrivacyScope.GROUP, Sifu()),
)


def engine_for(
    images: sets.Images,
    scaled: Callable[[Trace], Trace],
    row_norm: float = ROW_NORM,
    draw: int = 0,
    kind: type[Simulation] = Simulation,
) -> Simulation:
    train, test = (scaled(pixels.reshape(len(pixels), -1) / 255) for pixels in (images.train, images.test))
    parts = partitions.one_class(images.train_labels, CLIENTS, EACH, seed=1)
    shards = {f"client-{at:02}": Shard(train[part], images.train_labels[part]) for at, part in enumerate(parts)}
    return kind(
        Federation(shards, Shard(test, images.test_labels), images.classes),
        SoftmaxHead(train.shape[1], images.classes),
        replace(TRAINING, loss=SoftmaxL2(l2=0.0, row_norm=row_norm)),
        sampling=Sampling.FIXED_SIZE,
        size=DRAWN,
        secret=f"the paper's setting {draw}".encode(),
    )


def as_it_is(rows: Trace) -> Trace:
    return rows


def normalised(rows: Trace) -> Trace:
    return (rows - MEAN) / DEVIATION


def classic() -> dict[str, float]:
    """Tell what the classic formula's noise is worth for a client that is exactly Psi* away."""
    return {
        "threshold": sensitivity_threshold(SIGMA, CLASSIC.mu),
        "exact_threshold": sensitivity_threshold(SIGMA, EXACT.mu),
        "mu": CLASSIC.mu,
        "exact_mu": EXACT.mu,
        "delta": CLASSIC.reached_delta,
        "epsilon": reached_epsilon(CLASSIC.mu, CLASSIC.delta),
        **{f"power_at_{rate:g}": attack_power(CLASSIC.mu, rate) for rate in RATES},
        **{f"exact_power_at_{rate:g}": attack_power(EXACT.mu, rate) for rate in RATES},
    }


def scaling(images: sets.Images, rounds: int) -> list[dict[str, float | str]]:
    """Tell which rows the proof takes, for both usual ways to scale pixels, and what clipping to them costs."""
    rows: list[dict[str, float | str]] = []
    parts = np.concatenate(partitions.one_class(images.train_labels, CLIENTS, EACH, seed=1))
    for name, scaled in (("[0, 1]", as_it_is), ("normalised", normalised)):
        used = scaled(images.train[parts].reshape(len(parts), -1) / 255)
        lengths = np.linalg.norm(used, axis=1)
        own = [np.linalg.eigvalsh(each @ each.T + 1)[-1] / EACH / 2 for each in used.reshape(CLIENTS, EACH, -1)]
        longest = float(lengths.max())
        row: dict[str, float | str] = {
            "pixels": name,
            "longest_row": longest,
            "mean_row": float(lengths.mean()),
            "clipped": float((lengths > ROW_NORM).mean()),
            "largest_eta_unclipped": 2 / SoftmaxL2(l2=0.0, row_norm=longest).curvature.high,
            "largest_own_beta": float(max(own)),
            "own_beta_too_large": int(np.sum(np.array(own) * TRAINING.learning_rate > 2)),
        }
        if longest > ROW_NORM:
            for key, row_norm in (("clipped", ROW_NORM), ("unclipped", longest)):
                engine = engine_for(images, scaled, row_norm)
                model = trained(engine, rounds, (), {rounds}, f"{name}, {key}")[rounds]
                row[f"accuracy_{key}"] = engine.accuracy(model, engine.clients)
                row[f"test_{key}"] = engine.test_accuracy(model)
        rows.append(row)
    return rows


def trained(
    engine: Engine, rounds: int, without: Collection[str], wanted: Collection[int], label: str
) -> dict[int, dict[str, Tensor]]:
    """Train by the same draws without some clients, whose places stay empty, and give the wanted models."""
    model, kept = engine.start(), {}
    for number in progress(range(1, rounds + 1), label):
        model_id = ModelId(0, number)
        names = [name for name in engine.draw(model_id, engine.clients) if name not in without]
        model = average(model, engine.train(model, model_id, names), 1.0).model
        if number in wanted:
            kept[number] = model
    return kept


@dataclass(frozen=True, slots=True)
class Distances:
    """Over all rounds: Psi of every leaver, of all together; over some: how far retraining really ends."""

    alone: Trace
    joint: Trace
    largest: int
    alpha_joint: Mapping[int, float]
    alpha_alone: Mapping[int, float]

    @property
    def most(self) -> Trace:
        """Psi of the group as the paper has it: the largest client's."""
        return np.asarray(self.alone.max(axis=1))


def within(psi: Trace, threshold: float) -> int:
    """Return the last round whose Psi is at most the threshold (the paper's T)."""
    return int(np.flatnonzero(psi <= threshold).max())


def compared(engine: Simulation, history: History, leaving: Sequence[str], marks: Collection[int]) -> Distances:
    """Retrain without all leavers, and without the one with the largest Psi, and measure the distances."""
    group = history.participants.find(leaving)
    summary = history.summary(group)
    alone = client_sensitivities(summary.edges, sorted(group), range(len(summary.edges) + 1))
    largest = int(alone[-1].argmax())
    (name,) = history.ledger.names(np.array(sorted(group))[[largest]]).values()
    rounds = len(summary.edges)
    joint = group_sensitivity(summary.edges, group)
    authors = alone.max(axis=1) * (DRAWN - 1) / (CLIENTS - 1)
    wanted = {*marks, rounds, *(within(psi, t) for psi in (alone.max(axis=1), authors, joint) for t in thresholds())}

    def distances(without: Sequence[str], label: str) -> dict[int, float]:
        models = trained(engine, rounds, without, wanted, label)
        return {at: distance(history.model(ModelId(0, at)), model) for at, model in models.items()} | {0: 0.0}

    return Distances(alone, joint, largest, distances(leaving, "without the ten"), distances([name], "without one"))


def thresholds() -> tuple[float, float]:
    return sensitivity_threshold(SIGMA, CLASSIC.mu), sensitivity_threshold(SIGMA, EXACT.mu)


def promise(title: str, found: Distances, at: int) -> dict[str, Any]:
    """Tell what noise of 0.05 on the model of a round hides, by the bounds and by the measured distances."""

    def epsilon(distance: float) -> float:
        return reached_epsilon(distance / SIGMA, EXACT.delta)

    most, joint = float(found.most[at]), float(found.joint[at])
    return {
        "rule": title,
        "round": at,
        "psi_authors": most * (DRAWN - 1) / (CLIENTS - 1),
        "psi_max": most,
        "psi_joint": joint,
        "joint_over_max": joint / most if most else None,
        "alpha_joint": found.alpha_joint[at],
        "epsilon_alone": epsilon(most),
        "epsilon_joint": epsilon(joint),
        "epsilon_alpha_joint": epsilon(found.alpha_joint[at]),
        "power_alpha_joint": attack_power(found.alpha_joint[at] / SIGMA, 0.001),
        "sigma_for_joint": smallest_sigma(joint, EXACT.mu),
    }


def promises(
    engine: Simulation, history: History, leaving: Sequence[str], found: Distances, until: Accuracy
) -> list[dict[str, Any]]:
    """Go back to where each rule says, add noise, and train on until the remaining clients are served well again."""
    classic_, exact = thresholds()
    rules = (
        ("retraining", 0),
        ("the paper's T", within(found.most, classic_)),
        ("exact sigma, max over W", within(found.most, exact)),
        ("exact sigma, jointly", within(found.joint, exact)),
        (RELEASED, within(found.most * (DRAWN - 1) / (CLIENTS - 1), classic_)),
        ("the last round", len(found.joint) - 1),
    )
    rows = []
    for title, at in rules:
        model: Mapping[str, Tensor] = history.model(ModelId(0, at))
        if title != "retraining":
            # With a seed: the product draws no secret noise that is not on its public list.
            model = draw_noise(model, SIGMA, b"the paper's setting", title)
        rounds, forget = recovered(engine, model, leaving, until)
        rows.append(promise(title, found, at) | {"rounds": rounds, "forget": forget})
    return rows


def recovered(
    engine: Simulation, model: Mapping[str, Tensor], leaving: Sequence[str], until: Accuracy
) -> tuple[int, float]:
    """Count the rounds without the leavers until the rule is met; give also their accuracy then."""
    names, rounds = [name for name in engine.clients if name not in leaving], 0
    while not until.reached(rounds, partial(engine.accuracy, model, names)):
        rounds += 1
        model_id = ModelId(1, rounds)
        model = average(model, engine.train(model, model_id, engine.draw(model_id, names)), 1.0).model
    return rounds, engine.accuracy(model, leaving)


def refusal(history: History, leaving: Sequence[str], at: int) -> str:
    """Ask the product for noise of the public list next to 0.05 at a round where it hides nobody."""
    request = Request(history.participants.find(leaving), EXACT, PrivacyScope.INDIVIDUAL)
    summary = history.summary(request.group)
    (node,) = (each for each in summary.kept if each.round == at)
    try:
        assess(summary, request, node=node, sigma=public_sigma(SIGMA))
    except ValueError as refused:
        return str(refused)
    return ""


def other_draws(images: sets.Images, draws: int, rounds: int) -> list[dict[str, Any]]:
    """Return the promise at the paper's T for other draws of participants; for B = 1 Psi never falls after it."""
    rows = []
    for draw in range(1, draws + 1):
        engine = engine_for(images, as_it_is, draw=draw)
        with History.in_memory() as history:
            revocable(history, engine).train(Rounds(rounds))
            # Who was not drawn yet has nothing to hide.
            known = history.ledger.pseudonyms(engine.clients[:LEAVING])
            found = compared(engine, history, list(known), ())
        classic_, exact = thresholds()
        rows.append(promise(f"draw {draw}", found, within(found.most, classic_)))
        rows[-1]["round_joint"] = within(found.joint, exact)
    return rows


def ratios(found: Distances) -> dict[str, float]:
    """Return the largest alpha/Psi over the rounds compared, and that of the last, for every kind of Psi."""
    own = found.alone[:, found.largest]
    kinds = {
        "joint_against_joint": (found.alpha_joint, found.joint),
        "one_against_its_own": (found.alpha_alone, own),
        "joint_against_max": (found.alpha_joint, found.most),
        "one_against_authors": (found.alpha_alone, own * (DRAWN - 1) / (CLIENTS - 1)),
        "joint_against_authors": (found.alpha_joint, found.most * (DRAWN - 1) / (CLIENTS - 1)),
    }
    last = len(found.joint) - 1
    worst = {name: max(alpha[at] / psi[at] for at in alpha if psi[at] > 0) for name, (alpha, psi) in kinds.items()}
    return {f"worst_{name}": float(value) for name, value in worst.items()} | {
        f"last_{name}": float(alpha[last] / psi[last]) for name, (alpha, psi) in kinds.items()
    }


def served(case: Case, engine: Engine, history: History, leaving: Sequence[str], until: Accuracy) -> dict[str, Any]:
    """Serve the request and read what would be signed."""
    # The signature offers only what can be certified.
    request = history.requests.ask(leaving, case.budget, scope=case.scope)
    federation = revocable(history, engine)
    asked = history.timeline.requests[request - 1].request
    letter = paper_choice(history.summary(asked.group), asked, sigma=SIGMA) if case.budget is CLASSIC else None
    (outcome,) = federation.forget(case.method, until, level=ErasureLevel.OUTPUT)
    assert outcome.restart is not None
    assert outcome.scores is not None
    said = build_statement(history, request).predicate
    chosen = outcome.restart.planned.candidate
    return {
        "case": case.title,
        "method": case.method.name,
        "from": chosen.node.round,
        "sigma": chosen.sigma,
        "mode": said.mode,
        "title": said.title,
        "claim": said.claim,
        "counterfactual": said.counterfactual,
        "guarantee": None if said.guarantee is None else [said.guarantee.epsilon, said.guarantee.delta],
        "reasons": list(said.reasons),
        "rounds": outcome.rounds,
        "retain": outcome.scores.retain,
        "forget": outcome.scores.forget,
        "to_the_letter": None
        if letter is None
        else {
            "from": letter.node.round,
            "sigma": letter.sigma,
            "mode": letter.mode.value,
            "reasons": list(letter.obstacles),
        },
    }


def revocable(history: History, engine: Engine) -> Revocable:
    # The paper's rule may go back to any round.
    return Revocable(history, engine, capacity=10_000)


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(f"{row[key]:.4g}" if isinstance(row[key], float) else str(row[key]) for key in columns))
    Console(file=sys.stderr, width=160).print(table)


def measured(
    images: sets.Images, cases: Sequence[Case], rounds: int, until: Accuracy
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train and serve case by case; the planner's case in full, which is also retrained without the leavers.

    Where the paper's rule goes back to does not depend on later rounds: for B = 1 Psi never falls.
    """
    engine = engine_for(images, as_it_is)
    leaving = list(engine.clients[:LEAVING])
    found: dict[str, Any] = {}
    said = []
    for case in cases:
        used = engine if case.proven else engine_for(images, as_it_is, kind=Assuming)
        with History.in_memory() as history:
            whole = isinstance(case.method, Sifu)
            revocable(history, used).train(Rounds(rounds if whole else min(rounds, PREFIX)))
            if whole:
                model = history.model(history.newest)
                distances = compared(engine, history, leaving, range(0, rounds, max(rounds // 60, 1)))
                given = promises(engine, history, leaving, distances, until)
                (released,) = (row["round"] for row in given if row["rule"] == RELEASED)
                found = {
                    "accuracy": engine.accuracy(model, engine.clients),
                    "test": engine.test_accuracy(model),
                    "promises": given,
                    **ratios(distances),
                    "refusal": refusal(history, leaving, released),
                }
            said.append(served(case, used, history, leaving, until))
    return found, said


def main() -> None:
    chosen = parsed(__doc__)
    torch.set_num_threads(1)
    images = sets.load("mnist", chosen.data)
    rounds, threshold, most = (60, 0.8, 100) if chosen.quick else (3000, 0.9, 3000)
    cases = (CASES[0], CASES[2], CASES[4]) if chosen.quick else CASES
    found, said = measured(images, cases, rounds, Accuracy(threshold, least=50, most=most, every=10))
    rows = scaling(images, min(rounds, 1000))
    draws = other_draws(images, 2 if chosen.quick else 20, 60)
    columns = ("rule", "round", *("psi_max", "psi_joint", "alpha_joint"), *(f"epsilon_{each}" for each in EPSILONS))
    show(f"noise of {SIGMA:g}, nominally ({EXACT.epsilon:g}, {EXACT.delta:g})", [*found["promises"], *draws], columns)
    show("what is said", said, ("case", "from", "sigma", "mode", "title", "rounds", "retain", "forget"))
    show("rows", rows, ("pixels", "longest_row", "clipped", "largest_eta_unclipped", "largest_own_beta"))
    assert TRAINING.loss.curvature is not None
    modes = [(each["mode"], case.budget) for each, case in zip(said, cases, strict=True)]
    finish(
        {
            "rounds": rounds,
            **found,
            "expansion": expansion(TRAINING.loss.curvature, TRAINING.learning_rate),
            "classic": classic(),
            "classic_delta": CLASSIC.reached_delta,
            "draws": draws,
            "statements": said,
            "scaling": rows,
            "violations": sum(found[f"worst_{kind}"] > 1 for kind in SOUND),
            "classic_certified": sum(mode != "heuristic" for mode, budget in modes if budget is CLASSIC),
            "sound_not_certified": sum(mode == "heuristic" for mode, budget in modes if budget is EXACT),
        }
    )


if __name__ == "__main__":
    main()
