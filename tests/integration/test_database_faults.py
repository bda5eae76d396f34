"""A database that is locked, full, damaged or silent: one sentence that names it and says what to do (R5)."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url
import psycopg
import pytest
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.db.utils import ConnectionHandler
from django.test import Client

from catherder_site.postgresql.base import BoundedConnection
from tasks_app.models.database_errors import database_failure, explain, is_unavailable
from tests import forkserver, machine
from tests.portal import WebServer


def _manage(data_dir: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"], "CATHERDER_BIND": "127.0.0.1:0"}
    return forkserver.run(["manage.py", *words], {**kept, "CATHERDER_DATA_DIR": str(data_dir), **variables})


@pytest.mark.once(on="sqlite")
def test_commands_say_that_the_file_is_damaged_or_locked_and_what_to_do(tmp_path: Path) -> None:
    WebServer(tmp_path)
    file = tmp_path / "catherder.sqlite3"
    with _locked(file):
        for words in (["answer", "1", "yes"], ["up"]):
            done = _manage(tmp_path, *words, DATABASE_URL=f"sqlite:///{file}?timeout=1")
            assert done.returncode in {1, 2} and "Traceback" not in done.stderr
            assert f"{file} cannot be used: the database is locked; wait until" in done.stderr
    for end in ("-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    file.write_bytes(b"this is no database" * 1000)
    for words in (["status"], ["up"], ["worker"]):
        done = _manage(tmp_path, *words)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert f"{file} cannot be used: the database is damaged; stop the portal and" in done.stderr
    assert file.read_bytes() == b"this is no database" * 1000


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "the disk of the database is full; free some space"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "the database is locked; wait"),
        (sqlite3.SQLITE_IOERR_FSYNC, "the disk of the database cannot be read"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "the database file cannot be written; check the owner"),
    ],
)
def test_each_result_of_sqlite_has_its_sentence(
    code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite")
    driver = sqlite3.OperationalError("in its own words")
    driver.sqlite_errorcode = code
    error = OperationalError("in its own words")
    error.__cause__ = driver
    assert is_unavailable(error)
    said = explain(error)
    assert words in said and "in its own words" in said and str(connection.settings_dict["NAME"]) in said
    if os.sep in str(connection.settings_dict["NAME"]):
        assert os.sep not in explain(error, full_path=False)


def test_a_statement_that_is_wrong_is_no_fault_of_the_database() -> None:
    assert not is_unavailable(ProgrammingError("column x does not exist"))
    driver = sqlite3.OperationalError("no such table: x")
    driver.sqlite_errorcode = sqlite3.SQLITE_ERROR
    error = OperationalError("no such table: x")
    error.__cause__ = driver
    assert not is_unavailable(error)


@pytest.fixture
def without_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection can be had, as when the server is away."""

    def refuse() -> None:
        raise OperationalError("connection timeout expired")

    connection.close()
    monkeypatch.setattr(connection, "ensure_connection", refuse)


@pytest.mark.usefixtures("without_database")
@pytest.mark.parametrize("path", ["/", "/inbox/", "/login/", "/admin/"])
def test_a_page_says_that_the_database_cannot_be_used(path: str) -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "x" * 32
    response = client.get(path)
    assert response.status_code == 503
    assert response["Retry-After"] == "10"
    text = response.content.decode()
    assert "cannot be used" in text and "connection timeout expired" in text
    assert str(Path(str(connection.settings_dict["NAME"])).parent) not in text or os.sep not in str(
        connection.settings_dict["NAME"]
    )


@pytest.mark.usefixtures("without_database")
def test_the_api_says_it_as_a_problem() -> None:
    response = Client(raise_request_exception=False).get(
        "/api/v1/tasks", headers={"Authorization": "Bearer cath_0123456789012345678901234567890123456789"}
    )
    assert response.status_code == 503 and response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body["type"].endswith("#problem-database-unavailable")
    assert "cannot be used" in body["detail"] and response["Retry-After"] == "10"


class Forwarder(threading.Thread):
    """Passes bytes between a client and a server until it is told to keep them, as a host that hangs does."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.silent = threading.Event()
        self._sockets: list[socket.socket] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if not self.silent.is_set():
                    server = socket.create_connection(self._target)
                    self._sockets.append(server)
                    for source, sink in ((client, server), (server, client)):
                        threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self.silent.is_set():
                    sink.sendall(data)

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def forwarder(url: str) -> Iterator[tuple[Forwarder, str]]:
    parts = urlsplit(url)
    passing = Forwarder((parts.hostname or "127.0.0.1", parts.port or 5432))
    passing.start()
    user = f"{parts.username}:{parts.password or ''}@" if parts.username else ""
    try:
        yield passing, parts._replace(netloc=f"{user}127.0.0.1:{passing.port}").geturl()
    finally:
        passing.close()


@pytest.mark.postgres
def test_a_server_that_stops_answering_ends_the_statement_and_the_connection() -> None:
    with forwarder(machine.POSTGRES) as (passing, url):
        conn = BoundedConnection.connect(url)
        conn.answer_seconds = 0.5
        assert conn.execute("select 7").fetchone() == (7,)
        passing.silent.set()
        with pytest.raises(psycopg.OperationalError, match=r"did not answer within 0\.5 s"):
            conn.execute("select 8")
        assert conn.closed


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_ended_on_the_server_as_well() -> None:
    with psycopg.connect(machine.POSTGRES, autocommit=True) as watcher:
        conn = BoundedConnection.connect(machine.POSTGRES)
        conn.answer_seconds = 0.3
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select pg_sleep(600), 'nobody waits for it'")
        sleeping = (
            "select count(*) from pg_stat_activity where query like 'select pg_sleep(600)%%' and state = %s"
        )
        for _ in range(200):
            left = watcher.execute(sleeping, ["active"]).fetchone()
            if left == (0,):
                break
            threading.Event().wait(0.05)
        assert left == (0,)


@pytest.mark.postgres
@pytest.mark.django_db
def test_m3_a_client_that_is_lost_in_a_transaction_keeps_nobody_out(postgres_url: str) -> None:
    """Its host says nothing any more, or it was stopped: the server only sees that no statement comes."""
    databases = {"default": dj_database_url.parse(postgres_url)}
    databases["default"] |= {"ENGINE": "catherder_site.postgresql", "OPTIONS": {"idle_seconds": 0.3}}
    handler = ConnectionHandler(databases)
    lost, other = handler.create_connection("default"), handler.create_connection("default")
    with lost.cursor() as cursor:
        cursor.execute("CREATE TABLE held (owner text)")
        cursor.execute("INSERT INTO held VALUES ('nobody')")
        lost.set_autocommit(False)
        cursor.execute("UPDATE held SET owner = 'lost'")
        with other.cursor() as waiting:
            waiting.execute("UPDATE held SET owner = 'other' WHERE owner = 'nobody'")
            assert waiting.rowcount == 1
        with pytest.raises(DatabaseError) as raised:
            cursor.execute("SELECT 1")
    failure = database_failure(raised.value)
    assert failure and failure.temporary and "idle" in failure.sentence
    for one in (lost, other):
        one.close()


@pytest.mark.postgres
def test_m3_each_connection_of_the_portal_tells_the_server_not_to_wait(
    postgres_url: str, tmp_path: Path
) -> None:
    code = (
        "from django.db import connection\n"
        "cursor = connection.cursor()\n"
        "cursor.execute('SHOW idle_in_transaction_session_timeout')\n"
        "sys.stdout.write(f'{cursor.fetchone()[0]} {connection.get_autocommit()}')"
    )
    env = {"PATH": os.environ["PATH"], "DATABASE_URL": postgres_url, "CATHERDER_DATA_DIR": str(tmp_path)}
    env["DJANGO_SETTINGS_MODULE"] = "catherder_site.settings"
    assert forkserver.run(forkserver.with_django(code), env).stdout == "30s True"


@pytest.mark.postgres
def test_commands_do_not_wait_for_a_server_that_accepts_and_never_answers(
    postgres_url: str, tmp_path: Path
) -> None:
    with forwarder(postgres_url) as (passing, url):
        passing.silent.set()
        for words in (["status"], ["up"]):
            done = _manage(tmp_path, *words, DATABASE_URL=url)
            assert done.returncode == 2
            assert "the database cannot be reached; check that its server runs" in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_migrations_have_no_bound() -> None:
    if connection.vendor != "postgresql":
        return
    with connection.schema_editor():
        assert connection.connection.answer_seconds is None
    connection.connection.answer_seconds = 5
    with connection.schema_editor():
        assert connection.connection.answer_seconds is None
    assert connection.connection.answer_seconds == 5
