"""A test that is run once is run: in one of the rounds of `make test`, and in every run outside of it."""

from __future__ import annotations

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


def test_each_listed_module_exists_and_is_listed_once() -> None:
    listed = [*table.ON_POSTGRES, *table.ON_SQLITE]
    assert [name for name in listed if not (table.TESTS / name).is_file()] == []
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
