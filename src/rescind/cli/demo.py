"""``rescind demo``: a whole federation in a new folder, trained, left, forgotten, certified and verified.

Everything but the clinics is the product itself.
"""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from rescind.cli.shared import report_errors

if TYPE_CHECKING:
    from rescind.core.arrays import Tensor
    from rescind.engines.clinics import Clinics

_CLINICS, _PATIENTS = 20, 60
_LEAVING = "clinic-7"
_ROUNDS = 20


def demo(context: typer.Context) -> None:
    """Show a federation that forgets: train, leave, forget, certify, verify, in under a minute and with nothing else.

    It is written into a new folder, named at the end; delete it when you have seen enough.

    Example: rescind demo
    """
    with report_errors():
        folder = tempfile.mkdtemp(prefix="rescind-demo-")
        try:
            with chdir(folder):
                _show_all(context)
        finally:
            typer.echo(f"\nAll of it is in {folder}: look around, and delete it when you have seen enough.")


def _show_all(context: typer.Context) -> None:
    from rescind import History, Revocable, Rounds, Solve
    from rescind.engines.clinics import Clinics

    everybody = Clinics(_CLINICS, _PATIENTS)
    _tell(
        f"{_CLINICS} clinics train one model for {_ROUNDS} rounds. Their patients stay where they are; the server "
        "records what each clinic contributed."
    )
    with History("history") as history:
        federation = Revocable(history, everybody, scored=False)
        federation.train(Rounds(_ROUNDS))
        _tell_accuracy(everybody, history.model(history.newest))
        _tell(f"{_LEAVING} leaves, and asks to be forgotten. What would that take?")
        _run(context, "request", "preview", "history", _LEAVING)
        _tell("It is recorded, with a deadline.")
        _run(context, "request", "add", "history", _LEAVING)
        _tell(
            "The next run serves it: the model is made anew, without that clinic, and what is stored of it is erased."
        )
        (outcome,) = federation.forget(Solve(), until=Rounds(_ROUNDS))
        typer.echo(f"  {outcome}")
        federation.release("model.safetensors")
        forgotten = history.model(history.newest)
        _tell_accuracy(everybody, forgotten)
    _tell(f"Is it true? Other clinics, without {_LEAVING} from the start, make a model from the same first one.")
    with History.in_memory() as other:
        Revocable(other, everybody.without(_LEAVING), scored=False).solve()
        never = other.model(other.newest)
    same = all(forgotten[name].tobytes() == never[name].tobytes() for name in never)
    typer.echo(
        f"  It has {'the same bytes' if same else 'OTHER bytes, which is a mistake in rescind'}. "
        f"Forgetting took {outcome.rounds} rounds instead of {_ROUNDS}."
    )
    # The key ends with the demonstration: nobody is to know its passphrase.
    os.environ["RESCIND_PASSPHRASE"] = secrets.token_hex(16)
    _tell("The operator signs what was done and what may be claimed.")
    _run(context, "key", "new", "operator.key")
    _run(context, "certify", "history", "1", "--key", "operator.key")
    _tell("An auditor checks it, with three files and nothing else of the federation.")
    _run(context, "verify", "certificate.json", "--key", "operator.key.pub", "--model", "model.safetensors")
    if find_spec("matplotlib") is None:
        typer.echo("\nWith pip install matplotlib there is a page for the data protection officer, too.")
        return
    _tell("A page for the data protection officer, to be opened in a browser.")
    _run(context, "report", "history", "--certificate", "certificate.json", "--key", "operator.key.pub")


def _tell(sentence: str) -> None:
    typer.echo("\n" + typer.style(sentence, bold=True))


def _tell_accuracy(clinics: Clinics, model: Mapping[str, Tensor]) -> None:
    typer.echo(f"  It diagnoses {clinics.test_accuracy(model):.0%} of new patients correctly.")


def _run(context: typer.Context, *words: str) -> None:
    """Show a command, and run it; one that fails or is interrupted ends the demonstration."""
    typer.echo(f"$ rescind {shlex.join(words)}")
    if code := context.find_root().command.main(words, standalone_mode=False):
        raise typer.Exit(code)
