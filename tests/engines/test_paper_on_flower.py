"""The paper's SIFU on a network with momentum, as docs/researchers.md has it: by the command line, on Flower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch.nn import functional

import rescind.flower
from rescind import ErasureLevel, History, PaperSifu, Revocable, Rounds
from rescind.certificates.keys import create_key
from rescind.core.calibration import ClassicBudget, reached_epsilon
from rescind.core.facts import Mode
from rescind.simulation import Network
from rescind.testing.grid import InProcessGrid
from tests.builders import everybody, said

NAMES = [f"hospital-{number:02}" for number in range(6)]
NETWORK = Network(1, 18, 3, hidden=8, width=2)


def client_app() -> ClientApp:
    """Return clients that train a small network by torch's SGD with momentum, 5 steps of 20 images."""
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        number = int(context.node_config["partition-id"])
        generator = torch.Generator().manual_seed(number)
        images, labels = torch.randn(100, 1, 18, 18, generator=generator), torch.arange(100) % 3
        net = NETWORK.module()
        net.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        for batch in torch.randperm(100, generator=generator).split(20):
            optimizer.zero_grad()
            functional.cross_entropy(net(images[batch] + labels[batch, None, None, None]), labels[batch]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": 100})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)

    return app


# All of the paper's Table 2.
@pytest.mark.parametrize("sigma", [0.05, 0.1])
def test_three_requests_in_a_row(sigma: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, drawn = tmp_path / "history", {0.05: 0.0625, 0.1: 0.125}[sigma]
    start = {name: tensor.float() for name, tensor in NETWORK.start().items()}
    nodes = {name: {"partition-id": at, "client-id": name} for at, name in enumerate(NAMES)}
    grid = InProcessGrid(client_app(), nodes)
    create_key(tmp_path / "operator.key", "a secret for tests")
    monkeypatch.setenv("RESCIND_PASSPHRASE", "a secret for tests")

    def run() -> None:
        with History(folder) as history:
            options = rescind.flower.Options(capacity=100, level=ErasureLevel.OUTPUT)
            mean = FedAvg(fraction_evaluate=0.0)
            strategy = rescind.flower.Recorded(mean, history, options=options)
            rescind.flower.run(strategy, grid, ArrayRecord(start), num_rounds=6, method=PaperSifu(sigma))

    run()
    for number, name in enumerate(("hospital-01", "hospital-03", "hospital-05"), 1):
        words = ("--scope", "individual", "--epsilon", 10, "--delta", 0.01, "--classic")
        assert "which proves nothing" in said("request", "add", folder, name, *words).output
        run()
        assert "(10, 0.01), classic" in said("request", "list", folder).output
        signed = said(
            "certify", folder, number, "--key", tmp_path / "operator.key", "-o", tmp_path / f"{number}.json"
        )
        assert signed.exit_code == 0, signed.output
        with History(folder, create=False) as history:
            outcome = history.outcomes()[-1]
            assert outcome.restart is not None
            assert outcome.restart.branch.sigma == drawn
            assert outcome.mode in (Mode.HEURISTIC, Mode.EXACT)
            assert outcome.noise or number > 1
            if outcome.noise:
                assert "This is not a certificate" in signed.output
                most = reached_epsilon(ClassicBudget(10.0, 0.01).mu, 0.01)
                assert f"noise of {drawn:g} would hide each of the clients alone" in signed.output
                assert 10 < most < 12
            assert np.isfinite(next(iter(history.model(history.newest).values()))).all()
    for command in ("status", "clients"):
        assert said(command, folder).exit_code == 0
    assert said("report", folder, "-o", tmp_path / "report.html").exit_code == 0


@pytest.mark.parametrize("words", [("--classic",), ("--scope", "individual")])
def test_rows_are_forgotten_without_any_formula_for_noise(words: tuple[str, ...], tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        Revocable(history, everybody(3)).train(Rounds(1))
    result = said("request", "add", tmp_path / "history", "clinic-1", "--records", *words)
    assert result.exit_code != 0
    assert "leave out --classic and --scope" in result.output
