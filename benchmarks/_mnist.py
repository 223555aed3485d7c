"""What the measurements on MNIST share: where it lies, found out before anything is begun."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks._measure import parser
from experiments.data import sets


def parsed(description: str | None, seeds: int | None = None, output: str = "") -> argparse.Namespace:
    """Read the options, ``--data`` among them, and end with a message if MNIST is not there.

    A measurement that has ``seeds`` can be made with another number of them; one with an ``output`` says what it is.
    """
    options = parser(description)
    if seeds is not None:
        options.add_argument("--seeds", type=int, default=seeds, help=f"how many seeds (default {seeds})")
    if output:
        options.add_argument("--output", type=Path, help=output)
    options.add_argument("--data", help="the folder of mnist.npz; else the environment variable RESCIND_DATA")
    chosen = options.parse_args()
    try:
        sets.load("mnist", chosen.data)
    except (ValueError, FileNotFoundError) as missing:
        options.error(str(missing))
    return chosen
