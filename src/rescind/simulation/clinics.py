"""A federation to play with: clinics whose patients' diagnoses follow one rule, and chance."""

from __future__ import annotations

from rescind.core.regularity import SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.engines.patients import DIAGNOSES, FEATURES, draw_patients
from rescind.simulation.federation import Federation, Shard
from rescind.simulation.models import SoftmaxHead
from rescind.simulation.simulation import Simulation

_PATIENTS = 40


def clinics(count: int = 200, seed: int = 0) -> Simulation:
    """Return an engine that trains a softmax head in simulated clinics: clinic-0, clinic-1, and so on.

    Args:
        count: how many clinics there are. Each has 40 patients, with 10 features and one of 3 diagnoses.
        seed: decides the patients. The same seed gives the same federation, and the same training.

    Returns:
        an engine for ``Revocable``.
    """
    shards = [Shard(rows, labels) for rows, labels in draw_patients(count + 1, _PATIENTS, seed)]
    return Simulation(
        Federation({f"clinic-{at}": shard for at, shard in enumerate(shards[1:])}, shards[0], classes=DIAGNOSES),
        SoftmaxHead(features=FEATURES, classes=DIAGNOSES),
        LocalTraining(steps=5, learning_rate=1.0, loss=SoftmaxL2(l2=0.01, row_norm=1.0)),
        secret=f"clinics of seed {seed}".encode(),
    )
