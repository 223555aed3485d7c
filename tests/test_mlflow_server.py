"""Publishing to a real MLflow server, as operators have one. Its package is large: `.ci/full mlflow` installs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from rescind import History, Rounds, Scratch
from rescind.checkpoints.tensors import digest, read
from rescind.cli import app
from rescind.forgetting import Revocable
from rescind.mlflow import publish
from rescind.testing.small import simulation
from tests.builders import BUDGET


def has_server() -> bool:
    try:
        distribution("mlflow")
    except PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not has_server(), reason="MLflow's server is not installed: pip install mlflow"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{tmp_path}/db.sqlite"]
    words += ["--artifacts-destination", str(tmp_path / "artifacts")]
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(
            words, stdout=log, stderr=log, env=os.environ | settings, start_new_session=True, cwd=tmp_path
        )
    try:
        for _ in range(600):
            assert started.poll() is None, (tmp_path / "log").read_text()
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        # With the processes that it started itself.
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def test_a_forgotten_clients_versions_are_gone_from_a_real_server(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    with History(tmp_path / "history") as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        federation.train(Rounds(2))
        federation.release(tmp_path / "model")
        assert publish(history, tmp_path / "model", name="clinics").registered
        assert not publish(history, tmp_path / "model", name="clinics").registered
        client.set_registered_model_alias("clinics", "champion", "1")
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(1))
        federation.release(tmp_path / "model")
        newest = history.digest_of(history.newest)
    words = ["publish", tmp_path / "history", tmp_path / "model", "--name", "clinics", "--tracking-uri", server]
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    assert "Version 2 of clinics is registered" in done.output
    assert "Deleted: the files of models 0.2" in done.output
    assert [path.parent.name for path in (tmp_path / "artifacts").rglob("*.safetensors")] == ["1.1"]
    assert client.get_registered_model("clinics").aliases == {"released": "2"}
    folder = download_artifacts("models:/clinics@released")
    with (Path(folder) / "model.safetensors").open("rb") as file:
        assert digest(dict(read(file))) == newest
    for address in ("models:/clinics@champion", "models:/clinics/1"):
        with pytest.raises((MlflowException, OSError)):
            download_artifacts(f"{address}/model.safetensors")
    assert b"clinic-1" not in (tmp_path / "db.sqlite").read_bytes()
