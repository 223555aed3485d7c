"""The nginx of docs/deployment.md in front of Flower's own SuperLink: who gets through, and what ``doctor`` says."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest
import uvicorn
from click.testing import Result
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from typer.testing import CliRunner

from benchmarks._documented import configure_nginx, find_nginx
from benchmarks._federation import free_port, is_open, make_certificates
from rescind.cli import app as command_line
from rescind.cli.exposure import Exposure, judge_exposure

needs_nginx = pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed; the gate has it")
ACTIVATE, LIST = "/v1/fleet/activate-node", "/v1/control/list-nodes"
REFUSED = 403


@contextmanager
def served(app: FastAPI, folder: Path) -> Iterator[int]:
    """Serve an app with TLS on loopback, and give its port."""
    port = free_port()
    key, certificate = folder / "server.key", folder / "server.pem"
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, ssl_keyfile=key, ssl_certfile=certificate, log_level="error", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(port)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


def wait_for(port: int) -> None:
    end = monotonic() + 30
    while not is_open(port):
        assert monotonic() < end
        sleep(0.02)


@dataclass(frozen=True)
class Place:
    """A SuperLink's port, the one that nginx has in front of it, and all paths that the SuperLink knows."""

    folder: Path
    superlink: int
    proxy: int
    paths: frozenset[str]

    def ask(self, port: int, path: str, method: str = "POST") -> int:
        """Return the answer to somebody without a key; a request that says no content type does nothing."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
        connection.request(method, path, b"")
        try:
            return connection.getresponse().status
        finally:
            connection.close()

    def doctor(self, port: int, *words: str) -> Result:
        given = ["doctor", "--superlink", f"127.0.0.1:{port}", "--root-certificates", str(self.folder / "ca.crt")]
        return CliRunner().invoke(command_line, [*given, *words])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from flwr.superlink.main import create_app

    folder = tmp_path_factory.mktemp("proxy")
    make_certificates(folder)
    app = create_app()
    paths = frozenset(str(each.path) for each in iter_route_contexts(app.routes) if each.path)
    with served(app, folder) as superlink:
        proxy = free_port()
        if find_nginx() is None:
            yield Place(folder, superlink, 0, paths)
            return
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(configure_nginx(folder, proxy, superlink), stderr=log) as nginx,
        ):
            wait_for(proxy)
            try:
                yield Place(folder, superlink, proxy, paths)
            finally:
                nginx.terminate()


@needs_nginx
def test_nginx_passes_on_what_supernodes_with_keys_call_and_nothing_else(place: Place) -> None:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    # A node that has no key registers itself; these have one, and are registered by the operator.
    called = {f"/v1/fleet/{spell(name)}" for name in vars(FleetHttpClient) if name[0].isupper()}
    wanted = called - {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
    assert len(wanted) == 10
    assert called <= place.paths
    assert {LIST, "/v1/control/start-run", "/v1/runtime/acquire-task", "/openapi.json", "/health"} <= place.paths
    reached = {path for path in place.paths if place.ask(place.proxy, path) != REFUSED}
    assert reached == wanted
    # The SuperLink itself would have answered.
    assert {place.ask(place.superlink, path) for path in (ACTIVATE, LIST)} == {415}


def spell(method: str) -> str:
    return "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in method).strip("-")


@needs_nginx
@pytest.mark.parametrize(
    "path",
    [
        f"{ACTIVATE}/../../control/list-nodes",
        f"{ACTIVATE}%2f..%2f..%2fcontrol%2flist-nodes",
        f"{ACTIVATE}/..;/../control/list-nodes",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "//v1/control/list-nodes",
        f"{LIST}%0a",
        f"{ACTIVATE}%0a",
        f"{ACTIVATE}x",
        f"x{ACTIVATE}",
        "/V1/CONTROL/LIST-NODES",
        f"{LIST}?{ACTIVATE}",
        f"{LIST}%3f/../../..{ACTIVATE}x",
    ],
)
def test_no_spelling_of_a_path_leads_elsewhere(path: str, place: Place) -> None:
    assert place.ask(place.proxy, path) in (REFUSED, 400)


@needs_nginx
def test_a_path_that_leads_to_a_permitted_one_is_passed_on_as_that_one(place: Place) -> None:
    """What nginx takes for a permitted path is written anew, so that the SuperLink reads no other one in it."""
    assert place.ask(place.proxy, f"{LIST}/../..{ACTIVATE.removeprefix('/v1')}") == 415
    assert place.ask(place.proxy, f"{ACTIVATE}?path={LIST}") == 415
    assert place.ask(place.proxy, ACTIVATE, "GET") == REFUSED


@needs_nginx
def test_doctor_finds_nothing_behind_the_proxy(place: Place) -> None:
    result = place.doctor(place.proxy)
    assert (result.exit_code, result.output.count("only what SuperNodes need can be reached")) == (0, 1)


def test_doctor_fails_if_it_can_list_nodes(place: Place) -> None:
    result = place.doctor(place.superlink)
    assert result.exit_code == 1
    assert " repair  SuperLink 127.0.0.1:" in result.output
    assert "it lists its nodes to whoever asks" in result.output
    assert "docs/deployment.md" in result.output
    assert place.doctor(place.superlink, "--json").exit_code == 1


def test_doctor_does_not_call_fine_what_it_could_not_try(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_certificates(tmp_path / "other")
    port = str(place.superlink)
    for words, reason in [
        (["--superlink", f"127.0.0.1:{free_port()}"], "refused"),
        (["--superlink", "127.0.0.1"], "no address"),
        (["--superlink", "127.0.0.1:99999"], "no address"),
        (["--superlink", "https://127.0.0.1:9090"], "no address"),
        (["--superlink", "127.0.0.1:1\x1b[2J"], "no address"),
        (["--superlink", f"127.0.0.1:{port}"], "self-signed certificate|CERTIFICATE_VERIFY_FAILED"),
        (
            ["--superlink", f"127.0.0.1:{port}", "--root-certificates", f"{tmp_path}/other/ca.crt"],
            "CERTIFICATE_VERIFY",
        ),
        (["--superlink", f"127.0.0.1:{port}", "--root-certificates", f"{tmp_path}/none"], "No such file"),
    ]:
        result = CliRunner().invoke(command_line, ["doctor", *words])
        assert result.exit_code == 1, words
        assert any(each in result.output for each in reason.split("|")), result.output
        assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("fleet", "control", "runtime", "verdict"),
    [
        (415, 200, 415, "repair"),
        (401, 200, 403, "repair"),
        (415, 403, 403, "fine"),
        (415, 404, 404, "fine"),
        (415, 403, 415, "repair"),
        (415, 401, 403, "note"),
        (415, 401, 415, "repair"),
        (415, 500, 403, "repair"),
        (404, 404, 404, "repair"),
        (403, 403, 403, "repair"),
        (200, 403, 403, "repair"),
    ],
)
def test_only_a_superlink_that_refuses_the_rest_is_fine(fleet: int, control: int, runtime: int, verdict: str) -> None:
    found, words = judge_exposure(Exposure(fleet, control, runtime))
    assert found == verdict
    assert words
