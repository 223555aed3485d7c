"""Accuracies over time, in a file of the operator's own.

They are computed from clients' data, so a history that keeps them would have to erase them with the client, and a
chain cannot. The file is outside of it: delete it, or its lines, when somebody has been forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.engines.engine import Engine
from rescind.history.history import History
from rescind.history.outcomes import Scores
from rescind.private_files import name_when_full, open_private, warn_if_packed

_PARTS = ("retain", "forget", "test")


class Accuracies:
    """A ``watch`` for ``Revocable`` that appends a line of JSON to a file, for every model or every so many.

    Measured are those who may take part, and on their own the clients in ``forget``. The file is readable by its
    owner only.

    Args:
        path: the file.
        history: the history that is recorded.
        engine: who measures.
        forget: clients that are measured on their own, for experiments: in a real federation nobody would ask them.
        interval: measure every round (1), or every so many.

    Raises:
        ValueError: ``interval`` is below 1.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        history: History,
        engine: Engine,
        *,
        forget: Sequence[str] = (),
        interval: int = 1,
    ) -> None:
        if interval < 1:
            raise ValueError(f"interval is {interval}; measure every round (1), or every so many")
        warn_if_packed(path)
        self._path, self._history, self._engine = Path(path), history, engine
        self._forget, self._interval = list(forget), interval

    def __call__(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        """Measure a model that was just recorded.

        Args:
            model_id: which model it is.
            model: its tensors.
        """
        if model_id.round % self._interval:
            return
        remaining = self._history.participants.remaining(self._engine.clients)
        retain = [name for name in remaining if name not in self._forget]
        line = {
            "model": model_id.name,
            "retain": self._engine.accuracy(model, retain) if retain else None,
            "forget": self._engine.accuracy(model, self._forget) if self._forget else None,
            "test": self._engine.test_accuracy(model),
        }
        with name_when_full(self._path), open(self._path, "a", encoding="utf-8", opener=open_private) as file:
            file.write(json.dumps(line) + "\n")


def read_accuracies(path: str | os.PathLike[str]) -> dict[ModelId, Scores]:
    """Read what ``Accuracies`` wrote.

    Args:
        path: the file.

    Returns:
        the accuracies by model; of a model that was measured twice the last counts.

    Raises:
        ValueError: a line is none that ``Accuracies`` writes, or an accuracy does not lie between 0 and 1.
    """
    by_model = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        try:
            body = json.loads(line)
            model_id = ModelId.read(str(body["model"]))
            scores = Scores(*(None if body.get(part) is None else float(body[part]) for part in _PARTS))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f'{path}, line {number}: not a line such as {{"model": "0.1", "retain": 0.9, "test": 0.9}}'
            ) from error
        if not all(part is None or 0 <= part <= 1 for part in (scores.retain, scores.forget, scores.test)):
            raise ValueError(f"{path}, line {number}: an accuracy lies between 0 and 1")
        by_model[model_id] = scores
    return by_model
