"""``rescind verify``: check a certificate with all that is at hand."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rescind import __version__
from rescind.cli.shared import AsJson, check_page, open_history, report_errors, show
from rescind.progress import show_progress


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
    receipt: Annotated[
        Path | None, typer.Option(help="A client's receipt, to tell whether that client is among the forgotten.")
    ] = None,
    request: Annotated[
        Path | None, typer.Option(help="The request that the client signed itself, to check that its key asked.")
    ] = None,
    tsa_certificate: Annotated[
        Path | None,
        typer.Option(help="A time-stamp authority's certificates in PEM, to check CERTIFICATE.tsr, if it is there."),
    ] = None,
    stamp: Annotated[
        list[Path] | None, typer.Option(help="A time stamp of the certificate or the history that somebody kept.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page for people, too.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Say all that holds, is assumed, was not checked and is not claimed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a certificate offline, and say what holds and what to keep in mind.

    Exit codes: 0 it holds; 1 a file or an argument is wrong; 10 a key cannot be used; 11 no certificate; 12 not
    signed by the keys; 13 another model; 14 texts or numbers do not follow; 15 another history; 16 another annex;
    17 the receipt's client is not in it; 22 another signed request; 23 a time stamp is missing or does not fit.

    Example: rescind verify certificate.json --key operator.key.pub --model model.safetensors
    """
    with report_errors("not verified: "), ExitStack() as open_:
        from rescind.certificates.envelope import read_content
        from rescind.certificates.keys import load_public_key
        from rescind.certificates.leaving import check_signer, find_client, open_request, read_receipt
        from rescind.certificates.time_stamps import LONGEST_STAMP
        from rescind.certificates.verification import SIGNER_UNSHOWN, explain
        from rescind.certificates.verification import verify as verified
        from rescind.ledger.commitments import read_heads
        from rescind.pages.certificate import render_certificate
        from rescind.private_files import read_bounded

        if html is not None:
            check_page(html)
        signed = None if request is None else read_content(request)
        beside = certificate.with_name(f"{certificate.name}.tsr")
        stamps = [*(stamp or ()), *([beside] if tsa_certificate is not None and beside.exists() else [])]
        with show_progress("checking"):
            checked = verified(
                read_content(certificate),
                [load_public_key(path) for path in key],
                threshold=len(key) if threshold is None else threshold,
                model=model,
                history=None if history is None else open_.enter_context(open_history(history)),
                witnessed=frozenset().union(*map(read_heads, witness or ())),
                annex=None if annex is None else read_content(annex),
                request=signed,
                stamps=[read_bounded(path, LONGEST_STAMP) for path in dict.fromkeys(stamps)],
                authorities=None if tsa_certificate is None else read_bounded(tsa_certificate, LONGEST_STAMP),
            )
        finding = None
        if receipt is not None:
            own = read_receipt(receipt)
            finding = find_client(own, checked.statement.predicate)
            if signed is not None:
                check_signer(own, open_request(signed).client)
        if html is not None:
            made = f"Checked on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC with rescind {__version__}."
            html.write_text(render_certificate(checked, made), encoding="utf-8")
    if finding is not None:
        # Not on the page: that is for others, too.
        unchecked = tuple(line for line in checked.unchecked if line != SIGNER_UNSHOWN)
        checked = replace(checked, holds=(*checked.holds, finding), unchecked=unchecked)
    result = {
        "verified": True,
        "holds": list(checked.holds),
        "since": list(checked.since),
        "unchecked": list(checked.unchecked),
        "statement": checked.statement.model_dump(mode="json", by_alias=True),
    }
    show(result, explain(checked, full=full), as_json)
