"""How far kept models are apart is measured with few of them in memory, each read about once."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest

from rescind.errors import DamagedCheckpointError
from rescind.history.history import History


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 33])
def test_moves_are_those_between_neighbours_and_from_the_first(count: int) -> None:
    stream, read = np.random.default_rng(count), []
    models = [{"a": stream.normal(size=(3, 2)).astype(np.float32), "b": stream.normal(size=5)} for _ in range(count)]
    with History.in_memory() as history:
        digests, original = [history.models.put(model) for model in models], history.models.stream

        def counted(digest: str) -> Iterator[tuple[str, np.ndarray]]:
            read.append(digest)
            return original(digest)

        with patch.object(history.models, "stream", counted):
            moves, travelled = history._measure_moves(digests)
    flat = np.array([np.concatenate([model["a"].ravel(), model["b"]]).astype(np.float64) for model in models])
    assert moves == pytest.approx(np.linalg.norm(np.diff(flat, axis=0), axis=1))
    assert travelled == pytest.approx(np.linalg.norm(flat - flat[0], axis=1))
    assert len(read) <= 1.25 * count + 2


def test_a_model_with_other_tensors_or_other_bytes_is_refused() -> None:
    with History.in_memory() as history:
        full = history.models.put({"a": np.ones(3), "b": np.ones(2)})
        for fewer in ({"a": np.ones(3)}, {"a": np.ones(3), "b": np.ones(2), "c": np.ones(1)}):
            other = history.models.put(fewer)
            for pair in ([full, other], [other, full]):
                with pytest.raises(ValueError, match="same tensors"):
                    history._measure_moves(pair)
        with (
            patch.object(history.models, "stream", side_effect=lambda _: _damaged()),
            pytest.raises(DamagedCheckpointError),
        ):
            history._measure_moves([full, full])


def _damaged() -> Iterator[tuple[str, np.ndarray]]:
    yield "a", np.ones(3)
    raise DamagedCheckpointError("its bytes have another digest")
