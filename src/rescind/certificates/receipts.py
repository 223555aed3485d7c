"""What a client gets with its request: a file by which it finds itself among the digests of a certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from rescind.certificates.envelope import refuse_duplicates
from rescind.certificates.errors import ReceiptMismatchError
from rescind.certificates.predicate import Count, Digest, Part, Predicate, Run
from rescind.history.participants import blind_name
from rescind.ledger.contract import LONGEST_NAME
from rescind.private_files import open_private, read_bounded, warn_if_packed

_LONGEST = 64 * 1024
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class Receipt(Part):
    """The receipt of one client: what it is ``called``, and the salt of each of its ``names``: of its keys, say."""

    run: Run
    request: Count
    called: Name
    names: Mapping[Name, Digest]


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Write a receipt into a new file, for its owner alone."""
    with open(path, "x", encoding="utf-8", opener=open_private) as file:
        json.dump(receipt.model_dump(mode="json"), file, indent=1)
    warn_if_packed(path)


def read_receipt(path: Path) -> Receipt:
    """Read a receipt, strictly."""
    try:
        return parse_receipt(read_bounded(path, _LONGEST))
    except ValueError as error:
        raise ValueError(f"{path} is no receipt, as rescind request add --receipt writes it: {error}") from error


def parse_receipt(content: bytes) -> Receipt:
    """Return the receipt that a file or a message holds; ``ValueError`` if it holds none."""
    if len(content) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} bytes")
    try:
        # Whatever stands there twice would be read once.
        json.loads(content, object_pairs_hook=refuse_duplicates)
        return Receipt.model_validate_json(content, strict=True)
    except (ValidationError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error


def find_client(receipt: Receipt, predicate: Predicate) -> str:
    """Say by which names a receipt's client is among the forgotten of a certificate.

    Raises:
        ReceiptMismatchError: it is not among them, or not by all of its names.
    """
    missing = [
        name
        for name, salt in receipt.names.items()
        if blind_name(bytes.fromhex(salt), name) not in predicate.forgotten
    ]
    if missing or not receipt.names:
        raise ReceiptMismatchError(
            f"{receipt.called} is not among the forgotten{_listed(receipt.called, missing)}: the receipt is for "
            f"request {receipt.request} of history {receipt.run}, and this is about request {predicate.request} of "
            f"{predicate.run}"
        )
    return f"{receipt.called} is among the forgotten{_listed(receipt.called, list(receipt.names))}"


def check_signer(receipt: Receipt, client: str) -> None:
    """Refuse the receipt of another client than the one whose key signed a request.

    Raises:
        ReceiptMismatchError: the client is none of the receipt's names.
    """
    if client not in receipt.names:
        raise ReceiptMismatchError(f"the receipt is that of {receipt.called}, and the request was signed by {client}")


def _listed(called: str, names: list[str]) -> str:
    return f", as {' and '.join(names)}" if names and names != [called] else ""
