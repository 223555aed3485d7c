"""``rescind certify``: sign what a history says of a request that was served."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.key import passphrase
from rescind.cli.shared import AsJson, Location, open_existing, show
from rescind.progress import show_progress


def certify(
    history: Location,
    number: Annotated[int, typer.Argument(metavar="REQUEST", help="The request's number.")],
    key: Annotated[Path, typer.Option(help="The private key to sign with.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("certificate.json"),
    model: Annotated[
        Path | None, typer.Option(help="The model's file that it should be about; today's newest model by default.")
    ] = None,
    annex: Annotated[Path | None, typer.Option(help="Write the operator's annex, too; keep it private.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Measured evidence to state in it, a JSON list.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign what became of a request; a second signer adds its signature to the same file.

    What is not proven gets a signed report instead, whose title says that it is no certificate.

    Example: rescind certify hospital-history 1 --key operator.key
    """
    with open_existing(history) as opened:
        from rescind.certificates.annex import build_annex as annex_of
        from rescind.certificates.annex import find_condition
        from rescind.certificates.files import LONGEST_EVIDENCE, check_verifies, read_evidence, read_signed, sign_for
        from rescind.certificates.issue import build_statement
        from rescind.certificates.keys import load_signer
        from rescind.certificates.models import find_model
        from rescind.certificates.predicate import VERSION
        from rescind.history.outcomes import outcome_of
        from rescind.private_files import name_when_full, open_private, read_bounded, warn_if_packed

        measured = () if evidence is None else read_evidence(read_bounded(evidence, LONGEST_EVIDENCE))
        outcome = outcome_of(opened.timeline, number)
        again = read_signed(output, opened, number)
        chosen = None if model is None else find_model(opened, outcome, model)
        head, model_id, version = again or (None, chosen, VERSION)
        if chosen not in (None, model_id):
            raise ValueError(f"{output} is about {model_id}, and {model} is {chosen}: choose another --output")
        with show_progress("looking up what may be claimed"):
            statement = build_statement(
                opened, number, head=head, model_id=model_id, evidence=measured, version=version
            )
            private = annex_of(opened, statement) if annex else None
            condition = find_condition(opened, statement)
        own = load_signer(key, passphrase())
        content = sign_for(output, statement, own)
        secret = sign_for(annex, private, own) if annex and private else None
        with show_progress("checking what is signed"):
            check_verifies(content, own, opened, secret)
        if annex and secret:
            with name_when_full(annex), open(annex, "wb", opener=open_private) as file:
                file.write(secret)
            warn_if_packed(annex)
        with name_when_full(output):
            output.write_bytes(content)
        newest = opened.newest.name
    predicate = statement.predicate
    result: dict[str, object] = {
        "request": number,
        "model": predicate.model,
        "mode": predicate.mode,
        "title": predicate.title,
        "file": str(output),
    }
    words = [f"{predicate.title} for model {predicate.model}: {output}"]
    if model is None and again is None and predicate.model != newest:
        words.append(f"Nothing can be certified of the newest model, {newest}: this is the last one before it.")
    if condition is not None:
        result["condition"] = asdict(condition) | {"scope": condition.scope.value}
        words += [*predicate.reasons, str(condition)]
    if again is not None:
        words.append(
            "It was there already and is signed once more, as it stood; for another model choose another --output."
        )
    show(result, words, as_json)
