"""Writes the README's table: ``PYTHONPATH=. python docs/pictures/front.py``, in a checkout's root.

Every number in it follows from the experiments' rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from experiments import harness, tables
from experiments.figures import staged
from experiments.harness import rows
from experiments.tables import middle

README = Path(__file__).parents[2] / "README.md"
HEADINGS = ["your model", "to forget", "to retrain", "a client sends to forget", "accuracy", "claim", "data"]


@dataclass(frozen=True)
class Case:
    """What is trained; what forgetting one client costs, and retraining; what a client sends; what comes of it."""

    model: str
    forget: str
    retrain: str
    sends: str
    accuracy: str
    claim: str
    data: str


def cases() -> list[Case]:
    """Return the cases: medians over the runs of a figure."""
    return [published(), staged_network(), *late_networks(), solved_head(), noised_head(), unrecorded()]


def published() -> Case:
    """Return a ridge head on a published network, beside the same head by FedAvg."""
    found = [row for row in rows("pretrained") if (row["dataset"], row["clients"]) == ("cifar10", 100)]
    ridge, fedavg = among(found, method="ridge"), among(found, method="fedavg")
    rounds = middle(ridge, "rounds")
    return Case(
        linked("published network, frozen, and a head from kept sums", "pretrained"),
        f"**{middle(ridge, 'forget_rounds'):.0f} rounds, {seconds(middle(ridge, 'forget_seconds'))}, "
        "no client asked**",
        f"{rounds:.0f} round, {seconds(middle(ridge, 'seconds'))}; "
        f"by FedAvg {middle(fedavg, 'rounds'):.0f} rounds, {seconds(middle(fedavg, 'seconds'))}",
        f"nothing, not {size(middle(ridge, 'bytes'))}; by FedAvg {size(middle(fedavg, 'forget_bytes'))}",
        f"{middle(ridge, 'test'):.1%}; by FedAvg {middle(fedavg, 'test'):.1%}".replace("%", " %"),
        "`exact`",
        "CIFAR-10",
    )


def staged_network() -> Case:
    """Return a network whose body a fifth of the clients train: one of the others leaves."""
    found = [row for row in staged.measured(rows("staged")) if row["dataset"] == "cifar10"]
    own = [row for row in found if staged.way(row) == "20 anchors, softmax head"]
    network = [row for row in found if staged.way(row) == "one network"]
    clients = own[0]["clients"]
    points = [
        100 * (middle(among(own, split=split), "test") - middle(among(network, split=split), "test"))
        for split in sorted({row["split"] for row in own})
    ]
    sent, again = middle(own, "one_bytes") / (clients - 1), middle(own, "train_bytes") / clients
    return Case(
        linked("network in two stages, not one of the fifth that trains the body", "staged"),
        f"{middle(own, 'one_rounds'):.0f} rounds, {seconds(middle(own, 'one_seconds'))}",
        f"{middle(own, 'train_rounds'):.0f} rounds, {seconds(middle(own, 'train_seconds'))}",
        f"{size(sent)}, not {size(again)}",
        f"{min(points):+.1f} to {max(points):+.1f} points against one network",
        "`exact`",
        "CIFAR-10",
    )


def late_networks() -> list[Case]:
    """Return a network that everybody trains: who joined late, and who was there from the start."""
    found = [row for row in rows("late") if row["method"] == "exact" and row["leaving"] == 1]
    words = {
        0.75: ("CNN, the client joined after three quarters", "the same share"),
        0.0: ("CNN that everybody trained from round 1", "all of it"),
    }
    listed = []
    for joined, (model, sends) in words.items():
        own = among(found, joined=joined)
        again, whole = middle(own, "again"), own[0]["rounds"]
        gain = ": **no gain**" if again > 0.9 * whole else ""
        listed.append(
            Case(
                linked(model, "late"),
                f"{again:.0f} rounds{gain}",
                f"{whole} rounds",
                sends,
                f"{middle(own, 'test'):.1%}".replace("%", " %"),
                "`exact`",
                "FashionMNIST",
            )
        )
    return listed


def solved_head() -> Case:
    """Return a linear head that is solved, beside FedAvg's."""
    heads = [row for row in rows("solved") if "split" in row and "precision" not in row]
    own = among(heads, leaving=1, split="one class", clients=100)
    sent = sorted(row["scratch"] * row["round_bytes"] for row in own)[len(own) // 2]
    return Case(
        linked("linear head, solved", "solved"),
        f"{middle(own, 'solve'):.0f} rounds",
        f"{middle(own, 'scratch'):.0f} rounds",
        f"**{size(middle(own, 'solve_bytes'))}**, not {size(sent)}",
        # FedAvg is as good again sooner; its accuracy is that after all of its rounds.
        f"{middle(own, 'solve_test'):.1%}, not {middle(own, 'scratch_test'):.1%}".replace("%", " %")
        + f" after {own[0]['rounds']} rounds",
        "`exact`",
        "MNIST",
    )


def noised_head() -> Case:
    """Return the best case of noise: one of 1,000 similar clients."""
    own = among(rows("map"), leaving=1, epsilon=1, split="iid", clients=1000)
    # What a round sends, and where all rounds lead, are those of the same federation in the other figure.
    heads = [row for row in rows("solved") if "precision" not in row]
    whole = among(heads, leaving=1, split="iid", clients=1000)
    sent = whole[0]["round_bytes"]
    forget, again = middle(own, "planner"), middle(own, "scratch")
    return Case(
        linked("linear head, noise at (1, 1e-5), one of 1,000 similar clients", "map"),
        f"{forget:.0f} rounds",
        f"{again:.0f} rounds",
        f"{size(forget * sent)}, not {size(again * sent)}",
        f"{middle(own, 'planner_test'):.1%}, not {middle(whole, 'scratch_test'):.1%}".replace("%", " %")
        + f" after {whole[0]['rounds']} rounds",
        "`instance`",
        "MNIST",
    )


def unrecorded() -> Case:
    """Return what no recording can do."""
    return Case("any model trained before recording began", "**not possible**", "all rounds", "", "", "none", "")


def linked(words: str, figure: str) -> str:
    """Return words that link to a figure's page."""
    return f"[{words}](experiments/figures/{figure}/README.md)"


def seconds(number: float) -> str:
    """Return seconds in two digits."""
    return f"{number:.1f} s" if number < 10 else f"{number:.0f} s"


def size(number: float) -> str:
    """Return bytes as a reader would say them."""
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e6:.2f} MB"


def among(found: Iterable[harness.Row], **values: Any) -> list[harness.Row]:
    """Return the rows that have these values; one leaves where nothing else is said."""
    return [row for row in found if all({"leaving": 1, **row}.get(name) == value for name, value in values.items())]


def table(found: Sequence[Case]) -> str:
    """Return the table for the README."""
    return tables.markdown(HEADINGS, [list(astuple(case)) for case in found])


if __name__ == "__main__":
    tables.insert(README, table(cases()))
