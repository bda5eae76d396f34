"""How a JSON model is read from a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field, ValidationError

from tasks_app.schemas.base import Out


class Person(Out):
    name: str = Field(validation_alias="shown_name")


class Note(Out):
    id: int = Field(validation_alias="pk")
    project: str | None = Field(validation_alias="task.project.name")
    #: Each is read from the attribute that the other one is called by.
    author: str = Field(validation_alias="by")
    by: Person | None = Field(validation_alias="author")
    length: int
    kept: bool = False

    @staticmethod
    def resolve_length(row: Any) -> int:
        return len(row.text)


class Notes(Out):
    items: list[Note]


def row(**changed: Any) -> SimpleNamespace:
    task = SimpleNamespace(project=SimpleNamespace(name="shop"))
    ann = SimpleNamespace(shown_name="Ann")
    return SimpleNamespace(**{"pk": 7, "task": task, "by": "Ann", "author": ann, "text": "abc", **changed})


def test_a_field_is_an_attribute_a_path_or_what_its_resolver_returns() -> None:
    facts = Note.from_row(row()).model_dump()
    by = {"name": "Ann"}
    assert facts == {"id": 7, "project": "shop", "author": "Ann", "by": by, "length": 3, "kept": False}


def test_a_path_ends_at_none() -> None:
    made = Note.from_row(row(task=None, author=None))
    assert (made.project, made.by) == (None, None)


def test_a_field_with_a_default_is_not_read_and_what_is_given_comes_first() -> None:
    assert not Note.from_row(row(kept=True)).kept
    made = Note.from_row(SimpleNamespace(pk=7, task=None, by="", author=None), length=9, kept=True)
    assert (made.length, made.kept) == (9, True)


def test_rows_in_a_field_become_models_and_models_stay() -> None:
    made = Note.from_row(row())
    assert Notes.from_row(SimpleNamespace(items=(row(), made))).items == [made, made]
    assert Notes(items=[made]).items[0] is made


def test_a_row_that_lacks_an_attribute_is_refused() -> None:
    with pytest.raises(AttributeError):
        Note.from_row(SimpleNamespace(pk=7))
    with pytest.raises(ValidationError):
        Note.from_row(row(pk=None))
