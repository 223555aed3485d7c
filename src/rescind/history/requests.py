"""Requests to be forgotten: filed, planned, decided, and who still waits."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.edges import ModelId, sorted_group
from rescind.core.facts import DpFedAvg, PrivacyScope
from rescind.core.summary import Request
from rescind.errors import StalePlanError
from rescind.history.events import (
    DeadlineExtended,
    DoubtsLifted,
    EndByData,
    MeanMissed,
    PlanApproved,
    RecordedPlan,
    RequestFiled,
    RequestRefused,
    RequestWithdrawn,
    RowsNamed,
    TrainingDoubted,
)
from rescind.history.journal import Journal, parse_time
from rescind.history.participants import Participants, check_length, check_reason
from rescind.history.restarts import are_unknown, check_all_open, check_open
from rescind.history.run import Run
from rescind.history.tampering import check_names
from rescind.history.timeline import FiledRequest, newest_model
from rescind.ledger.commitments import canonical
from rescind.ledger.contract import LONGEST_NAME, ROUND, check_digest, is_name
from rescind.ledger.records import OPERATOR, Branch, Entry, ErasurePlan, Sender, Span
from rescind.texts import make_plain

# GDPR art. 12 (3): a month, and two further ones where that is necessary. A year is a mistake, whatever else holds.
_MOST_MONTHS, _LONGEST_WAIT = 2, timedelta(days=366)
# A certificate lists them all, and one that nobody reads is not signed.
MOST_CLIENTS = 10_000
# A clock in another year is not set.
_YEARS = (2000, 9000)
# What a plan depends on, beside the rounds.
_CHANGES = (Run, Branch, ErasurePlan, EndByData, TrainingDoubted, DoubtsLifted, MeanMissed)
# Of a text, the raw public key and the signature, both in hexadecimal.
Sign = Callable[[bytes], tuple[str, str]]


class Requests:
    """The requests of a run: who asked, what was planned and decided, and who still waits."""

    def __init__(self, journal: Journal, participants: Participants) -> None:
        self._journal, self._ledger, self._participants = journal, journal.ledger, participants
        self._seen, self._known, self._unknown = -1, list[FiledRequest](), list[FiledRequest]()
        self._looked: ModelId | None = None

    def ask(
        self,
        names: Sequence[str],
        budget: Budget | ClassicBudget,
        *,
        scope: PrivacyScope = PrivacyScope.GROUP,
        releases: int = 1,
        deadline: datetime | None = None,
        sender: Sender = OPERATOR,
    ) -> int:
        """Record that clients ask to be forgotten; also while training runs.

        Args:
            names: the clients' names or labels.
            budget: the (epsilon, delta) that the request asks for; by a ``ClassicBudget`` nothing is proven.
            scope: whose removal is hidden.
            releases: how many releases the budget is for.
            deadline: when the request has to be served, with a time zone, a year from now at most. None means a month
                from now, as in GDPR art. 12.
            sender: who asked, and what shows it.

        Returns:
            the request's number, counted from 1 in the order of arrival.

        Raises:
            UnknownClientError: nobody is called so, or the client was forgotten and its name erased.
            ValueError: nobody is named, ``budget`` is no budget, ``releases`` is below 1, another request is about
                some of these clients already, the deadline is out of range, there are more clients than a certificate
                can list, it is to hide everybody who left and somebody was readmitted, or this machine's clock is not
                set.
            BrokenHistoryError: somebody changed the ledger, a name for instance.
            MissingSecretError: the secret file is not at hand.
        """
        request, now = Request(self._participants.find(names), budget, scope, releases), self._journal.clock()
        if not _YEARS[0] <= now.year < _YEARS[1]:
            raise ValueError(f"this machine's clock says {now.isoformat()}: set it, then ask")
        if deadline is not None and (deadline.tzinfo is None or deadline < now):
            raise ValueError(
                f"the deadline, {deadline.isoformat()}, has no time zone or has passed: give a later one"
            )
        if deadline is not None and deadline > now + _LONGEST_WAIT:
            raise ValueError(
                f"the deadline, {deadline.isoformat()}, is more than a year away: nobody waits so long, give an "
                "earlier one"
            )
        return self.file(request, deadline or add_months(now, 1), sender)

    def file(self, request: Request, deadline: datetime, sender: Sender = OPERATOR) -> int:
        """Record a request about pseudonyms; see ``ask``.

        Args:
            request: what is asked for.
            deadline: when it has to be served.
            sender: who asked, and what shows it.

        Returns:
            the request's number.

        Raises:
            ValueError: it cannot be served, or is made already.
        """
        if len(request.group) > MOST_CLIENTS:
            raise ValueError(
                f"a request is about at most {MOST_CLIENTS} clients, as a certificate lists them, and this one is "
                f"about {len(request.group)}: split it"
            )
        if not request.budget.certifiable and isinstance(self._journal.read().facts.public, DpFedAvg):
            raise ValueError(
                "the paper's formula is for noise on one model, and this run has noise in every round: ask with a "
                "Budget"
            )
        if request.scope is PrivacyScope.RECORDS and not self._journal.read().facts.rows_are_named:
            raise ValueError(
                "the clients of this run train by code of their own, and nothing would show that rows are left out: "
                "forget all of the client, and readmit it without the rows (rescind request readmit)"
            )
        if sender != OPERATOR and len(request.group) != 1:
            raise ValueError(
                f"{sender.asker.value} asks for one client, and this request is about {len(request.group)}"
            )
        # Before its turn, because it reads the whole journal.
        check_names(self._ledger, self._journal.read(), request.group)
        with self._ledger.turn():
            if request.scope is PrivacyScope.SEQUENCE and self._ledger.readmitted():
                raise ValueError(
                    "a sequence hides everybody who left before, and somebody was readmitted: ask with the scope "
                    "'group'"
                )
            filed = self._journal.read().requests
            for asked in filed:
                if not asked.dropped and asked.request.group & request.group:
                    raise ValueError(
                        f"request {asked.number} is about some of these clients already: leave them out, or take it "
                        f"back if it is still open (rescind request withdraw HISTORY {asked.number})"
                    )
            names = self._ledger.names(sorted_group(request.group)).values()
            # Sorted, so that their order tells nothing.
            forgotten = sorted(self._participants.blind(name) for name in names)
            self._journal.record(RequestFiled(request, deadline.isoformat(), tuple(forgotten), sender))
            return len(filed) + 1

    def extend(self, number: int, days: int, reason: str) -> str:
        """Record that an open request may be served later, and why.

        That is possible within a month of its receipt, or until its first deadline: whoever asked has to be told of
        it by then (GDPR art. 12(3)).

        Args:
            number: the request's number.
            days: how many days later, at least 1; two months in all.
            reason: why, in at most 1,000 characters and without names; it stays in the history.

        Returns:
            the new deadline, in ISO 8601.

        Raises:
            ValueError: the request is not open, the reason is empty or too long, it would be too many days, or it is
                too late.
            MissingSecretError: the secret file is not at hand.
        """
        check_reason(reason, "a deadline is not extended")
        with self._ledger.turn():
            filed = check_open(self._journal.read(), number)
            first = datetime.fromisoformat(filed.first_deadline)
            last = max(first, add_months(parse_time(filed.time), 1)).astimezone(first.tzinfo).date()
            if self._journal.clock().astimezone(first.tzinfo).date() > last:
                raise ValueError(
                    f"request {number} can be extended until {last} only, as whoever asked has to be told of it by "
                    "then (GDPR art. 12(3)): serve it now, and tell them why it is late"
                )
            deadline = datetime.fromisoformat(filed.deadline) + timedelta(days=min(max(days, 0), 366))
            latest = add_months(first, _MOST_MONTHS)
            if days < 1 or deadline > latest:
                raise ValueError(
                    f"request {number} can be extended by 1 day or more, up to {latest:%Y-%m-%d}: two months in all"
                )
            self._journal.record(DeadlineExtended(number, deadline.isoformat(), reason))
        return deadline.isoformat()

    def withdraw(self, number: int, reason: str = "") -> None:
        """Record that an open request was taken back.

        Args:
            number: the request's number.
            reason: why, in at most 1,000 characters and without names; it stays in the history.

        Raises:
            ValueError: the request is not open, or the reason is too long.
            MissingSecretError: the secret file is not at hand.
        """
        check_length(reason)
        with self._ledger.turn():
            check_open(self._journal.read(), number)
            self._journal.record(RequestWithdrawn(number, reason))

    def approve(self, number: int, by: str, sign: Sign | None = None) -> PlanApproved:
        """Record that a named person agrees to the recorded plan of an open request.

        Args:
            number: the request's number.
            by: who agrees; it stays in the history.
            sign: returns the raw public key and the signature of a text, both in hexadecimal.

        Returns:
            what was recorded.

        Raises:
            ValueError: the request is not open, has no recorded plan, or ``by`` cannot be a name.
            StalePlanError: the history has changed since it was planned.
            MissingSecretError: the secret file is not at hand.
        """
        timeline = self._journal.read()
        asked = check_open(timeline, number)
        _check_person(by)
        # Whom the newest model does not know is forgotten without a plan.
        if not self.are_unknown([asked.request])[0]:
            plan = timeline.plans.get(number)
            if plan is None:
                raise ValueError(
                    f"request {number} has no recorded plan yet: the next run records one, or Revocable.plan"
                )
            if self.is_stale(plan):
                raise StalePlanError(
                    f"the history has changed since request {number} was planned: the federation's next run plans "
                    "anew"
                )
        planned = timeline.planned_at(number)
        key, signature = sign(write_approval(self._ledger.identifier(), planned, by)) if sign else ("", "")
        approval = PlanApproved(planned.sequence, by, key, signature)
        self._journal.record(approval)
        return approval

    def refuse(self, number: int, by: str, reason: str) -> None:
        """Record that a named person decided not to serve an open request.

        Args:
            number: the request's number.
            by: who decided; it stays in the history.
            reason: why, in at most 1,000 characters and without names of clients; it stays in the history.

        Raises:
            ValueError: the request is not open, the reason is empty or too long, or ``by`` cannot be a name.
            MissingSecretError: the secret file is not at hand.
        """
        _check_person(by)
        check_reason(reason, "a request is not refused")
        with self._ledger.turn():
            check_open(self._journal.read(), number)
            self._journal.record(RequestRefused(number, by, reason))

    def record_plan(self, plan: RecordedPlan) -> RecordedPlan:
        """Record how open requests are going to be served.

        Args:
            plan: the plan.

        Returns:
            the plan as it was recorded, with its predicted rounds rounded.

        Raises:
            ValueError: one of its requests is not open.
            MissingSecretError: the secret file is not at hand.
        """
        check_all_open(self._journal.read(), plan.requests)
        candidate = replace(plan.candidate, predicted_rounds=float(round(plan.candidate.predicted_rounds)))
        rounded = replace(plan, candidate=candidate)
        entry = self._journal.record(rounded)
        return replace(rounded, seen=plan.seen or entry.sequence)

    def last_change(self) -> int:
        """Return the number of the last entry that a plan depends on.

        Returns:
            the entry's number; 0 if there is none.
        """
        numbers = [entry.sequence for entry, event in self._journal.timeline.moments if isinstance(event, _CHANGES)]
        rounds = self._ledger.entries(ROUND, after=max(numbers, default=0))
        return max((*numbers, *(entry.sequence for entry in rounds)), default=0)

    def is_stale(self, plan: RecordedPlan) -> bool:
        """Return whether a plan no longer fits the history.

        Args:
            plan: a recorded plan.

        Returns:
            True if the history has changed since the plan was made, or one of its requests is not open any more.
        """
        still_open = self._journal.timeline.open_requests.keys() >= set(plan.requests)
        return self.last_change() > plan.seen or not still_open

    def are_unknown(self, asked: Sequence[Request]) -> list[bool]:
        """Return for each request whether the newest model knows none of its clients.

        Args:
            asked: the requests.

        Returns:
            for each request, in order, True if none of its clients ever touched the newest model.
        """
        return are_unknown(self._ledger, self._journal.timeline, asked)

    def waiting(self) -> list[FiledRequest]:
        """Return the open requests whose clients the newest model knows.

        While there is one, the newest model is not released.

        Returns:
            the requests.
        """
        # Asked for in every round, and requests are rare: as long as none is open, no more than this is read.
        seen = self._journal.timeline.last
        if seen != self._seen:
            self._seen, self._known = seen, []
            self._unknown = list(self._journal.timeline.open_requests.values())
            self._looked = None
        if self._unknown:
            known = self._found_known(self._unknown)
            self._known += known
            self._unknown = [asked for asked in self._unknown if asked not in known]
        return list(self._known)

    def _found_known(self, waiting: Sequence[FiledRequest]) -> list[FiledRequest]:
        """Return those of the requests whose clients the newest model knows; of a branch only new rounds are read."""
        timeline = self._journal.timeline
        facts, tip, looked = timeline.run.facts, newest_model(self._ledger, timeline), self._looked
        if looked is None or looked.branch != tip.branch or facts.redrawn_rounds:
            unknown = self.are_unknown([asked.request for asked in waiting])
            known = [asked for asked, not_known in zip(waiting, unknown, strict=True) if not not_known]
        else:
            # Somebody who asked while a round was under way is part of that round.
            rounds = self._ledger.rounds(Span(tip.branch, looked.round + 1, tip.round)) if tip != looked else ()
            joined = {client for round_ in rounds for client in round_.clients.tolist()}
            known = [asked for asked in waiting if joined & asked.request.group]
        self._looked = tip
        return known

    def name_rows(self, name: str, number: int, root: str) -> None:
        """Record, once for each request, by which root a client commits to the rows that it leaves out.

        Args:
            name: the client's name.
            number: the request's number.
            root: the root, a SHA-256 in hexadecimal; empty if the client keeps no receipts.

        Raises:
            ValueError: the request is not about rows of this client, or ``root`` is no SHA-256.
        """
        if root:
            check_digest(root)
        own, requests = self._participants.blind(name), self._journal.timeline.requests
        filed = requests[number - 1] if 0 < number <= len(requests) else None
        if filed is None or filed.request.scope is not PrivacyScope.RECORDS or own not in filed.forgotten:
            raise ValueError(f"request {number} is not about rows of {name!r}")
        known = [
            event.root
            for _, event in self._journal.timeline.of(RowsNamed)
            if (event.request, event.client) == (number, own)
        ]
        if not known or (root and not any(known)):
            self._journal.record(RowsNamed(number, own, root))


def write_approval(run: str, planned: Entry, by: str) -> bytes:
    """Return the text that whoever approves a plan signs: the head of the chain binds all that was known then."""
    return canonical({"approved": run, "plan": planned.sequence, "head": planned.head.hex(), "by": by})


def add_months(time: datetime, months: int) -> datetime:
    """Return the same day some months later, or that month's last day where it has no such day."""
    years, month = divmod(time.month - 1 + months, 12)
    year = time.year + years
    return time.replace(year=year, month=month + 1, day=min(time.day, monthrange(year, month + 1)[1]))


def _check_person(by: str) -> None:
    if not is_name(by) or not by.strip():
        raise ValueError(
            f"{make_plain(str(by))!r:.80} is not a valid name for a person: give 1 to {LONGEST_NAME} characters in "
            "one line"
        )
