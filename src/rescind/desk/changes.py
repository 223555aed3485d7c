"""What somebody does at the desk, each in one entry of the journal together with the login that did it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rescind.certificates.approvals import ToSign, ask_approval, is_signature
from rescind.certificates.leaving import Receipt, check_request, open_request, scope_of
from rescind.core.calibration import Budget
from rescind.desk.logins import Login
from rescind.errors import StalePlanError
from rescind.history.history import History

# As rescind request import has it.
_BUDGET, _WITHIN = Budget(1.0, 1e-5), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that the desk makes to a history, which ``open`` opens for each.

    ``by_login`` says whether a login's word is enough to approve a plan.
    """

    open: Callable[[], AbstractContextManager[History]]
    by_login: bool

    def file(self, login: Login, content: bytes) -> Receipt:
        """Record a request that a participant signed, and return its receipt, which is for that participant alone.

        Raises:
            CertificateError: it is no signed request, or none for this federation, or was handed in before.
            ValueError: it cannot be served, or is made already.
        """
        request = open_request(content)
        with self.open() as history:
            check_request(history, request, _WITHIN, datetime.now(UTC))
            (called,) = history.participants.describe([history.participants.find([request.client])])[0]
            with history.credit(login.name, login.role.value):
                number = history.requests.ask(
                    [request.client], _BUDGET, scope=scope_of(request), sender=request.sender
                )
            salt = history.participants.receipt(request.client)
            return Receipt(run=history.identifier, request=number, called=called, names={request.client: salt})

    def extend(self, login: Login, number: int, days: int, reason: str) -> None:
        """Extend a deadline; ``ValueError`` if that cannot be."""
        with self.open() as history, history.credit(login.name, login.role.value):
            history.requests.extend(number, days, reason)

    def withdraw(self, login: Login, number: int, reason: str) -> None:
        """Take a request back; ``ValueError`` if that cannot be."""
        with self.open() as history, history.credit(login.name, login.role.value):
            history.requests.withdraw(number, reason)

    def refuse(self, login: Login, number: int, reason: str) -> None:
        """Refuse a request in the login's name; ``ValueError`` if that cannot be."""
        with self.open() as history, history.credit(login.name, login.role.value):
            history.requests.refuse(number, login.name, reason)

    def ask_approval(self, login: Login, number: int) -> ToSign | None:
        """Return what a login signs to approve a request's plan; None if there is none to approve."""
        with self.open() as history:
            timeline = history.timeline
            asked = timeline.open_requests.get(number)
            if asked is None:
                return None
            plan = timeline.plans.get(number)
            if plan is None and not history.requests.are_unknown([asked.request])[0]:
                return None
            if plan is not None and history.requests.is_stale(plan):
                return None
            return ask_approval(history, timeline.planned_at(number), login.name)

    def approve(self, login: Login, number: int, plan: int, signed: tuple[str, str] | None) -> None:
        """Approve a plan in the login's name.

        Args:
            login: who approves.
            number: the request.
            plan: the number of the plan that was shown.
            signed: the raw public key and the signature, both in hexadecimal; None for the login's word.

        Raises:
            ValueError: the key did not sign that, the request is not open, or a login's word is not enough here.
            StalePlanError: another plan was shown, or the history has changed since.
        """
        if signed is None and not self.by_login:
            raise ValueError(
                "a login's word is not enough here: sign with a key of your own, or ask the operator for "
                "--logins-approve"
            )
        with self.open() as history, history.credit(login.name, login.role.value):
            if number in history.timeline.open_requests and history.timeline.planned_at(number).sequence != plan:
                raise StalePlanError(f"request {number} was planned again since you looked: look at that plan first")
            history.requests.approve(number, login.name, signed and (lambda text: _check(text, *signed)))


def _check(text: bytes, key: str, signature: str) -> tuple[str, str]:
    """Return a key and its signature of a text, once it is known to be that."""
    if not is_signature(text, key, signature):
        raise ValueError(
            "that is no signature of this approval by that key: sign approval.json as it is now (rescind key approve)"
        )
    return bytes.fromhex(key).hex(), bytes.fromhex(signature).hex()
