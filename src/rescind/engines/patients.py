"""Patients of clinics to play with, whose diagnoses follow one rule, and chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEATURES, DIAGNOSES = 10, 3


def draw_patients(clinics: int, patients: int, seed: int) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return so many patients for each of some clinics: their features, and their diagnoses.

    Args:
        clinics: how many clinics there are.
        patients: how many patients each of them has.
        seed: decides the patients.

    Returns:
        rows (patients, ``FEATURES``) and labels below ``DIAGNOSES``, for each clinic.
    """
    rng = np.random.default_rng(seed)
    rule = rng.normal(size=(FEATURES, DIAGNOSES))
    rows = rng.normal(size=(clinics, patients, FEATURES))
    noise = rng.normal(size=(clinics, patients, DIAGNOSES))
    return [(own, (own @ rule + chance).argmax(axis=1)) for own, chance in zip(rows, noise, strict=True)]
