"""The example with a published network, with its true weights, on a few random images in one process."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

import rescind.flower
from rescind import History
from rescind.core.calibration import Budget
from rescind.core.facts import Mode, PrivacyScope
from rescind.serving import ModelFile
from rescind.testing.grid import InProcessGrid
from rescind.unattended import forget_unattended

EXAMPLE = Path(__file__).parents[1] / "examples" / "pretrained"
# Enough of each class at a client for its line of the sums not to be left out.
CLIENTS, IMAGES, CLASSES = 3, 40, 2
BUDGET = Budget(1.0, 1e-5)


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file with random images, beside the example's package, ready to be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    rng, count = np.random.default_rng(5), CLIENTS * IMAGES
    images, labels = rng.integers(0, 256, (count, 32, 32, 3), np.uint8), np.arange(count) // CLIENTS % CLASSES
    np.savez(tmp_path / "images.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    return tmp_path / "images.npz"


class App:
    """The example's app in this process."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.data = folder, data
        (folder / "cache").mkdir(parents=True)

    def run(self, *clients: int) -> None:
        """Run it with these clients."""
        client, server = (importlib.import_module(f"pretrained.{half}_app") for half in ("client", "server"))
        own = {"data": str(self.data), "cache": str(self.folder / "cache"), "num-partitions": CLIENTS}
        grid = InProcessGrid(client.app, {f"client-{at}": {"partition-id": at, **own} for at in clients})
        config = {"history": str(self.folder / "history"), "model": str(self.folder / "model"), "l2": 1e-4}
        server.main(grid, Context(1, 1, {}, RecordDict(), config | {"clients": len(clients)}))

    @property
    def model(self) -> dict[str, bytes]:
        """The saved model's bits."""
        return {name: tensor.tobytes() for name, tensor in load_file(self.folder / "model").items()}


def test_the_packaged_weights_are_those_that_everybody_agrees_on(data: Path) -> None:
    body, published = (importlib.import_module(f"pretrained.{name}") for name in ("body", "published"))
    assert rescind.flower.digest_body(body.Body()) == published.DIGEST


def test_a_file_of_its_own_is_a_clients_share_in_the_files_order(data: Path, tmp_path: Path) -> None:
    client, body = (importlib.import_module(f"pretrained.{name}") for name in ("client_app", "body"))
    (tmp_path / "withdrawn-0").write_text("1 2 5\n")
    config = {"data": str(data), "cache": str(tmp_path)}
    gone, request = client.withdrawn(config)
    assert (gone, request) == ([2, 5], 1)
    features, labels = client.look(body.Body(), config, "test", gone)
    with np.load(data) as file:
        rows, shown = (np.delete(file[f"{kind}_test"], gone, axis=0) for kind in "xy")
    assert labels.tolist() == shown.tolist()
    alone = rescind.flower.extract_features(body.Body(), body.as_rows(rows))
    assert features.tobytes() == alone.tobytes()


def test_a_client_and_an_image_leave_the_head(data: Path, tmp_path: Path) -> None:
    app, never, other = (App(tmp_path / name, data) for name in ("app", "never", "other"))
    app.run(0, 1, 2)
    with History(tmp_path / "app" / "history") as history:
        history.requests.ask(["client-1"], BUDGET)
        (outcome,), _ = forget_unattended(history, outlet=ModelFile(tmp_path / "app" / "model", history))
    assert outcome.mode is Mode.EXACT
    never.run(0, 2)
    assert app.model == never.model
    with History(tmp_path / "app" / "history") as history:
        history.requests.ask(["client-2"], BUDGET, scope=PrivacyScope.RECORDS)
    (tmp_path / "app" / "cache" / "withdrawn-2").write_text("2 7\n")
    app.run(0, 2)
    (tmp_path / "other" / "cache" / "withdrawn-2").write_text("0 7\n")
    other.run(0, 2)
    assert app.model == other.model != never.model
