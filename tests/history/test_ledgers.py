"""The suite of ledgers, on every ledger there is."""

import uuid

import pytest

from rescind.ledger.memory import MemoryLedger
from rescind.ledger.sql import SqlLedger
from tests.history.ledger_suite import LedgerConformance


@pytest.fixture
def opened():
    """All ledgers that a test opened; they are closed at its end."""
    ledgers = []
    yield ledgers
    for ledger in ledgers:
        ledger.close()


class TestMemoryLedger(LedgerConformance):
    @pytest.fixture
    def open_ledger(self):
        ledger = MemoryLedger()
        return lambda: ledger


class TestSqlite(LedgerConformance):
    @pytest.fixture
    def open_ledger(self, tmp_path, opened):
        def open_ledger():
            opened.append(SqlLedger.sqlite(tmp_path / "run.db", tmp_path / "secret", create=not opened))
            return opened[-1]

        return open_ledger


class TestPostgresql(LedgerConformance):
    @pytest.fixture
    def open_ledger(self, postgresql, opened, tmp_path):
        run = f"test_{uuid.uuid4().hex}"

        def open_ledger():
            opened.append(SqlLedger.postgresql(postgresql, run, tmp_path / "secret", create=not opened))
            return opened[-1]

        return open_ledger
