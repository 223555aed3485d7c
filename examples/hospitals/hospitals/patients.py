"""A hospital's own patients as rows of numbers; nothing here is learned from anybody's data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# A usual value and a wide distance from it, from clinical practice.
MEASURED = {
    "age": (50.0, 50.0),
    "trestbps": (120.0, 80.0),
    "chol": (200.0, 200.0),
    "thalach": (140.0, 80.0),
    "oldpeak": (0.0, 4.0),
}
YES_OR_NO = ("sex", "fbs", "exang")
KINDS = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}

FEATURES = len(MEASURED) + len(YES_OR_NO) + sum(map(len, KINDS.values()))


def load(path: str | Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read a hospital's file: one row for each patient, and 1 for each who is ill."""
    with Path(path).expanduser().open() as file:
        patients = list(csv.DictReader(file))
    rows = [
        [
            *((float(patient[name]) - usual) / wide for name, (usual, wide) in MEASURED.items()),
            *(float(patient[name]) for name in YES_OR_NO),
            *(float(float(patient[name]) == kind) for name, kinds in KINDS.items() for kind in kinds),
        ]
        for patient in patients
    ]
    return np.array(rows, dtype=np.float64), np.array([int(patient["target"]) for patient in patients])
