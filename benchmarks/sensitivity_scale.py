"""Does a round of the lazy recursion cost its participants only, whatever the number of known clients?

Two trackers live through the same number of rounds with the same number of participants, one in a federation of a
thousand known clients, one of a million. Their rounds are timed alternately; ``ratio`` compares the best times.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks._measure import best_seconds, finish, parser, progress
from rescind.core.edges import RoundEdge
from rescind.core.tracker import SensitivityTracker

FEW, MANY = 1_000, 1_000_000


def random_round(rng: np.random.Generator, known: int, participants: int) -> RoundEdge:
    """A round of unequal clients whose rho differ, so that the general path is taken."""
    clients = rng.choice(known, size=participants, replace=False, shuffle=False) if known > participants else None
    return RoundEdge(
        clients=np.sort(clients) if clients is not None else np.arange(participants),
        weights=rng.integers(1, 500, participants).astype(np.float64),
        factors=rng.choice([0.98, 0.97, 0.96], participants),
        distances=rng.random(participants),
        update_norm=1.0,
        rounding=1e-12,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--participants", type=int, default=1_000, help="participants in a round (1,000)")
    chosen = options.parse_args()
    warm_rounds, repeats, block = (300, 15, 10) if chosen.quick else (3_000, 40, 10)
    rng = np.random.default_rng(3)
    trackers = {known: SensitivityTracker() for known in (FEW, MANY)}
    seen: dict[int, set[int]] = {known: set() for known in trackers}
    for known, tracker in trackers.items():
        for _ in progress(range(warm_rounds), f"{known:,} known clients: filling"):
            edge = random_round(rng, known, chosen.participants)
            tracker.record(edge)
            seen[known].update(edge.clients.tolist())

    def blocks(known: int) -> Callable[[], None]:
        # Drawn beforehand: drawing participants is not what is measured. Every round is a new one.
        prepared = [random_round(rng, known, chosen.participants) for _ in range(repeats * block)]
        for edge in prepared:
            seen[known].update(edge.clients.tolist())

        def record() -> None:
            for _ in range(block):
                trackers[known].record(prepared.pop())

        return record

    few, many = best_seconds(repeats, "alternating rounds", blocks(FEW), blocks(MANY))
    unseen = next(client for client in range(MANY) if client not in seen[MANY])
    finish(
        {
            "participants": chosen.participants,
            "known_clients": [FEW, MANY],
            "ms_a_round": [1e3 * few / block, 1e3 * many / block],
            "ratio": many / few,
            "seen_clients": len(seen[MANY]),
            "stored_but_unseen": len(trackers[MANY].state().clients) - len(seen[MANY]),
            "sensitivity_of_an_unseen_client": trackers[MANY].sensitivity(unseen),
        }
    )


if __name__ == "__main__":
    main()
