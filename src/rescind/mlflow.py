"""Where operators already are: a run's rounds, certificates and released models on an MLflow server.

What is sent is public and stays in the journal for good, so that no erasure has to reach it. The exception are the
models themselves: those that know somebody who was forgotten are archived, and deleted where the erasure was a purge.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from securesystemslib.signer import Key

from rescind.certificates.models import read_parts
from rescind.certificates.predicate import Statement
from rescind.certificates.verification import verify
from rescind.checkpoints.tensors import digest
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.errors import HistoryError, PendingRequestError, RegistryError
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.ledger.records import ErasureLevel
from rescind.serving import find_held
from rescind.texts import is_plain, shorten
from rescind.views.models import DIGEST, MODEL, RUN, describe_release, find_known

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

__all__ = ["Published", "publish"]

ALIAS = "released"
_ARCHIVED, _MODE, _CERTIFICATE, _ROUNDS = (
    f"rescind.{name}" for name in ("archived", "mode", "certificate", "rounds")
)
_WARNING = "Archived by rescind: this version knows, or may know, somebody who was forgotten. Do not deploy it."
_FOLDER, _FILE = "models", "model.safetensors"
# MLflow waits for minutes, tells its makers that it is used, draws bars and goes wherever it is sent: unless the
# operator says otherwise.
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # Files would go to wherever the server points.
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
}
# Places on this machine, or on servers that would get the tracking server's password.
_NO_BUCKETS = ("", "file", "http", "https", "ftp", "sftp", "mlflow-artifacts", "runs", "models")
_MODEL_ID = re.compile("[0-9]{1,9}[.][0-9]{1,9}")
# MLflow takes 1,000 metrics in one message, and a round has three.
_ROUNDS_AT_ONCE = 300
# 20,000 versions; a server that goes on and on is not waited for.
_MOST_PAGES = 100
_LONGEST_NAME = 250


@dataclass(frozen=True, slots=True)
class Published:
    """What ``publish`` found and did.

    Attributes:
        name: the registered model.
        version: the version that holds the newest model.
        registered: whether it was registered now, and not before.
        archived: the versions that know somebody who was forgotten, as ``name/version``; some may have been archived
            before.
        deleted: the models whose files were deleted now.
        aliases: the aliases that were taken from archived versions now.
        left: in words, what may still hold somebody who was forgotten, and is for you to look at.
    """

    name: str
    version: str
    registered: bool
    archived: tuple[str, ...]
    deleted: tuple[str, ...]
    aliases: tuple[str, ...]
    left: tuple[str, ...]


def publish(
    history: History,
    model: str | os.PathLike[str],
    *,
    name: str,
    experiment: str = "rescind",
    tracking_uri: str | None = None,
    buckets: Sequence[str] = (),
    certificates: Sequence[bytes] = (),
    keys: Sequence[Key] = (),
) -> Published:
    """Register the released model on an MLflow server, and archive versions that know somebody who was forgotten.

    To be called after every run. What is there already is not sent again; a call that was cut off is repeated. The
    run is held meanwhile, so that nobody trains, forgets or publishes beside it.

    Args:
        history: the history.
        model: the file of the newest model, from ``Revocable.release`` or ``save_to``.
        name: the registered model.
        experiment: the experiment; made if it does not exist.
        tracking_uri: the server; None means what MLflow's own settings say (``MLFLOW_TRACKING_URI``).
        buckets: where a server with an address may have its files besides the server itself, such as
            ``s3://models/mlflow``; what it says of other places is refused.
        certificates: certificates of this history, to be logged as well.
        keys: the public keys of those who signed them, all of whom have to have.

    Returns:
        what was found and done.

    Raises:
        PendingRequestError: somebody waits to be forgotten, or a request is being served: nothing is registered, and
            what knows those who were forgotten before is archived all the same.
        LockedError: another process is writing to this run.
        RegistryError: the server cannot be reached, refuses, or answers with something that cannot be used.
        ValueError: the file does not hold the newest model, a name cannot be one, or MLflow is not installed.
        CertificateError: a certificate does not verify with these keys and this history.
    """
    for text in (name, experiment):
        _check_name(text)
    for bucket in buckets:
        _check_bucket(bucket)
    if certificates and not keys:
        raise ValueError("certificates are checked before they are published: give the public keys, too")
    if find_spec("mlflow") is None:
        raise ValueError("MLflow is not installed: pip install mlflow-skinny")
    with _settings(), history.held():
        newest = history.newest
        with _understood():
            from mlflow.tracking import MlflowClient

            registry = _Registry(MlflowClient(tracking_uri, tracking_uri), history, name, experiment, buckets)
            # Also if nothing can be registered now: who was forgotten does not wait for those who still have to.
            registry.archive()
        _check_released(history)
        described = _check_file(history, newest, Path(model))
        statements = {
            content: verify(content, keys, threshold=len(keys), history=history).statement for content in certificates
        }
        with _understood():
            run = registry.find_run()
            registry.log_rounds(run)
            for content in statements:
                registry.log_text(run, content.decode(), f"certificates/{hashlib.sha256(content).hexdigest()}.json")
            version, registered = registry.register(run, newest, Path(model), described)
            if find_held(history):
                if registered:
                    registry.take_back(run, newest, version)
                _check_released(history)
            registry.release(version, statements)
    sentences = (registry.archived, registry.deleted, registry.aliases, registry.left)
    return Published(name, version, registered, *map(tuple, sentences))


def _check_released(history: History) -> None:
    """Refuse to hand out a model while somebody whom it knows waits, or is on the way to be forgotten."""
    if numbers := find_held(history):
        raise PendingRequestError(
            f"request {' and '.join(map(str, numbers))} is not served to the end, and the newest model knows its "
            "clients, or is on the way to forget them: nothing is registered. Start the federation's next run first"
        )
    if (known := find_known(history, history.newest)) != ():
        of_whom = f"clients of request {known[0]}" if known else "somebody who was forgotten, or nobody can tell"
        raise PendingRequestError(f"the newest model knows {of_whom}: nothing is registered")


def _check_name(name: str) -> None:
    if not name or len(name) > _LONGEST_NAME or not is_plain(name) or set(name) & set("/:'\"\\`%"):
        raise ValueError(
            f"{name!a:.80} cannot be a name there: take at most {_LONGEST_NAME} letters, digits, dashes and spaces"
        )


def _check_bucket(bucket: str) -> None:
    if urlsplit(bucket).scheme in _NO_BUCKETS or not urlsplit(bucket).netloc or not _is_straight(bucket):
        raise ValueError(f"{bucket!a:.80} is no bucket: write s3://BUCKET/PREFIX, or the like")


def _is_straight(address: str) -> bool:
    """Return whether an address leads to where it seems to, with no account, query or way up in it."""
    parts = urlsplit(address)
    plain = is_plain(address) and not set(address) & set("?#%@\\")
    return plain and not {".", ".."} & set(parts.path.split("/"))


def _check_file(history: History, newest: ModelId, path: Path) -> dict[str, str]:
    """Return what is said of the newest model, if the file holds it, with the tensors that nobody trains."""
    trained, frozen = read_parts(path, [name for name, _, _ in history.run.tensors])
    described = describe_release(history, newest)
    if digest(trained) != described[DIGEST] or (digest(frozen) if frozen else "") != history.run.facts.frozen:
        raise ValueError(f"{path} does not hold {newest}, the newest model: release it again, and publish that file")
    mode = _find_mode(history)
    return described | ({_MODE: mode} if mode else {})


def _find_mode(history: History) -> str:
    """Return the weakest of what may be claimed now of those who were forgotten; empty if nobody was."""
    modes = [outcome.mode for outcome in history.outcomes()]
    return max(modes, key=list(Mode).index).value if modes else ""


@contextmanager
def _settings() -> Iterator[None]:
    unset = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


@contextmanager
def _understood() -> Iterator[None]:
    """Say in one sentence what a server did not do."""
    from google.protobuf.json_format import ParseError
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    try:
        with warnings.catch_warnings():
            # Stages are deprecated, and still deployed from.
            warnings.simplefilter("ignore")
            yield
    except HistoryError:
        raise
    except (
        MlflowException,
        RequestException,
        ParseError,
        # What MLflow's client makes of answers that it does not expect.
        *(ValueError, TypeError, AttributeError, LookupError),
    ) as error:
        raise RegistryError(
            f"the MLflow server says: {_shorten(str(error))}. Check its address, whether it runs, and your account "
            "there; then publish again, which goes on where this stopped"
        ) from error


def _shorten(text: str) -> str:
    """Return a server's words in one line, without what an address may have before its host."""
    return shorten(" ".join(re.sub("//[^/@ ]*@", "//", text).split()), 300)


class _Registry:
    """One registered model on a server, for one history."""

    def __init__(
        self, client: MlflowClient, history: History, name: str, experiment: str, buckets: Sequence[str] = ()
    ) -> None:
        self._client, self._history, self._name = client, history, name
        self._run_name = history.identifier
        tracking = urlsplit(client.tracking_uri)
        self._remote = tracking.scheme in ("http", "https")
        self._host = tracking.netloc.rpartition("@")[2]
        self._buckets = [f"{bucket.rstrip('/')}/" for bucket in buckets]
        self._experiment = self._find_experiment(experiment)
        # In words, for whoever publishes.
        self.archived: list[str] = []
        self.deleted: list[str] = []
        self.aliases: list[str] = []
        self.left: list[str] = []

    # What is there

    def _find_experiment(self, experiment: str) -> str:
        known = self._client.get_experiment_by_name(experiment)
        if known is None:
            return str(self._client.create_experiment(experiment))
        if known.lifecycle_stage != "active":
            raise RegistryError(
                f"the MLflow server has no active experiment {experiment!r}: if somebody deleted it, restore it, or "
                "take another name"
            )
        return str(known.experiment_id)

    def _find_runs(self) -> list[Run]:
        """Return the MLflow runs of this history, the oldest first, also those that somebody deleted."""
        from mlflow.entities import ViewType

        wanted = f"tags.`{RUN}` = '{self._run_name}'"
        runs = self._client.search_runs([self._experiment], wanted, ViewType.ALL, 100, ["attributes.start_time ASC"])
        ours = [run for run in runs if run.data.tags.get(RUN) == self._run_name]
        for run in ours:
            self._check_place(run)
        return ours

    def find_run(self) -> Run:
        """Return the MLflow run that this history is logged to."""
        for run in self._find_runs():
            if run.info.lifecycle_stage == "active":
                return run
        run = self._client.create_run(
            self._experiment, tags={RUN: self._run_name}, run_name=f"rescind {self._run_name}"
        )
        self._check_place(run)
        return run

    def _check_place(self, run: Run) -> None:
        """Refuse to write and delete on this machine, or to send models or a password, wherever a server says."""
        address = run.info.artifact_uri or ""
        if self._remote and not (_is_straight(address) and self._is_permitted(address)):
            raise RegistryError(
                f"the MLflow server wants files to be at {_shorten(address) or 'no place'}, which is neither on that "
                "server nor in a bucket that you named: start it with --serve-artifacts, or name its --bucket"
            )

    def _is_permitted(self, address: str) -> bool:
        parts = urlsplit(address)
        if parts.scheme == "mlflow-artifacts":
            # Without a host it is the tracking server.
            return parts.netloc in ("", self._host)
        return address.startswith(tuple(self._buckets))

    def _open_place(self, run: Run) -> Any:
        """Return the place of a run's files that was checked: asked again, a server may name another one."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        self._check_place(run)
        return get_artifact_repository(run.info.artifact_uri, tracking_uri=self._client.tracking_uri)

    def log_text(self, run: Run, text: str, file: str) -> None:
        folder, _, name = file.rpartition("/")
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / name).write_text(text, "utf-8")
            self._open_place(run).log_artifact(str(Path(scratch) / name), folder or None)

    def _find_versions(self, runs: Collection[Run]) -> list[ModelVersion]:
        """Return all versions of the registered model, and those of other ones that were made from these runs."""
        versions: dict[tuple[str, str], ModelVersion] = {}
        for wanted in [f"name = '{self._name}'", *(f"run_id = '{run.info.run_id}'" for run in runs)]:
            token = None
            for _ in range(_MOST_PAGES):
                page = self._client.search_model_versions(wanted, 200, page_token=token)
                versions |= {(version.name, str(version.version)): version for version in page}
                token = page.token
                if not token:
                    break
            else:
                raise RegistryError(
                    f"the MLflow server goes on after {_MOST_PAGES} pages of versions: delete old ones"
                )
        return list(versions.values())

    def _is_clean(self, model: str) -> bool:
        """Return whether the history shows that a model knows nobody who was forgotten."""
        return _MODEL_ID.fullmatch(model) is not None and find_known(self._history, ModelId.read(model)) == ()

    def _is_true(self, version: ModelVersion, model: str) -> bool:
        """Return whether a version's tags say that it is this model, which the history has."""
        recorded = self._history.digest_of(ModelId.read(model))
        return recorded is not None and (version.tags.get(MODEL), version.tags.get(DIGEST)) == (model, recorded)

    # What has to go

    def archive(self) -> None:
        """Archive versions that know somebody who was forgotten, and delete their files after a purge."""
        runs = self._find_runs()
        folders = [
            f"{place}/{_FOLDER}/" for run in runs for place in (run.info.artifact_uri, f"runs:/{run.info.run_id}")
        ]
        purged = any(outcome.erasure.level is ErasureLevel.PURGE for outcome in self._history.outcomes())
        mode = _find_mode(self._history)
        for version in self._find_versions(runs):
            shown = f"{_shorten(version.name)}/{_shorten(str(version.version))}"
            source = str(version.source or "")
            own = next((folder for folder in folders if source.startswith(folder)), None)
            if own is None and version.tags.get(RUN) != self._run_name:
                if version.tags.get(RUN) is None:
                    self.left.append(
                        f"version {shown}, which rescind did not register: nobody here can tell whom it knows"
                    )
                continue
            model = source.removeprefix(own).strip("/") if own else version.tags.get(MODEL, "")
            if self._is_clean(model) and (self._is_true(version, model) or not version.tags.get(RUN)):
                # What was claimed of it may be less by now.
                if version.tags.get(_MODE, mode) != mode:
                    self._client.set_model_version_tag(version.name, str(version.version), _MODE, mode)
                continue
            self._archive(version, shown, purged)
            if own is None:
                self.left.append(f"the files of version {shown}, which rescind did not put there: {_shorten(source)}")
        if purged:
            for run in runs:
                self._delete_files(run, lambda model: not self._is_clean(model))

    def _archive(self, version: ModelVersion, shown: str, purged: bool) -> None:
        client, number = self._client, str(version.version)
        for alias, points_to in client.get_registered_model(version.name).aliases.items():
            if str(points_to) == number:
                client.delete_registered_model_alias(version.name, alias)
                self.aliases.append(f"{_shorten(alias)} of {shown}")
        if version.current_stage in ("Staging", "Production"):
            client.transition_model_version_stage(version.name, number, "Archived")
        # Somebody may have written something else there since.
        if version.description != _WARNING:
            client.update_model_version(version.name, number, _WARNING)
        if _ARCHIVED not in version.tags:
            client.set_model_version_tag(
                version.name, number, _ARCHIVED, "knows, or may know, somebody who was forgotten"
            )
        if purged and DIGEST in version.tags:
            # By a digest guesses of what is deleted could be tested.
            client.delete_model_version_tag(version.name, number, DIGEST)
        self.archived.append(shown)

    def _delete_files(self, run: Run, unwanted: Callable[[str], bool]) -> None:
        """Delete files of models in a run, whether a version names them or not, and look whether they are gone."""
        place = self._open_place(run)

        def find() -> list[str]:
            names = [str(file.path).rpartition("/")[2] for file in place.list_artifacts(_FOLDER)]
            return [name for name in names if _MODEL_ID.fullmatch(name) and unwanted(name)]

        for name in find():
            try:
                place.delete_artifacts(f"{_FOLDER}/{name}")
            except (NotImplementedError, OSError) as refusal:
                self.left.append(f"the file of model {name}: {_shorten(str(refusal))}")
            else:
                self.deleted.append(name)
        for name in set(find()) & set(self.deleted):
            self.deleted.remove(name)
            self.left.append(f"the file of model {name}, which the server did not delete")

    # What is new

    def log_rounds(self, run: Run) -> None:
        """Log the rounds since the last time, and what became of requests: what the journal tells for good."""
        from mlflow.entities import Metric, RunTag

        timeline, told = self._history.timeline, run.data.tags.get(_ROUNDS, "")
        logged = int(told) if told.isdecimal() and len(told) < 10 else 0
        served = sorted(at for filed in timeline.requests if (at := timeline.served_at(filed.number)) is not None)
        new = list(enumerate(self._history.round_entries(), start=1))[logged:]
        for first in range(0, len(new), _ROUNDS_AT_ONCE):
            metrics = []
            for step, entry in new[first : first + _ROUNDS_AT_ONCE]:
                time = int(parse_time(entry.time).timestamp() * 1000)
                before = sum(at < entry.sequence for at in served)
                numbers = {"branch": entry.model_id.branch, "round": entry.model_id.round, "served_requests": before}
                metrics += [Metric(f"rescind.{name}", number, time, step) for name, number in numbers.items()]
            # Together, so that none is there twice.
            self._client.log_batch(run.info.run_id, metrics=metrics, tags=[RunTag(_ROUNDS, str(step))])
        requests = [
            {
                "request": outcome.asked.number,
                "completed": outcome.completed,
                "mode": outcome.mode.value,
                "erased": outcome.erasure.level.value,
            }
            for outcome in self._history.outcomes()
        ]
        if requests:
            self.log_text(run, json.dumps(requests, indent=1), "requests.json")

    def register(self, run: Run, newest: ModelId, path: Path, described: Mapping[str, str]) -> tuple[str, bool]:
        """Return the version that holds the newest model, and whether it had to be registered."""
        for version in self._find_versions([]):
            same = version.name == self._name and version.tags.get(RUN) == self._run_name
            # Of a file that lies elsewhere nobody here has seen what it holds.
            same = same and str(version.source).startswith(f"{run.info.artifact_uri}/{_FOLDER}/")
            if same and version.tags.get(DIGEST) == described[DIGEST] and _ARCHIVED not in version.tags:
                return str(version.version), False
        folder = f"{_FOLDER}/{newest.name}"
        with tempfile.TemporaryDirectory() as scratch:
            # Under one name, whatever it is called here.
            (Path(scratch) / _FILE).symlink_to(path.resolve())
            self._open_place(run).log_artifact(str(Path(scratch) / _FILE), folder)
        self._make_registered_model()
        source = f"{run.info.artifact_uri}/{folder}"
        made = self._client.create_model_version(
            self._name, source, run.info.run_id, tags=dict(described), await_creation_for=0
        )
        return str(made.version), True

    def _make_registered_model(self) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(self._name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def take_back(self, run: Run, newest: ModelId, version: str) -> None:
        """Delete a version that was just made: somebody whom it knows has asked meanwhile."""
        self._client.delete_model_version(self._name, version)
        self._delete_files(run, lambda model: model == newest.name)

    def release(self, version: str, statements: Mapping[bytes, Statement]) -> None:
        """Point the alias to a version, and tag it with its certificates."""
        own = self._client.get_model_version(self._name, version).tags.get(DIGEST)
        for content, statement in statements.items():
            if statement.subject[0].digest.sha256 == own and statement.predicate.mode != Mode.HEURISTIC.value:
                tag = f"{_CERTIFICATE}.{statement.predicate.request}"
                self._client.set_model_version_tag(self._name, version, tag, hashlib.sha256(content).hexdigest())
        self._client.set_registered_model_alias(self._name, ALIAS, version)
