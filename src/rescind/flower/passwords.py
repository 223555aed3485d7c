"""Who speaks: a client obeys only whoever has the password that it told the server, once in every run.

Flower takes a message from any registered node, also one that is no reply, and does not compare who sends it with
whom it says it is from (1.38 to 1.42, by their sources). So a participant can write to another one as if it were the
server. But what a client answers to a query reaches the ServerApp and nobody else, whoever sent the query: only the
server can know what is in it.
"""

from __future__ import annotations

import hmac
import secrets

from flwr.app import ConfigRecord, Context, Message, RecordDict

from rescind.flower.wire import NONCE, PASSWORD
from rescind.texts import is_digest


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
