"""``rescind certify`` and ``rescind verify``."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rescind import __version__
from rescind.cli.keys import passphrase
from rescind.cli.shared import (
    AsJson,
    Location,
    check_page,
    open_existing,
    open_history,
    report_errors,
    show,
    show_progress,
)


def certify(
    history: Location,
    number: Annotated[int, typer.Argument(metavar="REQUEST", help="The request's number.")],
    key: Annotated[Path, typer.Option(help="The private key to sign with.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("certificate.json"),
    annex: Annotated[Path | None, typer.Option(help="Write the operator's annex, too; keep it private.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Measured evidence to state in it, a JSON list.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign what became of a request; a second signer adds its signature to the same file.

    What is not proven gets a signed report instead, whose title says that it is no certificate.
    Example: rescind certify hospital-history 23 --key operator.key
    """
    with open_existing(history) as there:
        from rescind.certificates.annex import build_annex as annex_of
        from rescind.certificates.evidence import LONGEST, read_evidence
        from rescind.certificates.files import check_verifies, read_head, sign_for
        from rescind.certificates.issue import build_statement
        from rescind.certificates.keys import load_signer
        from rescind.history.outcomes import claim_of
        from rescind.private_files import open_private, read_bounded

        measured = () if evidence is None else read_evidence(read_bounded(evidence, LONGEST))
        claim_of(there.timeline, number)
        again = read_head(output, there, number)
        with show_progress("looking up what may be claimed"):
            found = build_statement(there, number, head=again, evidence=measured)
            private = None if annex is None else annex_of(there, found)
        own = load_signer(key, passphrase())
        content = sign_for(output, found, own)
        secret = None if annex is None or private is None else sign_for(annex, private, own)
        with show_progress("checking what is signed"):
            check_verifies(content, own, there, secret)
        if annex is not None and secret is not None:
            with open(annex, "wb", opener=open_private) as file:
                file.write(secret)
        output.write_bytes(content)
    said = found.predicate
    result = {"request": number, "mode": said.mode, "title": said.title, "file": str(output)}
    words = [f"{said.title}: {output}"]
    if again is not None:
        words.append(
            "It was there already and is signed once more, as it stood; for today's model choose another --output."
        )
    show(result, words, as_json)


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The file to check.")],
    key: Annotated[list[Path], typer.Option(help="A public key; several can be given.")],
    threshold: Annotated[
        int | None, typer.Option(help="How many of them have to have signed; all by default.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The released model, to check that it is the one.")] = None,
    history: Annotated[str | None, typer.Option(help="The history, to check all that follows from it.")] = None,
    witness: Annotated[
        list[Path] | None,
        typer.Option(help="Heads from clients' logs, to check that the history was not rewritten or rolled back."),
    ] = None,
    annex: Annotated[Path | None, typer.Option(help="The operator's annex, to check it against this.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page for people, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate offline, and say what holds, what is assumed and what is not claimed.

    Exit codes: 0 it holds; 1 a file or an argument is wrong; 10 a key cannot be used; 11 no certificate; 12 not
    signed by the keys; 13 another model; 14 texts or numbers do not follow; 15 another history; 16 another annex.
    Example: rescind verify certificate.json --key operator.key.pub --model model.safetensors
    """
    with report_errors("not verified: "), ExitStack() as open_:
        from rescind.certificates.files import read_content
        from rescind.certificates.keys import load_public_key
        from rescind.certificates.page import render_page
        from rescind.certificates.verification import explain
        from rescind.certificates.verification import verify as verified
        from rescind.history.witnesses import read_heads

        if html is not None:
            check_page(html)
        with show_progress("checking"):
            found = verified(
                read_content(certificate),
                [load_public_key(each) for each in key],
                threshold=len(key) if threshold is None else threshold,
                model=model,
                history=None if history is None else open_.enter_context(open_history(history)),
                witnessed=frozenset().union(*map(read_heads, witness or ())),
                annex=None if annex is None else read_content(annex),
            )
        if html is not None:
            made = f"Checked on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC with rescind {__version__}."
            html.write_text(render_page(found, made), encoding="utf-8")
    result = {
        "verified": True,
        "holds": list(found.holds),
        "since": list(found.since),
        "unchecked": list(found.unchecked),
        "statement": found.statement.model_dump(mode="json", by_alias=True),
    }
    show(result, explain(found), as_json)
