"""``rescind publish``: the released model, rounds and certificates on an MLflow server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show
from rescind.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rescind.mlflow import Published


def publish(
    history: Location,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The file of the newest model, as it was released.")],
    name: Annotated[str, typer.Option(help="The registered model.")],
    tracking_uri: Annotated[str, typer.Option(envvar="MLFLOW_TRACKING_URI", help="The MLflow server's address.")],
    experiment: Annotated[str, typer.Option(help="The experiment; made if it does not exist.")] = "rescind",
    bucket: Annotated[
        list[str] | None, typer.Option(help="A bucket where the server has its files, such as s3://models/mlflow.")
    ] = None,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="A certificate to log as well; several can be given.")
    ] = None,
    key: Annotated[list[Path] | None, typer.Option(help="A public key of those who signed them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register the released model with MLflow, and archive versions that know somebody who was forgotten.

    Repeat it after every run: what is there already is not sent again. Nothing is published while a request waits.

    Example: rescind publish hospital-history model.safetensors --name hospitals --tracking-uri http://mlflow:5000
    """
    with open_existing(history) as opened:
        from rescind.certificates.envelope import read_content
        from rescind.certificates.keys import load_public_key
        from rescind.mlflow import publish as publish_model

        with show_progress("publishing"):
            published = publish_model(
                opened,
                model,
                name=name,
                experiment=experiment,
                tracking_uri=tracking_uri,
                buckets=bucket or (),
                certificates=[read_content(path) for path in certificate or ()],
                keys=[load_public_key(path) for path in key or ()],
            )
    show(asdict(published), _words(published), as_json)


def _words(published: Published) -> Iterator[str]:
    state = "is registered" if published.registered else "was registered already"
    yield f"Version {published.version} of {published.name} {state}; its alias is released."
    if published.archived:
        yield f"Archived, as they know somebody who was forgotten: {', '.join(published.archived)}"
    if published.aliases:
        yield f"Aliases that were taken from them: {', '.join(published.aliases)}"
    if published.deleted:
        yield f"Deleted: the files of models {', '.join(published.deleted)}"
    yield from (f"Out of reach: {sentence}" for sentence in published.left)
