"""``rescind request forget`` needs no client; by ``rescind renew`` clients are asked once more."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show
from rescind.progress import show_progress

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


def forget(
    history: Location,
    save_to: Annotated[
        Path | None, typer.Option(help="The released model's file: it is removed first, and written anew.")
    ] = None,
    approval: Annotated[
        bool, typer.Option("--approval", help="Serve only what somebody has agreed to (rescind request approve).")
    ] = False,
    approver: Annotated[
        list[Path] | None, typer.Option(help="The public key of somebody who may agree; can be given several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Forget whoever asked, where no client has to be there: a ridge head is solved anew from sums that are kept.

    What is left waits for the federation's next run, and the command says why.

    Example: rescind request forget hospital-history --save-to /srv/models/head.safetensors
    """
    with open_existing(history) as opened:
        from rescind.certificates.keys import load_public_key
        from rescind.serving import ModelFile
        from rescind.unattended import find_left_out, forget_unattended

        keys = cast("list[SSlibKey]", [load_public_key(path) for path in approver or ()])
        if save_to is not None and opened.run.facts.frozen:
            raise ValueError(
                "the model has tensors that nobody trains, and they are in no history: leave out --save-to, and let "
                "the federation's next run write the file"
            )
        here, known = opened.participants, opened.participants.all()
        labels = here.describe([[client] for client in known.values()])
        called = {name: label for name, (label,) in zip(known, labels, strict=True)}
        back = [called[name] for name in find_left_out(opened)]
        with show_progress("forgetting"):
            served, waiting = forget_unattended(
                opened,
                approval=keys or approval,
                outlet=None if save_to is None else ModelFile(save_to, opened),
            )
        newest, kept = opened.newest, opened.sums.digests()
        # It is removed while somebody waits whom the newest model knows.
        written = save_to is not None and save_to.exists() and newest in opened.timeline.solved
        missing = [called[name] for name in here.remaining(list(known)) if name not in kept]
    result = {
        "served": [{"request": outcome.asked.number, "mode": outcome.mode.value} for outcome in served],
        "waiting": [{"request": number, "why": why} for number, why in waiting.items()],
        "model": newest.name,
        "missing": missing,
        "file": str(save_to) if written else None,
    }
    words = [f"{str(outcome).capitalize()}. No client was asked." for outcome in served]
    words += [f"Request {number} waits: {why}." for number, why in waiting.items()]
    if waiting and save_to is not None and not save_to.exists():
        words.append(f"{save_to} is taken away, as it may know who waits; it is there again once they are served.")
    if not served and not waiting:
        words.append("No request is open.")
    if back and not waiting:
        words.append(f"Again in the model: {', '.join(back)}.")
    if missing:
        words.append(f"Not in the model: {', '.join(missing)}; the next run with them asks them for their sums.")
    if written:
        words.append(f"Model {newest.name} is in {save_to}.")
    elif save_to is not None:
        words.append(f"No model is in {save_to}: it is written once nobody waits whom the model knows.")
    elif served:
        words.append(f"The newest model is {newest.name}; --save-to FILE writes it.")
    for outcome in served:
        number = outcome.asked.number
        apart = f" -o certificate-{number}.json" if len(served) > 1 else ""
        words.append(f"Certify with: rescind certify {shlex.quote(history)} {number} --key operator.key{apart}")
    show(result, words, as_json)


def renew(
    history: Location,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The clients, by their names.")],
    as_json: AsJson = False,
) -> None:
    """Let clients whose rows have changed send their sums again: the next run asks them, and nobody else.

    Rows that have to be forgotten are a request (rescind request add --records).

    Example: rescind renew hospital-history hospital-3
    """
    with open_existing(history) as opened:
        clients = opened.participants.find(names)
        opened.sums.ask_again(clients)
    words = [f"{', '.join(names)} will be asked in the federation's next run. Until then its old sums stay in use."]
    show({"asked": sorted(clients)}, words, as_json)
