"""What clients fail with: what the server shows of it, when a run ends by it, and what is no failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Budget, History
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.engines.complaints import Complaint, recognise
from rescind.engines.rows import check_row, find_left_out, to_numpy
from rescind.flower.server.grid import describe
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from tests.builders import rounds_of
from tests.recording import wrap

CLINICS = federation(3).shards
Load = Callable[[str], tuple[Any, ...]]


def rows(name: str) -> tuple[Any, Any]:
    return CLINICS[name].features, CLINICS[name].labels


def grid(load: Load, names: list[str] | None = None, **options: Any) -> InProcessGrid:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        return rescind.flower.train_head(msg, context, *load(str(context.node_config["client-id"])), **options)

    return InProcessGrid(app, {name: {"client-id": name} for name in names or CLINICS})


def run(history: History, on: InProcessGrid, rounds: int = 3, **options: Any) -> None:
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
    mean = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = wrap(mean, history, training=TRAINING, seed=b"a seed for tests")
    rescind.flower.run(strategy, on, arrays, num_rounds=rounds, **options)


# What is shown


def test_the_first_failure_of_a_kind_is_shown_and_the_others_are_counted(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(name: str) -> tuple[Any, Any]:
        if name == "clinic-0":
            raise KeyError("Jane Roe")
        return rows(name)[0][:, :1], rows(name)[1]

    on = grid(wrong)
    with caplog.at_level("INFO", "flwr"), pytest.raises(ValueError, match="could be used") as ended:
        run(history, on, 9)
    shown = 'ValueError, "features are ..., ...; the head takes (n, ...), floating point"'
    assert caplog.text.count(f"client 'clinic-1' failed: {shown}. Its SuperNode's log says more") == 1
    assert caplog.text.count("client 'clinic-0' failed: KeyError.") == 1
    assert caplog.text.count("failed: ") == 2
    assert "with 0 of 3 clients that were drawn (0 rejected, 3 failed, 0 silent)" in caplog.text
    assert f"6 x {shown}; 3 x KeyError. The SuperNodes' logs say more." in str(ended.value)
    assert "declared=True" not in str(ended.value)
    assert "Jane" not in caplog.text + str(ended.value)


REASONS = {
    "<class 'ValueError'>:<'features hold numbers that are not finite'>": f'ValueError, "{Complaint.NOT_FINITE}"',
    "<class 'flwr.x.ClientAppException'>:<'\nMessage: labels are (3,), float32; there have to be 3 integers'>": (
        'error code 2, "labels are ..., ...; there have to be ... integers"'
    ),
    "<class 'ZeroDivisionError'>:<'Jane Roe'>": "ZeroDivisionError",
    "<class 'JaneRoe'>:<'x'>": "error code 2",
    "<class 'open'>:<'x'>": "error code 2",
    "ValueError: No train function registered with name 'default'": "its ClientApp has no @app.train()",
    "": "error code 2",
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_failure_is_told_in_words_of_our_own(reason: str) -> None:
    assert describe(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason)) == REASONS[reason]


def test_an_app_that_cannot_be_loaded_is_told_by_its_code() -> None:
    error = Error(code=ErrorCode.LOAD_CLIENT_APP_EXCEPTION, reason="Jane Roe")
    assert describe(error) == "its ClientApp could not be loaded"


@pytest.mark.parametrize("complaint", Complaint)
def test_every_message_of_ours_is_known_again(complaint: Complaint) -> None:
    values = ["(3, 4)"] * complaint.count("{}")
    assert recognise(f"before {complaint.error(*values)} after") is complaint
    assert recognise(str(complaint.error(*values)).replace(" ", "")) is None


# When a run ends


def participants(history: History) -> list[int]:
    return [len(each.clients) for each in rounds_of(history, 0, 1, history.newest.round)]


@pytest.mark.parametrize("names", [["clinic-0"], ["clinic-0", "clinic-1"]])
def test_three_rounds_in_vain_end_a_run_though_they_were_the_last(history: History, names: list[str]) -> None:
    """They are recorded, and not made again."""
    with pytest.raises(ValueError, match=r"the last 3 rounds could be used.*ask for more rounds"):
        run(history, grid(lambda _: (None, None), names), 3)
    assert participants(history) == [0, 0, 0]
    run(history, grid(rows, names), 5)
    assert participants(history) == [0, 0, 0, len(names), len(names)]


def test_who_has_left_and_is_connected_does_not_keep_a_run_from_ending(history: History) -> None:
    names = ["clinic-0", "clinic-1"]
    run(history, grid(rows, names), 1)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match="could be used"):
        run(history, grid(lambda _: (None, None), names), 9)


def test_other_code_is_told_what_it_lacks(history: History) -> None:
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = msg.content.array_records["arrays"]
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 3})}), reply_to=msg)

    with pytest.raises(
        ValueError, match=r"6 x it does not say that our helper executed.*is it Options.declared=True"
    ):
        run(history, InProcessGrid(app, {"a": {}, "b": {}}))


# Tensors


class OnDevice:
    """Behaves as a CUDA tensor does: it is no array before it is on the CPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype

    def detach(self) -> OnDevice:
        return OnDevice(self.tensor.detach())

    def cpu(self) -> torch.Tensor:
        return self.tensor

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def in_torch(name: str) -> tuple[Any, Any]:
    features, labels = rows(name)
    return torch.tensor(features, requires_grad=True), torch.tensor(labels)


def on_device(name: str) -> tuple[Any, Any]:
    features, labels = in_torch(name)
    return OnDevice(features), OnDevice(labels)


@pytest.mark.parametrize("options", [{}, {"solve": True}])
@pytest.mark.parametrize("load", [in_torch, on_device])
def test_tensors_train_and_solve_as_arrays_do(history: History, load: Load, options: dict[str, Any]) -> None:
    run(history, grid(load), **options)
    with History.in_memory() as other:
        run(other, grid(rows), **options)
        assert history.newest == other.newest != ModelId(0, 0)
        for name, tensor in other.model(other.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)


@pytest.mark.parametrize("removed", [torch.tensor([0, 1]), OnDevice(torch.arange(len(rows("clinic-0")[1])) < 2)])
def test_rows_can_be_named_by_a_tensor(history: History, removed: Any) -> None:
    run(history, grid(in_torch, ["clinic-0"]), 1)
    history.requests.ask(["clinic-0"], Budget(1.0, 1e-5), scope=PrivacyScope.RECORDS)
    run(history, grid(in_torch, ["clinic-0"], removed=removed, request=1), 1)
    (round_,) = rounds_of(history, 1, 1, 1)
    assert round_.participants["weight"].tolist() == [len(rows("clinic-0")[1]) - 2]


def test_what_is_no_array_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"features cannot be made .* Tensor of torch\.bfloat16"):
        to_numpy(torch.zeros(2, dtype=torch.bfloat16), "features")
    with pytest.raises(ValueError, match="features cannot be made a numpy array of numbers: it is a NoneType"):
        to_numpy(None, "features")
    with pytest.raises(ValueError, match="removed cannot be made"):
        find_left_out([[1], [1, 2]], 4)
    assert not check_row("0" * 64, 1, {"salt": "00", "place": 0, "path": []}, None, 1)  # type: ignore[arg-type]
