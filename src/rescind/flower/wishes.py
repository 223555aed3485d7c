"""What SuperNodes wish: their operators say it in the node-config, and the node's registered key vouches for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rescind.certificates.receipts import Receipt
from rescind.core.calibration import Budget
from rescind.core.facts import PrivacyScope
from rescind.errors import HistoryError
from rescind.flower.wire import LEAVE, LEAVE_ROWS, RECEIPT, REFUSED
from rescind.history.history import History
from rescind.history.senders import Asker, Sender
from rescind.ledger.contract import is_name

_LOG = logging.getLogger("flwr")
# What a request asks for that does not say otherwise.
_BUDGET = Budget(1.0, 1e-5)


@dataclass(frozen=True, slots=True)
class NodeWish:
    """That a client be forgotten, or rows of it; ``text`` tells a new wish of the same client from an old one."""

    scope: PrivacyScope
    text: str


def read_wish(record: Mapping[str, Any]) -> NodeWish | None:
    """Return what a node's answer wishes; None if that is nothing, or nothing that could be heeded."""
    for key, scope in ((LEAVE, PrivacyScope.GROUP), (LEAVE_ROWS, PrivacyScope.RECORDS)):
        text = record.get(key)
        if is_name(text):
            return NodeWish(scope, text)
    return None


def answer_wish(history: History, name: str, label: str, wish: NodeWish) -> dict[str, str]:
    """Record what a client wishes, unless that is recorded already; return what it is told.

    That is its receipt until the request is served, or why it was refused. A client that never took part has nothing
    to be forgotten: then nothing is recorded, and nothing told.
    """
    pseudonym = history.known_names().get(name)
    if pseudonym is None:
        return {}
    sender = Sender(Asker.NODE, _digest(history, name, wish))
    requests = history.timeline.requests
    # Whoever asked for it, and whatever was refused before.
    for filed in requests:
        if not filed.dropped and pseudonym in filed.request.group:
            return _write_receipt(history, filed.number, name, label)
    for filed in requests:
        same = filed.sender == sender
        if same and filed.refused:
            return {REFUSED: f"request {filed.number}: {filed.refused}"}
        # Who still wishes what was taken back wishes it anew. Rows that were forgotten are not forgotten again.
        if same and wish.scope is PrivacyScope.RECORDS and not filed.withdrawn:
            return {}
    try:
        number = history.ask([name], _BUDGET, scope=wish.scope, sender=sender)
    except (HistoryError, ValueError) as refused:
        _LOG.warning("rescind: a participant asks to be forgotten, and that cannot be recorded: %s", refused)
        return {}
    asked_for = "some of its rows be forgotten" if wish.scope is PrivacyScope.RECORDS else "it be forgotten"
    _LOG.info("rescind: request %d is recorded: a participant's own node asks that %s", number, asked_for)
    return _write_receipt(history, number, name, label)


def _write_receipt(history: History, number: int, name: str, label: str) -> dict[str, str]:
    own = Receipt(run=history.identifier, request=number, called=label, names={name: history.receipt(name)})
    return {RECEIPT: own.model_dump_json()}


def _digest(history: History, name: str, wish: NodeWish) -> str:
    """Return what a wish is known again by."""
    return history.digest_wish("\0".join((wish.scope.value, name, wish.text)).encode())
