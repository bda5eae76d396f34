"""Migrations stay as they are, and none locks out a server of the version before."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations import AddField, AlterField, CreateModel
from django.db.migrations.operations.base import Operation

APP = "tasks_app"
LOADER = MigrationLoader(None)
OWN = [one for (app, _), one in sorted(LOADER.disk_migrations.items()) if app == APP]


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_a_migration_imports_no_living_code(one: Migration) -> None:
    """It must do the same for ever. `import` alone is how Django names validators and defaults of fields."""
    tree = ast.parse(Path(sys.modules[one.__module__].__file__ or "").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name.startswith(APP) and name != "tasks_app.migrations._at_once"]


def test_none_is_replaced() -> None:
    """From 0.1.0 on migrations stay."""
    assert not [one.name for one in OWN if one.replaces]


def required_columns(migration: Migration) -> list[str]:
    """Name columns of existing tables that a server of the version before leaves empty, and may not.

    It does not know them, or it knows them as nullable. Django drops the default of a new column again,
    unless it is a `db_default`.
    """
    state = LOADER.project_state(migration.dependencies)
    existing = set(state.models)
    required = []
    for one in migration.operations:
        if isinstance(one, AddField | AlterField) and (APP, one.model_name_lower) in existing:
            fields = state.models[APP, one.model_name_lower].fields
            was_required = isinstance(one, AlterField) and is_required(fields[one.name])
            if is_required(one.field) and not was_required:
                required.append(f"{one.model_name}.{one.name}")
        one.state_forwards(APP, state)
    return required


def is_required(field: models.Field[Any, Any]) -> bool:
    return not (field.null or field.has_db_default() or field.many_to_many)


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_m3_a_server_of_the_version_before_can_still_insert(one: Migration) -> None:
    """While an update goes on, it runs beside one that has migrated the database already."""
    required = required_columns(one)
    assert not required, f"{', '.join(required)}: give each a db_default, or let it be null"


@pytest.mark.parametrize(
    ("fields", "required"),
    [
        ([models.CharField(max_length=5, default="")], ["task.colour"]),
        ([models.CharField(max_length=5, db_default="")], []),
        ([models.DateTimeField(null=True)], []),
        ([models.DateTimeField(null=True), models.DateTimeField()], ["task.colour"]),
        ([models.ManyToManyField("tasks_app.User")], []),
    ],
    ids=["default", "db_default", "null", "null at first", "many to many"],
)
def test_a_column_that_only_django_fills_is_noticed(
    fields: list[models.Field[Any, Any]], required: list[str]
) -> None:
    kinds: list[Any] = [AddField, AlterField]

    def changes(model: str) -> list[Operation]:
        return [kind(model, "colour", field) for kind, field in zip(kinds, fields, strict=False)]

    assert required_columns(migration(*changes("task"))) == required
    table = CreateModel("Shelf", [("id", models.BigAutoField(primary_key=True))])
    assert required_columns(migration(table, *changes("shelf"))) == []


def migration(*operations: Operation) -> Migration:
    values = {"operations": operations, "dependencies": [(APP, "0001_initial")]}
    made: Migration = type("Migration", (Migration,), values)("0099_colours", APP)
    return made
