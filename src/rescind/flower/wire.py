"""What travels between the server and our helper on a client: what to execute, what was executed, and a password.

All of it is in the ``ConfigRecord`` of Flower's messages, under names that begin with ``rescind.``.

A client obeys only whoever has the password that it told the server, once in every run. Flower takes a message from
any registered node, also one that is no reply, and does not compare who sends it with whom it says it is from (1.38
to 1.42, by their sources). So a participant can write to another one as if it were the server. But what a client
answers to a query reaches the ServerApp and nobody else, whoever sent the query: only the server can know what is
in it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from rescind.core.edges import ModelId
from rescind.core.regularity import SquaredL2
from rescind.core.sums import Wanted
from rescind.core.training import LocalTraining
from rescind.engines.complaints import Complaint
from rescind.history.codec import decode, encode
from rescind.ledger.commitments import canonical
from rescind.texts import is_digest

PREFIX = "rescind."
# Names of records, which lie beside the user's own in a message's content.
EXECUTED = "rescind"
OWN = "rescind.own"
OWN_MODEL = "rescind.own-model"
WITNESSED = "rescind.witnessed"
COUNTED = "rescind.counted"
DISTANCE = "rescind-distance"
# Of an answer to a solver: the summed loss among its metrics, the sums in a record of arrays.
LOSS = "rescind-loss"
SUMS = "rescind.sums"
# In the node-config of a SuperNode: the file by which its key asks to be forgotten, and a file for the receipt.
LEAVE = "rescind-leave"
KEEP_RECEIPT = "rescind-receipt"
# In every message, and in the answers to queries.
NONCE = "rescind.nonce"
PASSWORD = "rescind.password"  # noqa: S105
# In a query: names are keys, so nobody has to say who it is; and what the server hands over.
KEYED = "rescind.keyed"
RECEIPT = "rescind.receipt"
REFUSED = "rescind.refused"


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a client is told of a round: how to train, from which seed, and where the chain of the history stands.

    ``batch`` is the number of examples a step uses, 0 for all. ``seed`` is this client's own for this round.
    ``masked`` asks it to keep its own result, to tell its distance from the mean later. ``wanted`` is a solver's
    question: then nobody trains, and the client answers with sums over its rows. ``ridge`` is such a question too, of
    a head with squared error. ``body`` is the digest of the published body that the features have to come from, if
    one is named. ``removal`` is the number of the last request to forget some of this client's rows, which it leaves
    out from then on; 0 if there is none. ``only_rows`` asks whether the client has named the rows of that request,
    and for nothing else.
    """

    training: LocalTraining
    trained: tuple[str, ...]
    batch: int
    seed: bytes
    model_id: ModelId
    head: bytes
    masked: bool = False
    wanted: Wanted | None = None
    ridge: SquaredL2 | None = None
    body: str = ""
    removal: int = 0
    only_rows: bool = False

    @property
    def is_question(self) -> bool:
        """True if a head is solved, and nothing is to be trained."""
        return self.wanted is not None or self.ridge is not None

    def record(self) -> dict[str, str | int | bool | list[str]]:
        """Return it as the values of a ``ConfigRecord``."""
        return {
            f"{PREFIX}training": _text(self.training),
            f"{PREFIX}trained": list(self.trained),
            f"{PREFIX}batch": self.batch,
            f"{PREFIX}seed": self.seed.hex(),
            f"{PREFIX}branch": self.model_id.branch,
            f"{PREFIX}round": self.model_id.round,
            f"{PREFIX}head": self.head.hex(),
            f"{PREFIX}masked": self.masked,
            f"{PREFIX}wanted": self.wanted.value if self.wanted else "",
            f"{PREFIX}ridge": json.dumps(encode(self.ridge)) if self.ridge else "",
            f"{PREFIX}body": self.body,
            f"{PREFIX}removal": self.removal,
            f"{PREFIX}only_rows": self.only_rows,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Instructions:
        """Read them from a ``ConfigRecord``."""
        if f"{PREFIX}training" not in record:
            raise Complaint.NO_TRAINING.error()
        value = {key.removeprefix(PREFIX): setting for key, setting in record.items() if key.startswith(PREFIX)}
        return cls(
            training=decode(LocalTraining, json.loads(value["training"])),
            trained=tuple(value["trained"]),
            batch=int(value["batch"]),
            seed=bytes.fromhex(value["seed"]),
            model_id=ModelId(int(value["branch"]), int(value["round"])),
            head=bytes.fromhex(value["head"]),
            masked=bool(value["masked"]),
            wanted=Wanted(value["wanted"]) if value["wanted"] else None,
            ridge=decode(SquaredL2, json.loads(value["ridge"])) if value["ridge"] else None,
            body=str(value["body"]),
            removal=int(value["removal"]),
            only_rows=bool(value["only_rows"]),
        )

    def digest(self) -> str:
        """Return what a client that executed exactly this echoes."""
        executed = {key: setting for key, setting in self.record().items() if not key.endswith(("head", "masked"))}
        return hashlib.sha256(canonical(executed)).hexdigest()


@lru_cache(maxsize=8)
def _text(training: LocalTraining) -> str:
    """Spell a training; kept, as every participant of every round is told the same one."""
    return json.dumps(encode(training))


# Who speaks


def tell_password(context: Context) -> str:
    """Return this client's password for the run, made when it is first asked for."""
    if PASSWORD not in context.state.config_records:
        context.state[PASSWORD] = ConfigRecord({PASSWORD: secrets.token_hex(32)})
    return str(context.state.config_records[PASSWORD][PASSWORD])


def has_password(msg: Message, context: Context) -> bool:
    """Return whether a message has the password that this client told; False if it has told none."""
    own = context.state.config_records.get(PASSWORD)
    if own is None:
        return False
    told = [record.get(PASSWORD) for record in msg.content.config_records.values()]
    return any(is_digest(password) and hmac.compare_digest(str(password), str(own[PASSWORD])) for password in told)


def seal(message: Message, password: str | None) -> None:
    """Add to a message the password of whom it goes to, if that is known, and a random number.

    Flower makes a message's id from what is in it, and whoever knows the id can answer in the other's place: the
    number keeps it from everybody else.
    """
    own = {NONCE: secrets.token_hex(32)} | ({} if password is None else {PASSWORD: password})
    content = message.content
    key, values = next(iter(content.config_records.items()), ("config", ConfigRecord()))
    message.content = RecordDict({**content, key: ConfigRecord({**values, **own})})
