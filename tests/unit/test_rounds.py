"""A test that is run once is run: in one of the rounds of `make test`, and in every run outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import machine
from tests import rounds as table

ROUNDS = [(False, "sqlite"), (True, "postgres")]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(machine, "IN_ROUNDS", True)
    monkeypatch.setitem(machine.MISSING, "postgres", lambda: "")
    return monkeypatch


@pytest.mark.parametrize(("on_postgres", "here"), ROUNDS)
def test_each_round_has_its_own(on_postgres: bool, here: str, rounds: pytest.MonkeyPatch) -> None:
    rounds.setattr(machine, "ON_POSTGRES", on_postgres)
    assert [machine.leaves_to_the_other_round(on) for on in ("sqlite", "postgres")] == [
        here != "sqlite",
        here != "postgres",
    ]


def test_without_postgresql_everything_is_run_on_sqlite(rounds: pytest.MonkeyPatch) -> None:
    rounds.setitem(machine.MISSING, "postgres", lambda: "no PostgreSQL")
    rounds.setattr(machine, "ON_POSTGRES", False)
    assert not machine.leaves_to_the_other_round("postgres")


@pytest.mark.parametrize(("on_postgres", "here"), ROUNDS)
def test_a_single_run_leaves_nothing_out(
    on_postgres: bool, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "IN_ROUNDS", False)
    monkeypatch.setattr(machine, "ON_POSTGRES", on_postgres)
    assert not any(machine.leaves_to_the_other_round(on) for on in ("sqlite", "postgres"))


def test_the_database_may_come_from_a_mark_or_a_fixture(tmp_path: Path) -> None:
    """Whole modules were run in no round, because they had the fixture and not the mark."""
    for number, (text, uses) in enumerate(
        [
            ("pytestmark = pytest.mark.django_db", True),
            ("def test_it(transactional_db: None) -> None:", True),
            ("def test_it(runner: Runner) -> None:", True),
            ("def test_it(forerunner: str) -> None:", False),
        ]
    ):
        module = tmp_path / f"test_{number}.py"
        module.write_text(text)
        assert table.may_use_rows(module) is uses, text
    for name in table.ON_POSTGRES:
        assert table.may_use_rows(table.TESTS / name), "it is run there or nowhere"


def test_a_test_that_gets_the_database_from_a_fixture_has_the_mark(
    request: pytest.FixtureRequest,
) -> None:
    rows = {"db", "transactional_db"}
    using = [item for item in request.session.items if rows & set(getattr(item, "fixturenames", ()))]
    assert [item.nodeid for item in using if item.get_closest_marker("django_db") is None] == []


def test_each_listed_module_exists_and_is_listed_once() -> None:
    listed = [*table.ON_POSTGRES, *table.ON_SQLITE]
    assert [name for name in (*listed, *table.BEGUN_FIRST) if not (table.TESTS / name).is_file()] == []
    assert len(listed) == len(set(listed))


def test_no_listed_module_has_a_test_with_a_mark_of_its_own() -> None:
    """The round that a module is not listed for does not even import it."""
    for name in (*table.ON_POSTGRES, *table.ON_SQLITE):
        assert "mark.once" not in (table.TESTS / name).read_text("utf-8"), name


@pytest.mark.parametrize(
    ("module", "database"),
    [("security/test_web.py", "postgres"), ("integration/test_access.py", "sqlite"), ("x/test_y.py", None)],
)
def test_a_module_that_is_not_listed_runs_in_both_rounds(module: str, database: str | None) -> None:
    assert table.only_round(table.TESTS / module) == database


def test_a_test_says_more_precisely_than_its_module_which_database_it_needs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "only_round", lambda module: "sqlite")
    assert table.round_of(request.node) == "sqlite"
    request.node.add_marker(pytest.mark.once(on="postgres"))
    assert table.round_of(request.node) == "postgres"
    request.node.add_marker(pytest.mark.both)
    assert table.round_of(request.node) is None


def test_the_other_round_imports_a_listed_module_for_its_tests_for_both(tmp_path: Path) -> None:
    for text, needed in (("@pytest.mark.both\n", True), ("@pytest.mark.browser\n", False)):
        module = tmp_path / f"test_{needed}.py"
        module.write_text(text)
        assert table.has_tests_for_both(module) is needed


def test_only_listed_modules_have_tests_for_both() -> None:
    """Elsewhere the marker says nothing: all tests there are for both."""
    for module in table.TESTS.rglob("test_*.py"):
        if table.has_tests_for_both(module) and module != Path(__file__):
            assert table.only_round(module) is not None, module


def test_a_run_begins_with_its_longest_tests(request: pytest.FixtureRequest) -> None:
    long = [table.is_long(item.path) for item in request.session.items]
    assert long == sorted(long, reverse=True)
