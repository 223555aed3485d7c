"""What can happen in a run: one frozen class for each kind of entry in the journal.

``Run``, ``Branch`` and ``ErasurePlan`` are events too: that the run was begun, that a branch was started, that an
erasure was begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from rescind.core.edges import ModelId
from rescind.core.planning import Candidate
from rescind.core.summary import Request
from rescind.errors import BrokenHistoryError
from rescind.history.codec import decode_fields, encode
from rescind.history.run import Run
from rescind.ledger.contract import (
    BRANCH,
    LABEL,
    LONGEST_NAME,
    OBJECTS,
    READMISSION,
    REGISTRATION,
    REJECTION,
    REMAINS,
    Ledger,
    is_name,
)
from rescind.ledger.records import OPERATOR, Branch, Entry, ErasurePlan, Sender
from rescind.texts import make_plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class RunNamed:
    """What people call the operator, the federation, its model and the protocol by which its cohort was approved.

    None where nothing was said.
    """

    operator: str | None = None
    federation: str | None = None
    model: str | None = None
    protocol: str | None = None

    def __post_init__(self) -> None:
        for role in fields(self):
            name = getattr(self, role.name)
            if name is not None and not is_name(name):
                raise ValueError(
                    f"{make_plain(name)!r:.80} is not a valid name for the {role.name}: give 1 to {LONGEST_NAME} "
                    "characters that can be seen, in one line"
                )


@dataclass(frozen=True, slots=True)
class ClientsRegistered:
    """The pseudonyms from ``first`` to ``last`` were given out; the entry's root commits to the names."""

    first: int
    last: int

    @property
    def clients(self) -> range:
        """The pseudonyms."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class ClientsLabelled:
    """People call clients otherwise: each pseudonym with the commitment to its new label."""

    labels: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ClientsReadmitted:
    """The names that forgotten ``clients`` had may be registered again, and why."""

    clients: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class AnchorsNamed:
    """These ``clients`` may train the body of a network in two stages, beside those who were named before."""

    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OfModel:
    """What is told of one model, and of the round that made it, if one did."""

    branch: int
    round: int

    @property
    def model_id(self) -> ModelId:
        """The name of the model."""
        return ModelId(self.branch, self.round)


@dataclass(frozen=True, slots=True)
class BodyTrained(OfModel):
    """The body of a network in two stages is whole from this model on; ``clients`` are the anchors of its rounds."""

    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepliesRejected(OfModel):
    """No use was made of some replies of a round: of whose, and why."""

    rejected: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class SumsKept(OfModel):
    """Clients sent sums for this model, which are kept: each pseudonym with the commitment to them, under its key."""

    sums: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class SumsAsked:
    """These ``clients`` are to send their sums again, as their rows have changed."""

    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RequestFiled:
    """Somebody asked to be forgotten by a day; ``forgotten`` are digests that stand for the names in certificates."""

    request: Request
    deadline: str
    forgotten: tuple[str, ...]
    sender: Sender = OPERATOR


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """A request was taken back, and why, if that was said."""

    request: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A named person decided that a request is not served, and why."""

    request: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanApproved:
    """A named person agreed to the plan, or without one to the request, of the entry ``plan``; signed with a ``key``.

    ``key`` is the raw public key, ``signature`` is by its private half; both in hexadecimal.
    """

    plan: int
    by: str
    key: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class DoneByLogin:
    """The ``entry`` before was written for a login at the desk, in a role."""

    entry: int
    login: str
    role: str


@dataclass(frozen=True, slots=True)
class DeadlineExtended:
    """A request may be served later, and why."""

    request: int
    deadline: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestSettled:
    """A request was served without a restart, as the newest model did not know its clients."""

    request: int


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """The way that was chosen to serve requests together; ``public_plan`` if it was chosen without looking at data.

    ``method`` says which method chose it, ``seen`` is the number of the journal's last entry that it took into
    account; 0 stands for its own entry.
    """

    requests: tuple[int, ...]
    candidate: Candidate
    public_plan: bool
    method: str = ""
    seen: int = 0

    @property
    def parent(self) -> ModelId:
        """The model to restart from."""
        return ModelId(self.candidate.node.branch, self.candidate.node.round)


@dataclass(frozen=True, slots=True)
class BranchRetrained:
    """A branch that serves requests was trained to its end: ``model`` is the digest of the model after ``rounds``."""

    branch: int
    rounds: int
    model: str

    @property
    def model_id(self) -> ModelId:
        """The name of that model."""
        return ModelId(self.branch, self.rounds)


@dataclass(frozen=True, slots=True)
class StretchKept:
    """Something of the erased rounds before a branch is kept; ``digest`` commits to it."""

    erasure: int
    branch: int
    digest: str


@dataclass(frozen=True, slots=True)
class ErasureFinished:
    """What the entry ``erasure`` planned is done: how many ``rounds`` went, and a digest of their ``roots``.

    ``left`` says in words what was out of reach; ``suppressed`` commits to the list of erased names.
    """

    erasure: int
    rounds: int
    roots: str
    left: tuple[str, ...]
    suppressed: str


@dataclass(frozen=True, slots=True)
class EndByData:
    """A rule that looks at data decides when a branch's training ends; ``solved`` if that is the head's solution."""

    branch: int
    solved: bool = False


@dataclass(frozen=True, slots=True)
class HeadSolved(OfModel):
    """A solve of a branch's head ended with the solution, the model of this round; else its rounds were used up."""


@dataclass(frozen=True, slots=True)
class SettingsTold(OfModel):
    """What clients are told beside a model, from the round that makes this one on; ``digest`` stands for it.

    Neither the round's number nor what our helper is told is part of it.
    """

    digest: str


@dataclass(frozen=True, slots=True)
class TrainingDoubted(OfModel):
    """The replies of a round contradict the declared training."""

    reason: str


@dataclass(frozen=True, slots=True)
class MeanMissed(OfModel):
    """A model is not the mean that the training says it is."""


@dataclass(frozen=True, slots=True)
class RowsNamed:
    """A client has named the rows that it leaves out for a request; ``client`` is its digest in the request.

    ``root`` commits to them, and is empty where the client keeps no receipts.
    """

    request: int
    client: str
    root: str


@dataclass(frozen=True, slots=True)
class DoubtsLifted:
    """The operator said why the declared training is right all the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeadStamped:
    """A time-stamp authority signed that the head of the chain after the entry ``entry`` existed.

    ``token`` is its reply, in base64. It stamped the head or, if that is not empty, a ``certificate`` that names the
    head: the SHA-256 of its file.
    """

    entry: int
    token: str
    certificate: str = ""


# One of the classes below.
Event: TypeAlias = "DataclassInstance"

TIME_STAMP = "time stamp"

# Rounds are not among the events: there are too many of them, and they are found by their models.
EVENTS: Mapping[str, type[Event]] = {
    "run": Run,
    "named": RunNamed,
    BRANCH: Branch,
    REGISTRATION: ClientsRegistered,
    LABEL: ClientsLabelled,
    READMISSION: ClientsReadmitted,
    "anchors": AnchorsNamed,
    "body": BodyTrained,
    REJECTION: RepliesRejected,
    OBJECTS: SumsKept,
    "sums asked": SumsAsked,
    "request": RequestFiled,
    "withdrawal": RequestWithdrawn,
    "refusal": RequestRefused,
    "approval": PlanApproved,
    "login": DoneByLogin,
    "extension": DeadlineExtended,
    "settlement": RequestSettled,
    "plan": RecordedPlan,
    "retrained": BranchRetrained,
    "erasure": ErasurePlan,
    REMAINS: StretchKept,
    "erased": ErasureFinished,
    "ends by data": EndByData,
    "solved": HeadSolved,
    "settings": SettingsTold,
    "doubt": TrainingDoubted,
    "not a mean": MeanMissed,
    "doubt lifted": DoubtsLifted,
    "rows named": RowsNamed,
    TIME_STAMP: HeadStamped,
}
_KINDS = {event: kind for kind, event in EVENTS.items()}


def write_body(event: Event) -> dict[str, Any]:
    """Return the body of the entry that tells of an event.

    Raises:
        ValueError: it holds what no entry can, such as 2.0 for a whole number; once written, nobody could read it.
    """
    body = {field.name: encode(getattr(event, field.name)) for field in fields(event) if field.init}
    try:
        decode_fields(type(event), body)
    except ValueError as mismatch:
        raise ValueError(f"nothing is recorded of the {_KINDS[type(event)]}: {mismatch}") from mismatch
    return body


def record(ledger: Ledger, event: Event, time: str) -> Entry:
    """Append an event to the journal."""
    return ledger.append(_KINDS[type(event)], write_body(event), time)


def read_event(entry: Entry) -> Event:
    """Return the event that an entry tells of.

    Raises:
        BrokenHistoryError: the entry's body is none of its kind: somebody changed it, or a newer version wrote it.
    """
    # What runs up to schema 7 could store of clients beside their numbers means nothing any more.
    body = {name: value for name, value in entry.body.items() if (entry.kind, name) != ("run", "update_interval")}
    try:
        event = decode_fields(EVENTS[entry.kind], body)
    except ValueError as mismatch:
        raise BrokenHistoryError(f"entry {entry.sequence} ({entry.kind}) cannot be read: {mismatch}") from mismatch
    # Whoever goes through so many rounds would not come to an end; and a plan that has seen what is still to come
    # would never be made anew.
    if max(_named_numbers(event), default=0) > entry.sequence:
        raise BrokenHistoryError(f"entry {entry.sequence} ({entry.kind}) tells of more than there can be before it")
    return event


def _named_numbers(event: Event) -> list[int]:
    """Return the numbers of rounds, which have an entry each, and of entries that an event names."""
    match event:
        case ErasurePlan():
            return [span.last for span in event.spans]
        case BranchRetrained() | BodyTrained():
            return [event.model_id.round]
        case Branch(parent=ModelId() as parent):
            return [parent.round]
        case RecordedPlan():
            return [event.candidate.node.round, event.seen]
    return []
