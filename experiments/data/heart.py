"""UCI heart disease: four hospitals, each a natural client."""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.data._files import place, require

HOSPITALS = ("cleveland", "hungary", "switzerland", "long_beach_va")

_FILE = "heart_disease.csv"
_HOME = "https://archive.ics.uci.edu/dataset/45/heart+disease"
_CHECKSUM = "82d3a23367d19ac6421fa4920db346fb86f2fcda1fd78f61a7359aebe1696ee5"

# A usual value and a wide distance from it, from clinical practice: nothing here is taken from the data.
_MEASURED: dict[str, tuple[float, float]] = {
    "age": (50.0, 50.0),  # years
    "trestbps": (120.0, 80.0),  # blood pressure at rest, mm Hg
    "chol": (200.0, 200.0),  # serum cholesterol, mg/dl; 0 means not measured
    "thalach": (140.0, 80.0),  # highest heart rate, beats a minute
    "oldpeak": (0.0, 4.0),  # depression of the ST segment, mm
}
_YES_OR_NO = ("sex", "fbs", "exang")
_KINDS: dict[str, tuple[int, ...]] = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
_COLUMNS = (*_MEASURED, *_YES_OR_NO, *_KINDS)

FEATURES = (*_MEASURED, *_YES_OR_NO, *(f"{name}={kind}" for name, kinds in _KINDS.items() for kind in kinds))


@dataclass(frozen=True, slots=True)
class Hospitals:
    """For each hospital its patients' rows, in the order of ``FEATURES``, and whether they are ill (1) or not (0)."""

    names: tuple[str, ...]
    rows: tuple[NDArray[np.float64], ...]
    labels: tuple[NDArray[np.int64], ...]


def load(folder: str | Path | None = None) -> Hospitals:
    """Load ``heart_disease.csv`` as in the Fed-Heart-Disease benchmark.

    Slope, ca and thal are left out, then every patient of whom something is missing.
    """
    contents = (
        f"the columns hospital ({', '.join(HOSPITALS)}), {', '.join(_COLUMNS)} and target (1 if ill) of the "
        f"processed files, empty where a value is missing, 920 rows; the file has SHA-256 {_CHECKSUM}"
    )
    path = require(place(folder) / _FILE, "Heart disease", _HOME, contents)
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != _CHECKSUM:
        raise ValueError(f"{path} has SHA-256 {found}. It has to hold {contents}. Source: {_HOME}.")
    patients = [
        patient
        for patient in csv.DictReader(io.StringIO(content.decode()))
        if all(patient[column] for column in _COLUMNS)
    ]
    by_hospital = [[patient for patient in patients if patient["hospital"] == name] for name in HOSPITALS]
    return Hospitals(
        HOSPITALS,
        tuple(np.array([_row(patient) for patient in group], dtype=np.float64) for group in by_hospital),
        tuple(np.array([int(patient["target"]) for patient in group], dtype=np.int64) for group in by_hospital),
    )


def _row(patient: dict[str, str]) -> list[float]:
    measured = [(float(patient[name]) - usual) / wide for name, (usual, wide) in _MEASURED.items()]
    answers = [float(patient[name]) for name in _YES_OR_NO]
    kinds = [float(float(patient[name]) == kind) for name, choices in _KINDS.items() for kind in choices]
    return [*measured, *answers, *kinds]
