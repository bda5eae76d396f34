"""Both rings together run each test, on each database that it needs, once."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import machine, rings

EVERYWHERE = list(product(("test", "long"), rings.DATABASES))


@pytest.fixture(autouse=True)
def with_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine.MISSING, "postgres", lambda: "")
    monkeypatch.setattr(rings, "LONG", ("a/test_long.py",))
    monkeypatch.setattr(rings, "BOTH", ("a/test_both.py",))
    monkeypatch.setattr(rings, "ON_SQLITE", ("a/test_one.py",))


def test_of(module: str, *marks: pytest.MarkDecorator) -> Any:
    found = {one.mark.name: one.mark for one in marks}
    return SimpleNamespace(path=rings.TESTS / module, get_closest_marker=found.get)


test_of.__test__ = False  # type: ignore[attr-defined]
once, both, long = pytest.mark.once, pytest.mark.both, pytest.mark.long
TEST, LONG = ("test", "sqlite"), ("long", "sqlite")
TEST_PG, LONG_PG = ("test", "postgres"), ("long", "postgres")


@pytest.mark.parametrize(
    ("test", "places"),
    [
        (test_of("a/test_it.py"), [TEST, LONG_PG]),
        (test_of("a/test_it.py", both), [TEST, TEST_PG]),
        (test_of("a/test_it.py", long), [LONG, LONG_PG]),
        (test_of("a/test_it.py", once(on="sqlite")), [TEST]),
        (test_of("a/test_it.py", once(on="postgres")), [TEST_PG]),
        (test_of("a/test_both.py"), [TEST, TEST_PG]),
        (test_of("a/test_both.py", long), [LONG, LONG_PG]),
        (test_of("a/test_one.py"), [TEST]),
        (test_of("a/test_one.py", both), [TEST, TEST_PG]),
        (test_of("a/test_long.py"), [LONG, LONG_PG]),
        (test_of("a/test_long.py", once(on="postgres")), [LONG_PG]),
    ],
)
def test_each_test_runs_once_on_each_database_that_it_needs(test: Any, places: list[tuple[str, str]]) -> None:
    found = [(ring, database) for ring, database in EVERYWHERE if rings.belongs(test, ring, database)]
    assert sorted(found) == sorted(places)


def test_without_postgresql_what_needs_only_that_runs_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine.MISSING, "postgres", lambda: "no PostgreSQL")
    assert rings.belongs(test_of("a/test_it.py", once(on="postgres")), *TEST)


def test_no_module_is_left_out_of_which_a_test_is_run(request: pytest.FixtureRequest) -> None:
    """`may_belong` decides by the text of a module, before it is imported."""
    for item in request.session.items:
        for ring, database in EVERYWHERE:
            uses_rows = item.get_closest_marker("django_db") is not None or database == "sqlite"
            if uses_rows and rings.belongs(item, ring, database):
                assert rings.may_belong(item.path, ring, database), (item.nodeid, ring, database)


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
        assert rings.may_use_rows(module) is uses, text


def test_a_test_that_gets_the_database_from_a_fixture_has_the_mark(
    request: pytest.FixtureRequest,
) -> None:
    rows = {"db", "transactional_db"}
    using = [item for item in request.session.items if rows & set(getattr(item, "fixturenames", ()))]
    assert [item.nodeid for item in using if item.get_closest_marker("django_db") is None] == []


def test_each_listed_module_exists_and_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert rings.LONG and rings.BOTH
    listed = [*rings.LONG, *rings.BOTH, *rings.ON_SQLITE, *rings.BEGUN_FIRST]
    assert [name for name in listed if not (rings.TESTS / name).is_file()] == []
    assert all(len(names) == len(set(names)) for names in (rings.LONG, rings.BOTH, rings.ON_SQLITE))
    assert not set(rings.BOTH) & {*rings.LONG, *rings.ON_SQLITE}


def test_a_run_begins_with_its_longest_tests(request: pytest.FixtureRequest) -> None:
    early = [rings.begins_early(item.path) for item in request.session.items]
    assert early == sorted(early, reverse=True)
