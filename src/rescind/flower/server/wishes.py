"""What SuperNodes wish: a request to be forgotten that the client's own key signed, handed over by its node."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rescind.certificates.errors import CertificateError
from rescind.certificates.leaving import Receipt, SignedRequest, check_request, open_request, scope_of
from rescind.core.calibration import Budget
from rescind.core.facts import PrivacyScope
from rescind.errors import HistoryError
from rescind.flower.wire import LEAVE, RECEIPT, REFUSED
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.participants import blind_name
from rescind.ledger.records import Asker
from rescind.texts import shorten

_LOG = logging.getLogger("flwr")
# What a request asks for that does not say otherwise.
_BUDGET = Budget(1.0, 1e-5)
# A signed request has a tenth of these characters.
_LONGEST = 20_000
# How old it may be when a node first hands it over, as rescind request import has it.
_WITHIN = timedelta(days=30)
# Every request to forget rows costs a restart: of one client's own no more than one is taken up in this time.
_BETWEEN = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node is told of its wish, and whether its client takes part as long as nothing of it is recorded."""

    told: Mapping[str, str] = field(default_factory=dict)
    stays: bool = True


def asks_to_leave(record: Mapping[str, Any]) -> bool:
    """Return whether a node's answer asks for something, in whatever way."""
    return any(key.startswith(LEAVE) for key in record)


def read_wish(record: Mapping[str, Any]) -> SignedRequest | None:
    """Return the request in a node's answer; None if there is none that the key in it has signed."""
    text = record.get(LEAVE)
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        return open_request(text.encode(errors="replace"))
    except (CertificateError, ValueError):
        return None


def answer_wish(history: History, label: str, wish: SignedRequest) -> Answer:
    """Record what a client asks for, unless that is recorded already, and return what its node is told.

    That is its receipt until the request is served, or why nothing is done. A client that never took part has nothing
    to be forgotten: then nothing is recorded, and nothing told.
    """
    name, scope, now = wish.client, scope_of(wish), datetime.now(UTC)
    # Of rows only; else the client wants to leave with all it has.
    rows = scope is PrivacyScope.RECORDS
    pseudonym = history.participants.all().get(name)
    if pseudonym is None:
        return Answer(stays=rows)
    requests = history.timeline.requests
    # Whoever asked for it, and whatever was refused before.
    for filed in requests:
        if not filed.dropped and pseudonym in filed.request.group:
            return _hand_receipt(history, filed.number, name, label)
    # Of rows that left a client has another pseudonym, and the same name.
    blinded = blind_name(bytes.fromhex(history.participants.receipt(name)), name)
    own = [filed for filed in requests if blinded in filed.forgotten]
    if own and own[-1].refused:
        again = "to ask again, write to the operator (rescind request add)"
        return Answer({REFUSED: f"request {own[-1].number} was refused: {own[-1].refused}; {again}"})
    for filed in own:
        if filed.sender == wish.sender:
            done = "withdrawn" if filed.withdrawn else "served"
            again = f"request {filed.number} was {done}: whoever asks again signs a new one (rescind leave)"
            # Rows that were forgotten are not forgotten again, and nobody has to hear of it.
            return Answer({REFUSED: again} if filed.withdrawn or not rows else {})
    before = [filed for filed in own if filed.request.scope is PrivacyScope.RECORDS and not filed.withdrawn]
    asked = [parse_time(filed.time) for filed in before if filed.sender.asker is not Asker.OPERATOR]
    if rows and asked and (due := asked[-1] + _BETWEEN) > now:
        waits = (
            f"its rows are forgotten once in {_BETWEEN.days} days, the last were asked for on {asked[-1]:%Y-%m-%d}: "
            f"this request waits until {due:%Y-%m-%d}, and more rows can join it until then; the operator can record "
            "it earlier (rescind request import)"
        )
        return Answer({REFUSED: waits})
    try:
        check_request(history, wish, _WITHIN, now)
        number = history.requests.ask([name], _BUDGET, scope=scope, sender=wish.sender)
    except (CertificateError, HistoryError, ValueError) as refused:
        # Flower keeps what is logged of it: nobody's name.
        told = shorten(str(refused).replace(name, "of this node"), 1000)
        return Answer({REFUSED: told}, stays=rows)
    asked_for = "some of its rows be forgotten" if rows else "it be forgotten"
    _LOG.info("rescind: request %d is recorded: a participant's own key asks that %s", number, asked_for)
    return _hand_receipt(history, number, name, label)


def _hand_receipt(history: History, number: int, name: str, label: str) -> Answer:
    own = Receipt(
        run=history.identifier, request=number, called=label, names={name: history.participants.receipt(name)}
    )
    return Answer({RECEIPT: own.model_dump_json()})
