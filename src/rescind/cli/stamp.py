"""``rescind stamp``: have a certificate or the history's head stamped by a time-stamp authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show


def stamp(
    history: Location,
    tsa: Annotated[str, typer.Option(metavar="URL", help="The authority's address; it is sent a digest, no more.")],
    tsa_certificate: Annotated[
        Path, typer.Option(help="The authority's certificates in PEM, with its root, to check its answer.")
    ],
    certificate: Annotated[
        Path | None, typer.Option(help="Stamp this certificate, which names a head, and write CERTIFICATE.tsr.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the stamp here, for others to keep.")
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, help="Do nothing until so many entries came since the last; for a timer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a time-stamp authority (RFC 3161) sign that the history's newest head exists by now, or a certificate.

    The stamp is recorded in the history. Keep it elsewhere, too: whoever can rewrite a history can drop it there, and
    rescind verify --tsa-certificate compares the two.

    Example: rescind stamp hospital-history --tsa https://tsa.example.org --tsa-certificate tsa.pem -o head.tsr
    """
    with open_existing(history) as opened:
        from rescind.certificates.envelope import read_content
        from rescind.certificates.time_stamps import LONGEST_STAMP, read_authorities
        from rescind.certificates.time_stamps import stamp as have_stamped
        from rescind.cli.authority import ask
        from rescind.private_files import name_when_full, read_bounded

        if certificate is not None and every is not None:
            raise ValueError("--every is for the history's head: leave it out where a --certificate is stamped")
        content = None if certificate is None else read_content(certificate)
        output = certificate.with_name(f"{certificate.name}.tsr") if certificate and output is None else output
        authorities = read_authorities(read_bounded(tsa_certificate, LONGEST_STAMP))
        since = opened.journal.count_after(opened.timeline.stamped)
        if every is not None and since < every:
            words = f"Nothing to do: {since} entries came since the last time stamp."
            show({"stamped": False, "entries": since}, [words], as_json)
            return
        # An earlier stamp shows more than a later one.
        if output is not None and output.exists():
            raise ValueError(f"{output} is there already, and not written over: choose another file by --output")
        reply, stamped = have_stamped(opened, lambda query: ask(tsa, query), authorities, content)
        if output is not None:
            with name_when_full(output):
                output.write_bytes(reply)
    result = {"stamped": True, "time": stamped.time.isoformat(), "authority": stamped.authority}
    named = "The history's head" if certificate is None else f"{certificate}"
    keep = [f"Hand out copies of {output}: they show it if the history is rewritten."] if output else []
    show(result, [f"{named} was {stamped}.", *keep], as_json)
