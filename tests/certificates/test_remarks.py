"""What a model's file says of itself, and what an auditor makes of it: the tensors count, the remarks are a claim."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from rescind import History
from rescind.checkpoints.tensors import chunks, digest, read, read_remarks, save
from rescind.engines.stops import Rounds
from rescind.errors import DamagedCheckpointError
from rescind.forgetting import Revocable
from rescind.methods import Scratch
from rescind.testing.small import simulation
from rescind.views.models import describe_release
from rescind.views.models import read_remarks as read_own
from tests.builders import BUDGET, said

SMALL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a history, a released model and its certificate."""
    folder = tmp_path_factory.mktemp("made")
    with History(folder / "history") as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        federation.train(Rounds(2))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(1))
        federation.release(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
        assert said("key", "new", folder / "key").exit_code == 0
        signed = said("certify", folder / "history", 1, "--key", folder / "key", "-o", folder / "certificate.json")
    assert signed.exit_code == 0, signed.output
    return folder


def verified(folder: Path, model: str, *more: object) -> Result:
    key = folder / "key.pub"
    return said("verify", folder / "certificate.json", "--key", key, "--model", folder / model, *more)


def rewritten(folder: Path, **changed: str) -> None:
    """Write the released tensors once more, with other remarks."""
    with (folder / "model").open("rb") as file:
        tensors, remarks = dict(read(file)), read_remarks(file)
    save(tensors, folder / "other", remarks | {f"rescind.{name}": text for name, text in changed.items()})


def test_the_safetensors_package_reads_a_released_model_and_its_remarks(made: Path) -> None:
    with History(made / "history") as history, safe_open(made / "model", framework="numpy") as file:
        told, newest = file.metadata(), history.model(history.newest)
        assert {name: file.get_tensor(name).tobytes() for name in file.keys()} == {  # noqa: SIM118
            name: tensor.tobytes() for name, tensor in newest.items()
        }
        head = told.pop("rescind.head")
        history.timeline_at(bytes.fromhex(head))
        assert told == {
            "rescind.digest": digest(newest),
            "rescind.run": history.identifier,
            "rescind.model": "1.1",
            "rescind.requests": "1",
        }


def test_remarks_do_not_change_a_models_digest_nor_what_the_store_holds(made: Path) -> None:
    with History(made / "history") as history, (made / "model").open("rb") as file:
        assert digest(dict(read(file))) == history.kept()[history.newest]
        for name in history.models.digests():
            stored = (made / "history" / "checkpoints" / f"{name}.safetensors").read_bytes()
            assert b"__metadata__" not in stored


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_remarks_are_read_as_they_were_written(remarks: dict[str, str]) -> None:
    data = b"".join(chunks(SMALL, remarks))
    assert read_remarks(io.BytesIO(data)) == remarks
    assert digest(dict(read(io.BytesIO(data)))) == digest(SMALL)


def test_a_file_that_agrees_holds_and_one_without_remarks_does_too(made: Path) -> None:
    with_remarks = verified(made, "model", "--history", made / "history")
    assert with_remarks.exit_code == 0
    assert "the model's file names the same run and the same tensors" in with_remarks.output
    assert "Not checked here" not in with_remarks.output
    with (made / "model").open("rb") as file:
        save(dict(read(file)), made / "bare")
    bare = verified(made, "bare")
    assert bare.exit_code == 0
    assert "names the same run" not in bare.output


@pytest.mark.parametrize(("changed", "other"), [("run", "ab" * 8), ("digest", "cd" * 32)])
def test_right_tensors_that_are_said_to_be_others_verify_and_it_is_told(made: Path, changed: str, other: str) -> None:
    rewritten(made, **{changed: other})
    result = verified(made, "other")
    assert result.exit_code == 0
    told = " ".join(result.output.split())
    assert f"it names another {changed}, {other}. Its tensors count, and they are right" in told
    assert "names the same run" not in told


def test_a_head_of_another_chain_is_told(made: Path) -> None:
    rewritten(made, head="ef" * 32)
    assert f"the head that it names, {'ef' * 32}" in " ".join(
        verified(made, "other", "--history", made / "history").output.split()
    )
    assert "the head that it names" not in verified(made, "other").output


def test_no_remark_makes_other_tensors_the_certified_ones(made: Path) -> None:
    with (made / "model").open("rb") as file:
        tensors, remarks = dict(read(file)), read_remarks(file)
    save({name: tensor + 1 for name, tensor in tensors.items()}, made / "other", remarks)
    result = verified(made, "other")
    assert result.exit_code == 13
    assert "It says of itself that it is model 1.1 of this run, which its tensors are not" in result.output


def test_another_runs_model_is_told_by_its_name(made: Path) -> None:
    with History.in_memory() as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"t")
        federation.train(Rounds(1))
        federation.release(made / "other")
        assert read_own(made / "other") == describe_release(history, history.newest)
        result = verified(made, "other")
        assert result.exit_code == 13
        assert f"says of itself that it is model 0.1 of another run, {history.identifier}" in result.output


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "<b>x</b>", "[red]", "\u202e1.1", "x" * 1_000_000, "", "0x12", "１" * 16, "ab" * 8 + "\n"]
)
def test_remarks_that_rescind_did_not_spell_are_not_shown(made: Path, text: str) -> None:
    rewritten(made, run=text, model=text, digest=text, head=text, requests=text)
    result = verified(made, "other", "--history", made / "history")
    assert result.exit_code == 0
    assert read_own(made / "other") == {}
    assert not text or text not in result.output
    with (made / "other").open("rb") as file:
        tensors, remarks = dict(read(file)), read_remarks(file)
    save({name: tensor + 1 for name, tensor in tensors.items()}, made / "other", remarks)
    assert "says of itself" not in verified(made, "other").output


@pytest.mark.parametrize("remarks", [[], "text", {"rescind.run": 1}, {"rescind.run": ["x"]}, None, {"a": None}, 7])
def test_remarks_that_are_no_table_of_texts_are_refused(made: Path, remarks: Any) -> None:
    header = json.dumps(
        {"__metadata__": remarks, "x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    ).encode()
    content = len(header).to_bytes(8, "little") + header + b"\0"
    with pytest.raises(DamagedCheckpointError, match="not a table of strings"):
        read_remarks(io.BytesIO(content))
    (made / "other").write_bytes(content)
    result = verified(made, "other")
    assert result.exit_code == 13
    assert "not a table of strings" in result.output


def test_remarks_tell_nothing_of_a_client(made: Path) -> None:
    with (made / "model").open("rb") as file:
        remarks = read_remarks(file)
    assert all(re.fullmatch(r"rescind\.[a-z]+", name) for name in remarks)
    assert "clinic" not in json.dumps(remarks)
