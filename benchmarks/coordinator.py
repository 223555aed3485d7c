"""How many of a hospital's rows does a hostile coordinator get from an honest client, within the client's limits?

The client is ``rescind.flower.train_head`` on 303 rows of 13 features. The coordinator sends up to 1,000 messages of
its choice in a run. A row counts as known if a guess is off by less than 1e-3 of its length. Every attack is tried
without limits first, where it has to succeed.

The sums for a ridge head are one answer, whatever is sent. ``ridge_sums`` is the share of rows that are means of a
class or directions of the features' sum; ``ridge_single`` that of rows that are alone in their class, and
``ridge_difference`` that of rows that left, by the sums from before and from after.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import scipy
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

import rescind.flower
from benchmarks._measure import finish, parser, progress
from rescind import LocalTraining, LogisticL2, SquaredL2
from rescind.core.arrays import Floats
from rescind.core.edges import ModelId
from rescind.core.sums import Wanted
from rescind.engines.heads import clip_rows, sum_ridge
from rescind.engines.seeds import choose_batches
from rescind.flower import Limits
from rescind.flower.wire import SUMS, Instructions, seal, tell_password
from rescind.testing.grid import pose_as_task

ROWS, FEATURES, MESSAGES = 303, 13, 1_000
NONE = Limits(rows=1, batch=1, steps=10**9, learning_rate=1e30, length=1e30, messages=10**9)
# Longer than any row, so that none is clipped.
UNCLIPPED = 6.0
# The longest model that an attack is made with where nothing limits it, times the longest row.
LONGEST = 1e9


class EndedError(Exception):
    """The client answers no more, or the coordinator has sent all its messages."""


@dataclass(eq=False)
class Hospital:
    """An honest client in one run, and the most messages that it is sent."""

    limits: Limits
    rows: int = ROWS
    messages: int = MESSAGES
    asked: int = 0
    context: Context = field(default_factory=lambda: Context(1, 7, {}, RecordDict(), {}))

    def __post_init__(self) -> None:
        pose_as_task()
        rng = np.random.default_rng(0)
        self.features = rng.normal(size=(self.rows, FEATURES))
        self.labels = (rng.random(self.rows) < 0.4).astype(np.int64)

    def ask(self, model: Floats, row_norm: float, **instructions: Any) -> RecordDict:
        """Send a flat model [w, b] with instructions, and return the reply's content."""
        if self.asked == self.messages:
            raise EndedError
        self.asked += 1
        settings: dict[str, Any] = {
            "training": LocalTraining(1, 0.01, LogisticL2(0.0, row_norm)),
            "trained": ("weight", "bias"),
            "batch": 0,
            "seed": bytes(32),
            "model_id": ModelId(0, self.asked),
            "head": bytes(32),
        }
        arrays = ArrayRecord({"weight": Array(model[np.newaxis, :-1].copy()), "bias": Array(model[-1:].copy())})
        config = ConfigRecord(Instructions(**settings | instructions).record())  # type: ignore[arg-type]
        message = Message(RecordDict({"arrays": arrays, "config": config}), 7, "train")
        seal(message, tell_password(self.context))
        try:
            reply = rescind.flower.train_head(message, self.context, self.features, self.labels, limits=self.limits)
        except ValueError as refused:
            raise EndedError from refused
        return reply.content

    def gradient(self, model: Floats, row_norm: float = UNCLIPPED) -> Floats:
        """Return the answer to a solver's question: the summed gradient."""
        content = self.ask(model, row_norm, wanted=Wanted.GRADIENT)
        return np.asarray(content.array_records[SUMS]["gradient"].numpy())

    def longest(self, row_norm: float) -> float:
        """Return the norm of the longest model that the client answers for."""
        return min(LONGEST, self.limits.length * math.sqrt(FEATURES + 1) * (1 - 1e-9)) / math.hypot(row_norm, 1.0)

    def known(self, guesses: list[Floats], row_norm: float = UNCLIPPED) -> float:
        """Return the share of rows that a guess tells, as they are or as they were clipped."""
        if not guesses:
            return 0.0
        found = np.zeros(self.rows, dtype=bool)
        for rows in (self.features, clip_rows(self.features, row_norm)):
            # Guesses of an attack that failed may be anywhere.
            apart = np.linalg.norm(rows[:, np.newaxis] - np.clip(guesses, -1e9, 1e9), axis=2)
            found |= apart.min(axis=1) < 1e-3 * np.linalg.norm(rows, axis=1)
        return float(found.mean())


def small_batches(hospital: Hospital, size: int) -> float:
    """Ask for steps from the model 0 on batches whose rows the coordinator knows: linear equations for the rows."""
    members, sums = [], []
    with suppress(EndedError):
        for number in range(hospital.rows + 20):
            seed = number.to_bytes(32, "big")
            training = LocalTraining(1, 0.01, LogisticL2(0.0, UNCLIPPED))
            content = hospital.ask(np.zeros(FEATURES + 1), UNCLIPPED, training=training, batch=size, seed=seed)
            arrays = content.array_records["arrays"]
            sums.append(np.append(arrays["weight"].numpy(), arrays["bias"].numpy()) * -size / training.learning_rate)
            members.append(np.bincount(choose_batches(seed, hospital.rows, size, 1)[0], minlength=hospital.rows))
    if not sums:
        return 0.0
    # Each is (1/2 - y) (x, 1).
    found = np.linalg.lstsq(np.array(members, dtype=np.float64), np.array(sums), rcond=None)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return hospital.known(list(np.nan_to_num(found[:, :-1] / found[:, -1:])))


def thresholds(hospital: Hospital) -> float:
    """Ask at long models, whose sums count the rows on one side of a plane; move the plane until one row is left."""
    direction = np.random.default_rng(1).normal(size=FEATURES)
    direction /= np.linalg.norm(direction)
    found: list[Floats] = []

    def beyond(place: float) -> Floats:
        model = np.append(direction, -place)
        return hospital.gradient(model * (hospital.longest(UNCLIPPED) / math.hypot(1.0, UNCLIPPED)))

    def part(low: float, high: float, at_low: Floats, at_high: Floats, depth: int = 0) -> None:
        between = at_low - at_high
        count = round(between[-1])
        if count == 1:
            found.append(between[:-1] / between[-1])
        if count > 1 and depth < 45:
            middle = (low + high) / 2
            at_middle = beyond(middle)
            part(low, middle, at_low, at_middle, depth + 1)
            part(middle, high, at_middle, at_high, depth + 1)

    with suppress(EndedError):
        part(-UNCLIPPED, UNCLIPPED, beyond(-UNCLIPPED), beyond(UNCLIPPED))
    return hospital.known(found)


def nearest(hospital: Hospital, row_norm: float = 1.0) -> float:
    """Ask at a plane that only the outermost rows reach, and turn it towards their mean until one of them is left."""
    rng, found = np.random.default_rng(2), list[Floats]()
    length = min(hospital.longest(row_norm), 80.0)
    with suppress(EndedError):
        # Beyond all rows the gradient is -sum of y x'.
        base = hospital.gradient(np.append(np.zeros(FEATURES), -length), row_norm)
        while True:
            towards = rng.normal(size=FEATURES)
            for _ in range(8):
                towards /= np.linalg.norm(towards)
                model = np.append(towards, -row_norm) * (length / math.hypot(1.0, row_norm))
                told = hospital.gradient(model, row_norm) - base
                towards = told[:-1] / told[-1]
            found.append(towards)
    return hospital.known(found, row_norm)


def compute(hospital: Hospital, seeds: tuple[int, ...], reach: float, most: int = 100) -> float:
    """Ask at random models, and fit rows to all answers by Levenberg and Marquardt's method, from random starts."""
    rng, answers = np.random.default_rng(seeds[0]), list[Floats]()
    models = rng.normal(size=(hospital.messages, FEATURES + 1))
    # None of the answers at so short a model tells a row, and all together tell every row.
    length = min(hospital.longest(UNCLIPPED), reach / UNCLIPPED)
    lengths = length * rng.uniform(0.3, 1.0, size=(len(models), 1))
    models *= lengths / np.linalg.norm(models, axis=1, keepdims=True)
    with suppress(EndedError):
        base = hospital.gradient(np.zeros(FEATURES + 1))
        for model in models:
            answers.append(hospital.gradient(model) - base)
    best = 0.0
    for seed in seeds:
        start = np.random.default_rng(seed + 100).normal(size=(hospital.rows, FEATURES))
        found = fit(models[: len(answers)], np.array(answers), start, most)
        best = max(best, hospital.known(list(found)))
        if best == 1:
            break
    return best


def fit(models: Floats, answers: Floats, rows: Floats, most: int) -> Floats:
    """Return rows whose sums of (sigmoid - 1/2) x' are the answers, as far as so many steps lead."""

    def error(guess: Floats) -> Floats:
        extended = np.column_stack([guess, np.ones(len(guess))])
        return np.asarray((scipy.special.expit(models @ extended.T) - 0.5) @ extended - answers)

    rest, damping = error(rows), 1e-3
    for _ in progress(range(most), "fitting"):
        matrix, slope = normal_equations(models, rows, rest)
        scale = np.diagonal(matrix).copy()
        for _ in range(12):
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += damping * scale
            try:
                step = scipy.linalg.solve(damped, slope, assume_a="pos", overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                damping = max(10 * damping, 1e-12)
                continue
            moved = rows - step.reshape(rows.shape)
            after = error(moved)
            if np.square(after).sum() < np.square(rest).sum():
                rows, rest, damping = moved, after, max(damping / 5, 1e-14)
                break
            damping *= 4
        else:
            break
        if np.square(rest).sum() < 1e-18:
            break
    return rows


def normal_equations(models: Floats, rows: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """Return J'J and J'r of the answers' errors, without the matrix J of all answers and rows."""
    count, width = rows.shape
    extended = np.column_stack([rows, np.ones(count)])
    chance = scipy.special.expit(models @ extended.T)
    bent = ((chance * (1 - chance))[:, :, np.newaxis] * models[:, np.newaxis, :-1]).reshape(len(models), -1)
    shifted = chance - 0.5
    matrix = (bent.T @ bent).reshape(count, width, count, width)
    matrix *= (extended @ extended.T)[:, np.newaxis, :, np.newaxis]
    mixed = (bent.T @ shifted).reshape(count, width, count, 1) * rows[:, np.newaxis, np.newaxis, :]
    matrix += mixed
    matrix += mixed.transpose(2, 3, 0, 1)
    straight = shifted.T @ shifted
    for at in range(width):
        matrix[:, at, :, at] += straight
    slope = (bent * np.repeat(rest @ extended.T, width, axis=1)).sum(axis=0) + (shifted.T @ rest[:, :-1]).reshape(-1)
    return matrix.reshape(count * width, -1), slope


def read_sums(hospital: Hospital) -> dict[str, float]:
    """Return the shares of rows that stand in the sums for a ridge head, as they are."""
    loss, rows, few = SquaredL2(l2=0.01, row_norm=UNCLIPPED), hospital.features, 20

    def told(chosen: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
        sums = sum_ridge(chosen, np.eye(few + 2)[labels], loss)
        return sums.matrix * 4.0**-sums.bits, sums.targets.astype(np.float64) * 4.0**-sums.bits

    matrix, targets = told(rows, hospital.labels)
    directions = np.linalg.eigh(matrix)[1].T
    means = [line[:-1] / line[-1] for line in (*targets[:2], *directions, matrix[-1])]
    # The first rows have a class each of their own.
    alone = np.where(np.arange(len(rows)) < few, np.arange(len(rows)) + 2, hospital.labels)
    single = [line[:-1] for line in told(rows, alone)[1][2:]]
    gone = [(matrix - told(np.delete(rows, at, 0), np.delete(hospital.labels, at))[0])[-1, :-1] for at in range(few)]
    share = len(rows) / few
    return {
        "ridge_sums": hospital.known(means),
        "ridge_single": hospital.known(single) * share,
        "ridge_difference": hospital.known(gone) * share,
    }


def main() -> None:
    """Try every attack without limits, with the default ones, and with a limit on the numbers that are told."""
    options = parser(__doc__).parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    attacks: dict[str, Callable[[Hospital], float]] = {
        "single": lambda hospital: small_batches(hospital, 1),
        "batches": lambda hospital: small_batches(hospital, 10),
        "thresholds": thresholds,
        "nearest": nearest,
    }
    shares = {
        f"{name}_{kind}": attack(Hospital(limits))
        for name, attack in attacks.items()
        for kind, limits in (("open", NONE), ("default", Limits()))
    }
    # As many answers for each row in a smaller hospital.
    rows, messages, reach = (50, 165, 4.0) if options.quick else (ROWS, MESSAGES, 18.0)
    for kind, limits in (("default", Limits()), ("share", Limits(share=1.0))):
        shares[f"computed_{kind}"] = compute(Hospital(limits, rows, messages), (1, 2, 3, 4), reach)
    finish(cast(dict[str, object], {"rows": rows} | shares | read_sums(Hospital(NONE))))


if __name__ == "__main__":
    main()
