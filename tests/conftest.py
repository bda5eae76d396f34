"""What all tests share. The environment they run in is put in order in tests/settings.py."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest
from django.core.cache import cache
from django.test import TransactionTestCase
from pytest_django.plugin import DjangoDbBlocker
from servestatic.middleware import ServeStaticMiddleware

from tasks_app.api import limits
from tasks_app.services import exports
from tests import bytecode, cpu_time, databases, machine, rings, static_files
from tests.git_servers import HttpsServer, SshServer, https_server, ssh_server

#: The fixtures by which pytest-django opens the database; others lead to them.
_USE_ROWS = {"db", "transactional_db"}
DATABASE = "postgres" if machine.ON_POSTGRES else "sqlite"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


TransactionTestCase._fixture_teardown = databases.empty_tables  # type: ignore[attr-defined] # private, without a stub
ServeStaticMiddleware.add_files_from_finders = static_files.add_known_files

# No test fails because the machine is busy.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu_time.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    if shown := config.getoption("cpu_seconds"):
        config.pluginmanager.register(cpu_time.CpuTime(shown))
    # What is started in the background, as by `make test &`, ignores Ctrl+C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None) and not sys.dont_write_bytecode:
        bytecode.compile_all(config)
    if machine.ON_POSTGRES and not hasattr(config, "workerinput"):
        reason = machine.MISSING["postgres"]()
        if reason:
            pytest.exit(f"Not run on PostgreSQL: {reason}", returncode=1 if machine.STRICT else 0)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        databases.drop_templates()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a module of which this ring runs nothing: each worker collects all modules."""
    if not collection_path.match("test_*.py"):
        return None
    if machine.RING:
        return None if rings.may_belong(collection_path, machine.RING, DATABASE) else True
    only_rows = machine.ON_POSTGRES and config.option.markexpr == "django_db"
    return True if only_rows and not rings.may_use_rows(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other ring or to the other database."""
    for item in items:
        if _USE_ROWS & set(getattr(item, "fixturenames", ())):
            _mark_as_using_rows(item)
    others = [item for item in items if machine.RING and not rings.belongs(item, machine.RING, DATABASE)]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]


def _mark_as_using_rows(item: pytest.Item) -> None:
    """Give a test that gets the database from a fixture the mark by which runs on PostgreSQL choose."""
    if not rings.may_use_rows(item.path):
        raise pytest.UsageError(
            f"{item.nodeid} gets the database from a fixture. Nothing in its module says so to a run on "
            "PostgreSQL, which would not import it: write `pytestmark = pytest.mark.django_db`."
        )
    if item.get_closest_marker("django_db") is None:
        item.add_marker(pytest.mark.django_db)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the order
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the longest tests, whatever order they had been put in.

    Modules and tests are no garbage: looking for some among them takes up to a second each time.
    """
    session.items.sort(key=lambda item: not rings.begins_early(item.path))
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        missing = machine.MISSING.get(marker.name)
        if missing is not None and (reason := missing()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _strictly((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strictly((yield))


def _strictly(report: Report) -> Report:
    """A skipped test has failed where nothing may be missing. Expected failures stay what they are."""
    if machine.STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped here (CATHERDER_TEST_STRICT). {reason}"
    return report


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database, instead of pytest-django's, which migrates in each worker."""
    with django_db_blocker.unblock():
        configured = databases.set_up()
    yield
    with django_db_blocker.unblock():
        databases.tear_down(configured)


@pytest.fixture(autouse=True)
def no_attempts_counted() -> None:
    """Failed logins of other tests do not count, nor what they sent to the API or did not read to its end."""
    cache.clear()
    limits.counter.cache_clear()
    if any(exports.downloads_under_way.values()):
        gc.collect()  # a response that nobody has read to its end takes a place until it is gone


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The address of an empty database, gone after the test. For tests with the mark `postgres`."""
    with databases.empty_postgres() as url:
        yield url


@pytest.fixture
def redis_url() -> str:
    """The address of a Redis that others use too. For tests with the mark `redis`."""
    return machine.REDIS


@pytest.fixture(scope="module")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repositories that `https` and `ssh` serve."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def https(served_folder: Path) -> Iterator[HttpsServer]:
    """A git server over https whose certificate this process trusts."""
    with https_server(served_folder) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_SSL_CAINFO", str(server.authority))
        patch.setenv("NO_PROXY", "localhost,127.0.0.1")
        patch.setenv("no_proxy", "localhost,127.0.0.1")
        yield server


@pytest.fixture(scope="module")
def ssh(served_folder: Path) -> Iterator[SshServer]:
    """A git server over ssh."""
    with ssh_server(served_folder) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests measured, and which answers arrived at the model: `record_property("measured", …)`."""
    for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())):
        for name, value in getattr(report, "user_properties", ()):
            if name in ("measured", "arrived"):
                terminalreporter.write_line(f"{name.capitalize()}: {value}")
