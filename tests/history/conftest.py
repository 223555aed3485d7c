import os

import pytest
from moto.server import ThreadedMotoServer

from rescind import History
from tests.builders import server

pytest.register_assert_rewrite("tests.history.ledger_suite")


@pytest.fixture
def history(stored_history: History) -> History:
    return stored_history


@pytest.fixture(scope="session")
def postgresql():
    """The address of a real server: CI's, or one that is started here, for each of pytest-xdist's workers."""
    given = os.environ.get("RESCIND_TEST_POSTGRESQL")
    if given:
        yield given
        return
    # It outlives every test, so whether it syncs its own files changes the time only.
    with server({"fsync": "off"}) as address:
        yield address


@pytest.fixture(scope="session")
def endpoint():
    """The address of a real S3 interface, over HTTP."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
