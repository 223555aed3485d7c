"""Objects of clients that are no sums: a writer for tests and measurements of their erasure."""

from __future__ import annotations

from collections.abc import Mapping

from rescind import History
from rescind.core.arrays import Tensor


def keep_objects(history: History, objects: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Keep an object of each named client, which has to be known: the file first, then its digest."""
    known = history.ledger.pseudonyms(list(objects))
    stored = {known[name]: history.objects.put(tensors) for name, tensors in objects.items()}
    history.ledger.keep_objects(stored, history.newest, history.journal.now())
