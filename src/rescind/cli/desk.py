"""``rescind desk``: a page to leave open, and a door for requests."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.explained import Command
from rescind.cli.shared import AsJson, Location, open_history, report_errors, show

app = typer.Typer(help="A page to leave open beside a run, and a door for requests.", no_args_is_help=True)

Logins = Annotated[
    Path | None, typer.Option("--logins", help="The file of logins; HISTORY.desk beside a folder by default.")
]


@app.command(cls=Command, short_help="Serve the page and its JSON interface")
def serve(
    history: Location,
    logins: Logins = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than 127.0.0.1 need TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen at.")] = 8765,
    certificates: Annotated[
        Path | None, typer.Option(help="The folder with certificates, for those who left.")
    ] = None,
    accuracies: Annotated[
        Path | None, typer.Option(help="Accuracies over time, as rescind.engines.accuracies writes them.")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="The certificate's file, for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key's file.")] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Where signed messages about requests go.")
    ] = None,
    logins_approve: Annotated[
        bool, typer.Option("--logins-approve", help="A login's word is enough to approve; certificates say so.")
    ] = False,
) -> None:
    """Serve a page of what is due, who waits and what was done, with a JSON interface. Ctrl-C ends it.

    It trains nothing, and no key lies here. Its interface: /api/v1/openapi.json; metrics: /metrics.

    Example: rescind desk serve hospital-history
    Example: rescind desk serve hospital-history --certificates certificates --webhook https://privacy.example.org/hook
    """
    with report_errors():
        try:
            from rescind.desk.server import Settings
            from rescind.desk.server import serve as listen
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing.name} is not installed: pip install fastapi uvicorn") from missing
        if (tls_certificate is None) != (tls_key is None):
            raise ValueError("TLS needs both files: --tls-certificate and --tls-key")
        tls = (tls_certificate, tls_key) if tls_certificate and tls_key else None
        settings = Settings(
            locate(history, logins), host, port, certificates, accuracies, tls, webhook, by_login=logins_approve
        )
        if tls:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*tls)
            except ssl.SSLError as error:
                raise ValueError(f"{tls_key} is not the key of {tls_certificate}, or one is no PEM") from error
        address = f"http{'s' if tls else ''}://{host}:{port}  (Ctrl-C ends it)"
        listen(lambda: open_history(history), settings, lambda: typer.echo(address))


@app.command(cls=Command, short_help="Make or remove a token for somebody")
def token(
    history: Location,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; the journal says so of what they do.")],
    role: Annotated[
        str | None, typer.Option(help="What they may do: watch (metrics), read, ask, approve or operate.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it instead: it is out at once.")] = False,
    logins: Logins = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for the desk, which is shown once and kept nowhere; or remove one.

    Example: rescind desk token hospital-history "A. Officer" --role approve
    Example: rescind desk token hospital-history "A. Officer" --remove
    """
    with report_errors():
        try:
            from rescind.desk.logins import DUTIES, Role, add_login, remove_login
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing.name} is not installed: pip install fastapi uvicorn") from missing

        file = locate(history, logins)
        if remove:
            remove_login(file, name)
            show({"name": name, "removed": True}, [f"{name} has no token any more."], as_json)
            return
        if role not in list(Role):
            listed = "; ".join(f"{one}: {does}" for one, does in DUTIES.items())
            raise ValueError(f"--role has to be one of these. {listed}")
        made = add_login(file, name, Role(role))
    words = [made, f"That is the token of {name}, who may {DUTIES[Role(role)]}: it is shown this once."]
    show({"name": name, "role": role, "token": made}, words, as_json)


def locate(history: str, logins: Path | None) -> Path:
    """Return the file of logins; beside a history's folder unless it is named."""
    from rescind.history.locations import expand_home

    if logins is not None:
        return logins
    if "://" in history:
        raise ValueError("a history in a database has no place beside it: name the file of logins (--logins)")
    folder = Path(expand_home(history)).absolute()
    if not folder.is_dir():
        raise ValueError(f"there is no history in {history}")
    return folder.with_name(folder.name + ".desk")
