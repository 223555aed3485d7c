"""``rescind demo``: a whole federation in a new folder, trained, left, forgotten, certified and verified.

Everything but the clinics is the product itself; they are an engine on numpy, as docs/add-an-engine.md has it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from copy import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from rescind.cli.shared import report_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rescind.core.arrays import Tensor
    from rescind.core.facts import Facts
    from rescind.core.sums import Wanted
    from rescind.engines.engine import Answers, Doubt, Replies
    from rescind.ledger.records import ModelId

_CLINICS, _PATIENTS = 20, 60
_LEAVING = "clinic-7"
_ROUNDS = 20


def demo() -> None:
    """Show a federation that forgets: train, leave, forget, certify, verify, in under a minute and with nothing else.

    It is written into a new folder, named at the end; delete it when you have seen enough. Example: rescind demo
    """
    with report_errors():
        folder = tempfile.mkdtemp(prefix="rescind-demo-")
        with chdir(folder):
            _show_all()
        typer.echo(f"\nAll of it is in {folder}: look around, and delete it when you have seen enough.")


def _show_all() -> None:
    from rescind import History, Revocable, Rounds, Solve

    everybody = Clinics(_CLINICS)
    _tell(
        f"{_CLINICS} clinics train one model for {_ROUNDS} rounds. Their patients stay where they are; the server "
        "records what each clinic contributed."
    )
    with History("history") as history:
        federation = Revocable(history, everybody, scored=False)
        federation.train(Rounds(_ROUNDS))
        _tell_accuracy(everybody, history.model(history.newest))
        _tell(f"{_LEAVING} leaves, and asks to be forgotten. What would that take?")
        _run("preview", "history", _LEAVING)
        _tell("It is recorded, with a deadline.")
        _run("request", "add", "history", _LEAVING)
        _tell(
            "The next run serves it: the model is made anew, without that clinic, and what is stored of it is erased."
        )
        for outcome in federation.forget(Solve(), until=Rounds(_ROUNDS)):
            typer.echo(f"  {outcome}")
        federation.release("model.safetensors")
        forgotten = history.model(history.newest)
        _tell_accuracy(everybody, forgotten)
    _tell(f"Is it true? Other clinics, without {_LEAVING} from the start, make a model from the same first one.")
    with History.in_memory() as other:
        Revocable(other, everybody.without(_LEAVING), scored=False).solve()
        never = other.model(other.newest)
    same = all(forgotten[name].tobytes() == never[name].tobytes() for name in never)
    typer.echo(f"  It has {'the same bytes' if same else 'OTHER bytes, which is a mistake in rescind'}.")
    # The key ends with the demonstration: nobody is to know its passphrase.
    os.environ["RESCIND_PASSPHRASE"] = secrets.token_hex(16)
    _tell("The operator signs what was done and what may be claimed.")
    _run("key", "new", "operator.key")
    _run("certify", "history", "1", "--key", "operator.key")
    _tell("An auditor checks it, with three files and nothing else of the federation.")
    _run("verify", "certificate.json", "--key", "operator.key.pub", "--model", "model.safetensors")
    if find_spec("matplotlib") is None:
        typer.echo('\nWith pip install "rescind[report]" there is a page for the data protection officer, too.')
        return
    _tell("A page for the data protection officer, to be opened in a browser.")
    _run("report", "history", "--certificate", "certificate.json", "--key", "operator.key.pub")


def _tell(sentence: str) -> None:
    typer.echo("\n" + typer.style(sentence, bold=True))


def _tell_accuracy(clinics: Clinics, model: Mapping[str, Tensor]) -> None:
    typer.echo(f"  It diagnoses {clinics.test_accuracy(model):.0%} of new patients correctly.")


def _run(*words: str) -> None:
    """Show a command, and run it."""
    from rescind.cli import app

    typer.echo(f"$ rescind {shlex.join(words)}")
    app(words, standalone_mode=False)


class Clinics:
    """Clinics with patients in memory, whose diagnoses follow one rule, and chance; all of them train a head."""

    def __init__(self, count: int) -> None:
        from rescind.engines.patients import draw_patients

        self._test, *shards = draw_patients(count + 1, _PATIENTS, seed=0)
        self._shards = {f"clinic-{at}": shard for at, shard in enumerate(shards)}

    def without(self, name: str) -> Clinics:
        """Return the same clinics but one."""
        others = copy(self)
        others._shards = {own: shard for own, shard in self._shards.items() if own != name}
        return others

    @property
    def facts(self) -> Facts:
        """What claims rest on: everybody takes part in every round, with all patients."""
        from rescind import Facts, LocalTraining, Sampling, SoftmaxL2
        from rescind.core.facts import Source, Sources

        return Facts(
            LocalTraining(steps=5, learning_rate=1.0, loss=SoftmaxL2(l2=0.01, row_norm=1.0)),
            Sampling.EVERYBODY,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=True,
            sources=Sources(Source.EXECUTED, *[Source.CHECKED] * 4),
        )

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody's name."""
        return tuple(self._shards)

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0."""
        import numpy as np

        from rescind.engines.patients import DIAGNOSES, FEATURES

        return {"weight": np.zeros((DIAGNOSES, FEATURES)), "bias": np.zeros(DIAGNOSES)}

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Choose everybody who is present."""
        self._patients(present)
        return list(present)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:  # noqa: ARG002
        """Let clinics train from a model."""
        import numpy as np

        from rescind.engines.engine import Replies
        from rescind.engines.heads import train_head_on

        training = self.facts.training
        trained = [train_head_on(model, *shard, training) for shard in self._patients(names)]
        tensors = {key: [own[key] for own in trained] for key in model}
        weights, steps = np.full(len(names), float(_PATIENTS)), (training.steps,) * len(names)
        return Replies(tuple(names), weights, steps, tensors, batch=_PATIENTS if names else 0)

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,  # noqa: ARG002
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,  # noqa: ARG002
    ) -> Answers:
        """Let clinics sum over their patients, for a solver."""
        from rescind.engines.engine import Answers
        from rescind.engines.heads import sum_head

        own = zip(names, self._patients(names), strict=True)
        loss = self.facts.training.loss
        return Answers.collect(((name, sum_head(model, *shard, loss, wanted)) for name, shard in own), {})

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float:
        """Return the mean of clinics' accuracies, each on its own patients."""
        import numpy as np

        return float(np.mean(sorted(_share_right(model, *shard) for shard in self._patients(names))))

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float:
        """Return the accuracy on patients whom no clinic has."""
        return _share_right(model, *self._test)

    def _patients(self, names: Sequence[str]) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        strangers = sorted(set(names).difference(self._shards))
        if strangers:
            raise ValueError(f"not clinics of this federation: {strangers}")
        return [self._shards[name] for name in names]


def _share_right(model: Mapping[str, Tensor], rows: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return float(((rows @ model["weight"].T + model["bias"]).argmax(axis=1) == labels).mean())
