"""The command line: asking to be forgotten, signing what became of it, and checking what was signed.

Carrying a request out is up to the federation's next run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from securesystemslib.signer import Signer

from rescind import __version__
from rescind.certificates.annex import Annex, agrees
from rescind.certificates.annex import annex as annex_of
from rescind.certificates.envelope import countersigned, fingerprint, signed, statement_in
from rescind.certificates.errors import CertificateError, NoCertificate, UnusableKey
from rescind.certificates.evidence import evidence_in
from rescind.certificates.issue import statement
from rescind.certificates.keys import new_key, public_key, signer
from rescind.certificates.page import page
from rescind.certificates.predicate import InToto, Statement
from rescind.certificates.verification import explained, verify, weakened
from rescind.core.calibration import Budget
from rescind.core.edges import sorted_group
from rescind.history.errors import HistoryError
from rescind.history.history import History
from rescind.history.places import open_private
from rescind.history.requests import Asked, asked_for, check_open

app = typer.Typer(
    name="rescind", help="Makes federated training revocable.", no_args_is_help=True, add_completion=False
)
request = typer.Typer(help="Requests to be forgotten: add one, list them, take one back.", no_args_is_help=True)
app.add_typer(request, name="request")
keys = typer.Typer(help="Keys for signing certificates.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Location = Annotated[str, typer.Argument(metavar="HISTORY", help="The history's folder, or its PostgreSQL address.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rescind {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Make federated training revocable: record, plan, forget, verify."""


@request.command()
def add(
    history: Location,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten.")],
    epsilon: Annotated[float, typer.Option(help="The guarantee's epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The guarantee's delta.")] = 1e-5,
) -> None:
    """Record that clients ask to be forgotten; the federation's next run carries it out.

    Example: rescind request add hospital-history switzerland --epsilon 5
    """
    with _opened(history) as opened:
        number = opened.ask(clients, Budget(epsilon, delta))
        asked = check_open(opened.ledger, number)
        names = opened.ledger.names(sorted_group(asked.request.group)).values()
        receipts = {name: opened.receipt(name) for name in names}
    typer.echo(f"Request {number} is recorded, to be served by {asked.deadline[:10]}.")
    for name, receipt in receipts.items():
        typer.echo(f"Receipt for {name}, by which it finds itself in the certificate: {receipt}")
    typer.echo(
        f"{', '.join(clients)} will not be asked to train any more. Start the federation's next run as always:"
    )
    typer.echo("it goes back, adds the noise that is needed, trains on with the others, and erases.")


@request.command("list")
def list_(history: Location) -> None:
    """List all requests, and what became of them."""
    with _opened(history) as opened:
        labels = opened.ledger.labels()
        done = {asked.number for outcome in opened.outcomes() for asked in outcome.asked}
        for asked in asked_for(opened.ledger):
            known = opened.ledger.names(sorted_group(asked.request.group)) | labels
            names = [known.get(client, f"client {client}") for client in sorted(asked.request.group)]
            typer.echo(
                f"{asked.number}\t{asked.time[:10]}\t{', '.join(names)}\t{_state(asked, asked.number in done)}"
            )


@request.command()
def withdraw(
    history: Location, number: Annotated[int, typer.Argument(metavar="NUMBER", help="The request's number.")]
) -> None:
    """Take back a request that is still open."""
    with _opened(history) as opened:
        opened.withdraw(number)
    typer.echo(f"Request {number} is withdrawn.")


def _state(asked: Asked, done: bool) -> str:
    if asked.withdrawn:
        return "withdrawn"
    if done:
        return "served"
    return f"{'being served' if asked.served else 'open'}, due {asked.deadline[:10]}"


@keys.command("new")
def new(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="Where to write the private half; .pub is the public one.")
    ],
) -> None:
    """Make a key for signing: encrypted, readable by you alone.

    The passphrase is asked for, or taken from the variable RESCIND_PASSPHRASE. Example: rescind keys new operator.key
    """
    with _told():
        public = new_key(path, _passphrase(new=True))
    typer.echo(f"The private key is in {path}; keep it away from the SuperLink.")
    typer.echo(f"Hand out {public}: with it anybody can verify what you sign.")
    typer.echo(f"Its fingerprint, to compare by another way: {fingerprint(public_key(public))}")


@app.command()
def certify(
    history: Location,
    number: Annotated[int, typer.Argument(metavar="REQUEST", help="The request's number.")],
    key: Annotated[Path, typer.Option(help="The private key to sign with.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("certificate.json"),
    annex: Annotated[Path | None, typer.Option(help="Write the operator's annex, too; keep it private.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Measured evidence to state in it, a JSON list.")] = None,
) -> None:
    """Sign what became of a request; a second signer adds its signature to the same file.

    What is not proven gets a signed report instead, whose title says that it is no certificate.
    Example: rescind certify hospital-history 23 --key operator.key
    """
    with _opened(history) as opened:
        measured = () if evidence is None else evidence_in(evidence.read_bytes())
        found = statement(opened, number, head=_signed_head(output, opened, number), evidence=measured)
        private = None if annex is None else annex_of(opened, found)
    with _told():
        own = signer(key, _passphrase())
        content = _signed(found, output, own)
        if annex is not None and private is not None:
            secret = _signed(private, annex, own)
            with open(annex, "wb", opener=open_private) as file:
                file.write(secret)
        output.write_bytes(content)
    typer.echo(f"{found.predicate.title}: {output}")


def _signed_head(path: Path, history: History, number: int) -> bytes | None:
    """Give the head of a certificate that is there: signed once more is what it says, wherever the history stands."""
    if not path.exists():
        return None
    there = statement_in(Statement, path.read_bytes())
    if (there.predicate.run, there.predicate.request) != (history.ledger.identifier(), number):
        raise NoCertificate(f"{path} holds something else already: choose another file")
    for weaker in weakened(there, history):
        raise NoCertificate(f"{path} is not signed once more: {weaker}, in another file")
    return bytes.fromhex(there.subject[1].digest.sha256)


def _signed(found: InToto, path: Path, own: Signer) -> bytes:
    """Sign a statement for a file; one that is there is signed once more, if it says the same."""
    if not path.exists():
        return signed(found, [own])
    there = path.read_bytes()
    said = statement_in(type(found), there)
    same = agrees(said, found) if isinstance(said, Annex) and isinstance(found, Annex) else said == found
    if not same:
        raise NoCertificate(f"{path} holds something else already: choose another file")
    return countersigned(there, own)


@app.command("verify")
def verify_(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The file to check.")],
    key: Annotated[list[Path], typer.Option(help="A public key; several can be given.")],
    threshold: Annotated[
        int | None, typer.Option(help="How many of them have to have signed; all by default.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The released model, to check that it is the one.")] = None,
    history: Annotated[str | None, typer.Option(help="The history, to check all that follows from it.")] = None,
    annex: Annotated[Path | None, typer.Option(help="The operator's annex, to check it against this.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page for people, too.")] = None,
) -> None:
    """Check a certificate offline, and say what holds, what is assumed and what is not claimed.

    Exit codes: 0 it holds; 1 a file or an argument is wrong; 10 a key cannot be used; 11 no certificate; 12 not
    signed by the keys; 13 another model; 14 its numbers contradict each other; 15 another history; 16 another annex.
    Example: rescind verify certificate.json --key operator.key.pub --model model.safetensors
    """
    with _told("not verified: "), ExitStack() as open_:
        if html is not None:
            _check_page(html)
        found = verify(
            certificate.read_bytes(),
            [public_key(each) for each in key],
            threshold=len(key) if threshold is None else threshold,
            model=model,
            history=None if history is None else open_.enter_context(History(history, create=False)),
            annex=None if annex is None else annex.read_bytes(),
        )
        if html is not None:
            made = f"Checked on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC with rescind {__version__}."
            html.write_text(page(found, made), encoding="utf-8")
    for line in explained(found):
        typer.echo(line)


def _check_page(path: Path) -> None:
    """Refuse to write a page over something else, such as the certificate."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} for the page does not exist")
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(b"<!doctype html>")):
        raise ValueError(f"{path} is there already and is no page: choose another name for it")


def _passphrase(new: bool = False) -> str:
    given = os.environ.get("RESCIND_PASSPHRASE")
    return given if given is not None else str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new))


@contextmanager
def _told(verdict: str = "") -> Iterator[None]:
    """Tell what goes wrong in a sentence, with the exit code of its kind; a failed check begins with its verdict."""
    try:
        yield
    except (CertificateError, HistoryError, OSError, ValueError) as error:
        said = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        judged = verdict if isinstance(error, CertificateError) and not isinstance(error, UnusableKey) else ""
        typer.echo(f"rescind: {judged}{said}", err=True)
        raise typer.Exit(getattr(error, "exit_code", 1)) from error


@contextmanager
def _opened(location: str) -> Iterator[History]:
    """Open a history that exists already."""
    with _told(), History(location, create=False) as history:
        yield history
