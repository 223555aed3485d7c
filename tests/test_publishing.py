"""Models on an MLflow server: what is sent, and what is taken back of models that know the forgotten.

MLflow's own client and store, in this process; ``tests/test_mlflow_server.py`` has a real server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rescind import Exact, History, Rounds, Scratch
from rescind.checkpoints.tensors import save
from rescind.core.edges import ModelId
from rescind.errors import LockedError, PendingRequestError, RegistryError
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.mlflow import Published, _Registry, publish
from rescind.testing.small import simulation
from tests.builders import BUDGET, said

pytest.importorskip("mlflow", reason="`.ci/full mlflow` installs it")
# MLflow's store warns of its own tables, and of what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")


def federation(history: History, clients: int = 4) -> Revocable:
    return Revocable(history, simulation(clients, rate=1.0), seed=b"s")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where MLflow keeps its tables; they are made once, as that takes seconds."""
    return tmp_path_factory.mktemp("mlflow") / "db.sqlite"


@dataclass
class Place:
    """A history, its federation, and an experiment of its own beside the other tests'."""

    folder: Path
    history: History
    federation: Revocable
    client: Any
    address: str

    def publish(self, **options: Any) -> Published:
        self.federation.release(self.folder / "model")
        options = {"name": self.name, "experiment": self.name, "tracking_uri": self.address} | options
        return publish(self.history, self.folder / "model", **options)

    @property
    def name(self) -> str:
        return f"clinics {self.history.identifier}"

    @property
    def files(self) -> set[str]:
        """The models whose files are on the server."""
        return {path.parent.name for path in (self.folder / "artifacts").rglob("model.safetensors")}

    def tags(self, version: str) -> dict[str, str]:
        return dict(self.client.get_model_version(self.name, version).tags)

    def forget(self, client: str, **options: Any) -> None:
        self.history.requests.ask([client], BUDGET)
        self.federation.forget(Scratch(), Rounds(1), **options)


@pytest.fixture
def place(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    address = f"sqlite:///{database}"
    client = MlflowClient(address, address)
    with History(tmp_path / "history") as history:
        made = Place(tmp_path, history, federation(history), client, address)
        client.create_experiment(made.name, (tmp_path / "artifacts").as_uri())
        made.federation.train(Rounds(2))
        yield made


# What is sent


def test_a_released_model_is_registered_once_with_its_tags(place: Place) -> None:
    published = place.publish()
    assert (published.version, published.registered, published.left) == ("1", True, ())
    assert place.publish() == Published(place.name, "1", False, (), (), (), ())
    tags = place.tags("1")
    assert tags.pop("rescind.head") == place.history.head.hex()
    assert tags == {
        "rescind.digest": place.history.digest_of(place.history.newest),
        "rescind.run": place.history.identifier,
        "rescind.model": "0.2",
    }
    assert place.client.get_registered_model(place.name).aliases == {"released": 1}
    (run,) = place.client.search_runs([place.client.get_experiment_by_name(place.name).experiment_id])
    rounds = place.client.get_metric_history(run.info.run_id, "rescind.round")
    assert [(metric.step, metric.value) for metric in rounds] == [(1, 1.0), (2, 2.0)]
    loaded = place.folder / "artifacts" / run.info.run_id / "artifacts" / "models" / "0.2" / "model.safetensors"
    assert loaded.read_bytes() == (place.folder / "model").read_bytes()


def test_nothing_that_is_sent_tells_of_a_client(place: Place, database: Path) -> None:
    place.history.participants.label({"clinic-2": "Clinic of the North"})
    place.publish()
    place.forget("clinic-1")
    place.publish()
    sent = [database.read_bytes()]
    sent += [path.read_bytes() for path in (place.folder / "artifacts").rglob("*") if path.is_file()]
    for text in (b"clinic-1", b"clinic-2", b"clinic-3", b"Clinic of the North"):
        assert not any(text in content for content in sent)
    (run,) = place.client.search_runs([place.client.get_experiment_by_name(place.name).experiment_id])
    assert set(run.data.metrics) == {"rescind.branch", "rescind.round", "rescind.served_requests"}
    (row,) = json.loads(next((place.folder / "artifacts").rglob("requests.json")).read_text())
    assert row.pop("completed")
    assert row == {"request": 1, "mode": "exact", "erased": "purge"}


def test_a_certificate_is_checked_logged_and_tagged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    place.forget("clinic-1")
    place.publish()
    for name in ("key", "other"):
        assert said("key", "new", place.folder / name).exit_code == 0
    certificate, folder = place.folder / "certificate.json", place.folder / "history"
    assert said("certify", folder, 1, "--key", place.folder / "key", "-o", certificate).exit_code == 0
    words = ["publish", folder, place.folder / "model", "--name", place.name, "--experiment", place.name]
    words += ["--tracking-uri", place.address, "--certificate", certificate]
    assert "give the public keys" in said(*words).output
    assert said(*words, "--key", place.folder / "other.pub").exit_code == 12
    done = said(*words, "--key", place.folder / "key.pub", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["registered"] is False
    tags = place.tags("1")
    assert (tags["rescind.mode"], tags["rescind.requests"]) == ("exact", "1")
    (logged,) = (place.folder / "artifacts").rglob("certificates/*.json")
    assert logged.stem == tags["rescind.certificate.1"]
    assert logged.read_bytes() == certificate.read_bytes()


def test_only_the_newest_model_is_published(place: Place) -> None:
    place.federation.release(place.folder / "old")
    place.federation.train(Rounds(3))
    with pytest.raises(ValueError, match=r"old does not hold model 0\.3, the newest model"):
        publish(place.history, place.folder / "old", name=place.name, tracking_uri=place.address)
    with_more = place.history.model(place.history.newest) | place.history.model(ModelId(0, 0))
    extra = next(iter(with_more.values()))
    save(place.history.model(place.history.newest) | {"extra": extra}, place.folder / "more")
    with pytest.raises(ValueError, match="does not hold"):
        publish(place.history, place.folder / "more", name=place.name, tracking_uri=place.address)


# What is taken back


def test_versions_that_know_the_forgotten_are_archived_and_their_files_deleted(place: Place) -> None:
    place.publish()
    place.client.set_registered_model_alias(place.name, "champion", "1")
    place.forget("clinic-1")
    words = ("publish", place.folder / "history", place.folder / "model", "--name", place.name)
    place.federation.release(place.folder / "model")
    done = said(*words, "--experiment", place.name, "--tracking-uri", place.address)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"Version 2 of {place.name} is registered; its alias is released.",
        f"Archived, as they know somebody who was forgotten: {place.name}/1",
        f"Aliases that were taken from them: champion of {place.name}/1, released of {place.name}/1",
        "Deleted: the files of models 0.2",
    ]
    assert place.files == {"1.1"}
    assert place.client.get_registered_model(place.name).aliases == {"released": 2}
    tags = place.tags("1")
    assert "rescind.archived" in tags
    assert "rescind.digest" not in tags
    assert "Do not deploy it" in place.client.get_model_version(place.name, "1").description
    # Somebody gives it an alias again; and somebody else leaves.
    place.client.set_registered_model_alias(place.name, "champion", "1")
    place.forget("clinic-2")
    again = place.publish()
    assert (again.version, again.deleted) == ("3", ("1.1",))
    assert sorted(again.archived) == [f"{place.name}/1", f"{place.name}/2"]
    assert place.client.get_registered_model(place.name).aliases == {"released": 3}
    assert place.files == {"2.1"}
    assert place.tags("3")["rescind.requests"] == "1,2"


def test_at_the_level_output_files_stay_and_nobody_is_pointed_to_them(place: Place) -> None:
    place.publish()
    place.forget("clinic-1", level=ErasureLevel.OUTPUT)
    published = place.publish()
    assert (published.archived, published.deleted) == ((f"{place.name}/1",), ())
    assert place.files == {"0.2", "1.1"}
    place.history.erase(place.history.plan_erasure(ErasureLevel.PURGE))
    assert place.publish().deleted == ("0.2",)


def test_an_old_version_that_knows_nobody_stays(place: Place) -> None:
    history, few = place.history, place.federation
    place.publish()
    place.federation = federation(history, 5)
    place.federation.train(Rounds(4))
    assert place.publish().version == "2"
    history.requests.ask(["clinic-4"], BUDGET)
    place.federation.forget(Exact(), Rounds(0))
    published = place.publish()
    # The same bytes as before it came: that version is released again, and no other is made of it.
    assert (published.version, published.registered) == ("1", False)
    assert published.archived == (f"{place.name}/2",)
    assert place.client.get_registered_model(place.name).aliases == {"released": 1}
    assert place.files == {"0.2"}
    assert few.history is history


def test_nothing_is_published_while_a_request_waits(place: Place) -> None:
    place.publish()
    place.federation.train(Rounds(3))
    place.federation.release(place.folder / "model")
    place.history.requests.ask(["clinic-1"], BUDGET)
    arguments = {"name": place.name, "experiment": place.name, "tracking_uri": place.address}
    with pytest.raises(PendingRequestError, match="request 1 is not served to the end"):
        publish(place.history, place.folder / "model", **arguments)
    place.history.requests.withdraw(1)
    assert publish(place.history, place.folder / "model", **arguments).version == "2"


def test_who_was_forgotten_does_not_wait_for_others_who_wait(place: Place) -> None:
    place.publish()
    place.forget("clinic-1")
    place.federation.release(place.folder / "model")
    place.history.requests.ask(["clinic-2"], BUDGET)
    with pytest.raises(PendingRequestError, match="request 2 is not served to the end"):
        publish(
            place.history, place.folder / "model", name=place.name, experiment=place.name, tracking_uri=place.address
        )
    assert place.client.get_registered_model(place.name).aliases == {}
    assert "rescind.archived" in place.tags("1")
    assert place.files == set()


def test_who_asks_while_a_model_is_registered_is_heeded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    create = MlflowClient.create_model_version

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        with History(place.folder / "history") as other:
            other.requests.ask(["clinic-1"], BUDGET)
        return create(self, *arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_model_version", slow)
    with pytest.raises(PendingRequestError, match="request 1"):
        place.publish()
    assert place.client.search_model_versions(f"name = '{place.name}'") == []
    assert place.files == set()


def test_who_asks_meanwhile_is_heeded_if_the_version_was_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.publish()
    place.client.delete_registered_model_alias(place.name, "released")
    find = _Registry.find_run

    def slow(self: _Registry) -> Any:
        with History(place.folder / "history") as other:
            other.requests.ask(["clinic-1"], BUDGET)
        return find(self)

    monkeypatch.setattr(_Registry, "find_run", slow)
    with pytest.raises(PendingRequestError, match="request 1"):
        place.publish()
    assert place.client.get_registered_model(place.name).aliases == {}


@pytest.mark.parametrize("step", ["set_registered_model_alias", "create_model_version", "log_artifact", "log_batch"])
def test_what_was_cut_off_is_finished_and_not_done_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.tracking import MlflowClient

    owner: Any = LocalArtifactRepository if step == "log_artifact" else MlflowClient
    whole = getattr(owner, step)

    def cut(self: Any, *arguments: Any, **options: Any) -> Any:
        whole(self, *arguments, **options)
        raise ConnectionError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, cut)
        with pytest.raises(ConnectionError):
            place.publish()
    assert place.publish().version == "1"
    assert len(place.client.search_model_versions(f"name = '{place.name}'")) == 1
    (run,) = place.client.search_runs([place.client.get_experiment_by_name(place.name).experiment_id])
    assert len(place.client.get_metric_history(run.info.run_id, "rescind.round")) == 2


def test_an_archiving_that_was_cut_off_is_finished(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    place.publish()
    place.forget("clinic-1")

    def cut(*_: Any, **__: Any) -> None:
        raise ConnectionError("killed")

    for step in ("update_model_version", "set_model_version_tag", "delete_model_version_tag"):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, step, cut)
            with pytest.raises(ConnectionError):
                place.publish()
        # Whatever was cut off, nobody is pointed to it any more.
        assert place.client.get_registered_model(place.name).aliases == {}
    place.publish()
    assert place.files == {"1.1"}
    assert "rescind.archived" in place.tags("1")


# What others do there


def test_a_version_that_somebody_deleted_leaves_no_file(place: Place) -> None:
    place.publish()
    place.client.delete_model_version(place.name, "1")
    assert place.publish().version == "2"
    place.client.delete_model_version(place.name, "2")
    place.forget("clinic-1")
    assert place.publish().deleted == ("0.2",)
    assert place.files == {"1.1"}


def test_a_run_that_somebody_deleted_leaves_no_file(place: Place) -> None:
    place.publish()
    (run,) = place.client.search_runs([place.client.get_experiment_by_name(place.name).experiment_id])
    place.client.delete_run(run.info.run_id)
    place.forget("clinic-1")
    assert place.publish().deleted == ("0.2",)
    assert place.files == {"1.1"}


def test_versions_that_somebody_registered_by_hand(place: Place) -> None:
    place.publish()
    source = place.client.get_model_version(place.name, "1").source
    place.client.create_registered_model(f"other {place.name}")
    # The same file under another name, and one of which nobody here knows anything.
    place.client.create_model_version(
        f"other {place.name}", source, place.client.get_model_version(place.name, "1").run_id
    )
    place.client.set_registered_model_alias(f"other {place.name}", "production", "1")
    place.client.create_model_version(place.name, (place.folder / "elsewhere").as_uri())
    run_id = place.client.get_model_version(place.name, "1").run_id
    place.client.create_model_version(f"other {place.name}", f"runs:/{run_id}/models/0.2", run_id)
    place.forget("clinic-1")
    published = place.publish()
    assert sorted(published.archived) == [f"{place.name}/1", f"other {place.name}/1", f"other {place.name}/2"]
    assert place.client.get_registered_model(f"other {place.name}").aliases == {}
    (left,) = published.left
    assert left == f"version {place.name}/2, which rescind did not register: nobody here can tell whom it knows"


def test_a_version_whose_tags_were_changed_is_not_taken_for_another(place: Place) -> None:
    place.publish()
    place.federation.train(Rounds(3))
    place.publish()
    place.client.set_model_version_tag(place.name, "1", "rescind.digest", place.tags("2")["rescind.digest"])
    place.client.set_model_version_tag(place.name, "1", "rescind.model", "0.999999999")
    assert place.publish().archived == (f"{place.name}/1",)


def test_a_version_with_the_tags_of_another_is_not_released_for_it(place: Place) -> None:
    place.publish()
    place.federation.train(Rounds(3))
    place.publish()
    # Of an older file, and of one that lies elsewhere.
    for tag in ("rescind.model", "rescind.digest"):
        place.client.set_model_version_tag(place.name, "1", tag, place.tags("2")[tag])
    place.client.create_model_version(place.name, (place.folder / "elsewhere").as_uri(), tags=place.tags("2"))
    place.client.delete_model_version(place.name, "2")
    published = place.publish()
    assert (published.version, published.registered, published.archived) == ("4", True, (f"{place.name}/1",))
    assert place.client.get_registered_model(place.name).aliases == {"released": 4}


def test_what_an_archived_version_says_is_put_right_and_true(place: Place) -> None:
    place.publish()
    place.client.create_model_version(place.name, (place.folder / "elsewhere").as_uri(), tags=place.tags("1"))
    place.forget("clinic-1")
    assert len(place.publish().left) == 1
    place.client.update_model_version(place.name, "1", "The best of all. Deploy it.")
    place.publish()
    for version in ("1", "2"):
        description = place.client.get_model_version(place.name, version).description
        assert description.endswith("Do not deploy it.")


def test_what_may_be_claimed_no_more_is_not_claimed_there(place: Place) -> None:
    place.forget("clinic-1")
    place.publish()
    place.federation.train(Rounds(2))
    place.publish()
    with place.federation._recording() as recorder:
        recorder.record_other_mean()
    assert place.publish().version == "2"
    assert [place.tags(version)["rescind.mode"] for version in ("1", "2")] == ["heuristic", "heuristic"]


def test_stages_are_left_too(place: Place) -> None:
    place.publish()
    with pytest.warns(FutureWarning, match="deprecated"):
        place.client.transition_model_version_stage(place.name, "1", "Production")
    place.forget("clinic-1")
    place.publish()
    assert place.client.get_model_version(place.name, "1").current_stage == "Archived"


def test_two_do_not_publish_at_once(place: Place) -> None:
    place.federation.release(place.folder / "model")
    with History(place.folder / "history") as other, other.held(), pytest.raises(LockedError):
        publish(place.history, place.folder / "model", name=place.name, tracking_uri=place.address)


@pytest.mark.parametrize(
    "name", ["", "a/b", "models:/x", "x' OR '1'='1", "\x1b[2J", " x", "x" * 251, "a\nb", '"', "\u202e"]
)
def test_what_cannot_be_a_name_is_refused_before_anything_is_sent(place: Place, name: str) -> None:
    for names in ({"name": name}, {"name": "fine", "experiment": name}):
        with pytest.raises(ValueError, match="cannot be a name there"):
            place.publish(**names)


def test_a_name_may_look_like_markup(place: Place) -> None:
    published = place.publish(name=f"[red]<b>{place.name}<b>")
    assert (published.name, published.version) == (f"[red]<b>{place.name}<b>", "1")


# Servers


@dataclass(frozen=True)
class Redirection:
    """An answer that points elsewhere."""

    address: str


@contextmanager
def answering(answer: Callable[[str], Any]) -> Iterator[str]:
    """Yield the address of a server that answers as it is told, by the request's path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = answer(self.path)
            if isinstance(content, Redirection):
                self.send_response(307)
                self.send_header("Location", content.address)
                content = b""
            else:
                self.send_response(200)
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def a_run(history: History, artifacts: str) -> dict[str, Any]:
    info = {"run_id": "1" * 32, "experiment_id": "1", "artifact_uri": artifacts, "lifecycle_stage": "active"}
    return {"info": info, "data": {"tags": [{"key": "rescind.run", "value": history.identifier}]}}


def told(history: History, artifacts: str, path: str) -> Any:
    if "experiments" in path:
        return {"experiment": {"experiment_id": "1", "name": "rescind", "lifecycle_stage": "active"}}
    if "runs/search" in path:
        return {"runs": [a_run(history, artifacts)]}
    return {}


@pytest.mark.parametrize(
    "artifacts",
    [
        *("", "/etc", "file:///tmp/x", "http://127.0.0.1:1/x", "ftp://127.0.0.1/x", "dbfs:/x", "hdfs://other/x"),
        *("mlflow-artifacts://other/x", "mlflow-artifacts://127.0.0.1:1/x", "mlflow-artifacts:/../x"),
        *(
            "s3://other/x",
            "s3://models",
            "s3://models-of-others/x",
            "s3://models/mlflow-2/x",
            "s3://models/mlflow/../x",
        ),
        *("s3://models/mlflow/%2e%2e/x", "s3://models/mlflow/x?endpoint=other", "gs://models/mlflow/x"),
    ],
)
def test_a_server_does_not_say_where_models_are_written_or_deleted(place: Place, artifacts: str) -> None:
    """Only on itself, and in buckets that the operator named."""
    with (
        answering(partial(told, place.history, artifacts)) as address,
        pytest.raises(RegistryError, match="neither on that server nor in a bucket that you named"),
    ):
        place.publish(tracking_uri=address, experiment="rescind", buckets=["s3://models/mlflow/"])


def test_a_server_has_its_files_on_itself_or_in_a_bucket_that_was_named(place: Place) -> None:
    for artifacts in ("mlflow-artifacts:/x", "mlflow-artifacts://HOST/x", "s3://models/mlflow/x"):
        with answering(partial(told, place.history, "")) as address:
            run = a_run(place.history, artifacts.replace("HOST", address.removeprefix("http://")))["info"]
            _registry(place, address, ["s3://models/mlflow"])._check_place(
                SimpleNamespace(info=SimpleNamespace(**run))
            )


def _registry(place: Place, address: str, buckets: list[str]) -> Any:
    from mlflow.tracking import MlflowClient

    return _Registry(MlflowClient(address, address), place.history, place.name, "rescind", buckets)


@pytest.mark.parametrize(
    "bucket", ["models", "", "file:///x", "http://other/x", "mlflow-artifacts://other", "s3://x/.."]
)
def test_what_is_named_as_a_bucket_is_one(place: Place, bucket: str) -> None:
    with pytest.raises(ValueError, match="is no bucket"):
        place.publish(buckets=[bucket])


@pytest.mark.parametrize("way", ["search", "get", "redirect"])
def test_the_password_and_the_model_go_to_no_other_server(
    place: Place, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Neither by the place that a run is said to have, nor by one that is said later, nor by a redirection."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "operator")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "operators-secret")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    seen: list[str] = []

    def spy(path: str) -> Any:
        seen.append(path)
        return {"files": []}

    with answering(spy) as other:
        there = f"mlflow-artifacts://{other.removeprefix('http://')}/x"

        def lie(path: str) -> Any:
            if way == "redirect" and "mlflow-artifacts/artifacts" in path:
                return Redirection(f"{other}{path}")
            if "model-versions" in path:
                return {"model_version": {"name": place.name, "version": "1", "status": "READY"}}
            if "runs/get" in path:
                return {"run": a_run(place.history, there if way == "get" else "mlflow-artifacts:/x")}
            return told(place.history, there if way == "search" else "mlflow-artifacts:/x", path)

        with answering(lie) as address, suppress(RegistryError):
            place.publish(tracking_uri=address, experiment="rescind")
    assert seen == []


def test_a_server_that_goes_on_and_on_is_not_waited_for(place: Place) -> None:
    def endless(path: str) -> Any:
        version = {"name": place.name, "version": "1", "source": "mlflow-artifacts:/x"}
        page = {"model_versions": [version], "next_page_token": "more"}
        return page if "model-versions/search" in path else told(place.history, "mlflow-artifacts:/x", path)

    with answering(endless) as address, pytest.raises(RegistryError, match="goes on after 100 pages"):
        place.publish(tracking_uri=address, experiment="rescind")


@pytest.mark.parametrize(
    "content", [b"", b"<html>\x1b[2J\xff", b"[]", b"{}", b'{"experiment": 7}', b"null", b"1" * 5000]
)
def test_an_answer_of_no_use_is_told_in_a_sentence(place: Place, content: bytes) -> None:
    place.federation.release(place.folder / "model")
    words = ("publish", place.folder / "history", place.folder / "model", "--name", "x", "--tracking-uri")
    with answering(lambda _: content) as address:
        done = said(*words, address)
    assert done.exit_code == 1, done.output
    assert done.output.startswith("rescind: the MLflow server ")
    assert len(done.output) < 700
    assert "\x1b" not in done.output


def test_a_server_that_is_not_there_is_told_without_the_password(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    place.federation.release(place.folder / "model")
    address = "http://somebody:hunter2@127.0.0.1:9"
    words = ("publish", place.folder / "history", place.folder / "model", "--name", "x", "--tracking-uri", address)
    done = said(*words)
    assert done.exit_code == 1
    assert "Check its address, whether it runs" in done.output
    assert "hunter2" not in done.output
