"""Measured evidence from a file, to be put into a certificate."""

from __future__ import annotations

import json

from pydantic import TypeAdapter, ValidationError

from rescind.certificates.envelope import refuse_duplicates
from rescind.certificates.predicate import MOST_EVIDENCE, Evidence

LONGEST = 64 * 1024
_LIST = TypeAdapter(tuple[Evidence, ...])


def read_evidence(content: bytes) -> tuple[Evidence, ...]:
    """Read a JSON list of objects with ``what``, ``found`` and ``bound``, strictly."""
    if len(content) > LONGEST:
        raise ValueError(f"the evidence is too long: at most {LONGEST} bytes are read")
    try:
        # Whatever stands there twice would be read once.
        json.loads(content, object_pairs_hook=refuse_duplicates)
        evidence = _LIST.validate_json(content, strict=True)
    except (ValidationError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the evidence is no JSON list of objects with what, found and bound, each a text: {error}"
        ) from error
    if len(evidence) > MOST_EVIDENCE:
        raise ValueError(f"the evidence has {len(evidence)} pieces; a certificate has at most {MOST_EVIDENCE}")
    return evidence
