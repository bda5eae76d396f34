"""Migrations that replace others make the same tables, and none locks out a server of the version before."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations import AddField, AlterField, CreateModel
from django.db.migrations.operations.base import Operation

APP = "tasks_app"
LOADER = MigrationLoader(None, replace_migrations=False)
OWN = [one for (app, _), one in sorted(LOADER.disk_migrations.items()) if app == APP]
REPLACING = [one for one in OWN if one.replaces]


@pytest.mark.parametrize("replacing", REPLACING, ids=lambda one: one.name)
def test_the_models_are_those_of_the_replaced_ones(replacing: Migration) -> None:
    separate = LOADER.project_state([replacing.replaces[-1]])
    at_once = LOADER.project_state([(replacing.app_label, replacing.name)])
    changes = MigrationAutodetector(separate, at_once).changes(LOADER.graph)
    assert not changes.get("tasks_app"), changes["tasks_app"][0].operations
    assert {model for app, model in at_once.models if app == "tasks_app"}


def test_a_new_database_is_made_by_them() -> None:
    assert REPLACING
    graph = MigrationLoader(None).graph
    (leaf,) = graph.leaf_nodes("tasks_app")
    planned = set(graph.forwards_plan(leaf))
    for replacing in REPLACING:
        assert (replacing.app_label, replacing.name) in planned
        assert not planned.intersection(replacing.replaces)


#: Migrations from before this was checked: whoever skips them stops web server and workers for the update.
BEFORE = {
    "0002_a_team_s_portal", "0006_metered_usage", "0007_installation", "0009_faults_that_pass",
    "0010_network", "0011_plans", "0013_what_was_left_out", "0016_publications", "0018_update_from_main",
    "0019_required_approvals", "0030_profile", "0032_pull_requests", "0035_pipeline_publishing",
    "0037_forge_webhooks", "0038_merging", "0041_worker_intake", "0042_pull_requests_from_forks",
    "0045_monthly_budgets", "0046_scheduling",
}  # fmt: skip


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


SEPARATE = [one for one in OWN if not one.replaces]


@pytest.mark.parametrize("separate", SEPARATE, ids=lambda one: one.name)
def test_m3_a_server_of_the_version_before_can_still_insert(separate: Migration) -> None:
    """While an update goes on, it runs beside one that has migrated the database already."""
    required = required_columns(separate)
    if separate.name in BEFORE:
        assert required, f"{separate.name} adds none any more: take it off the list"
    else:
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
    values = {"operations": operations, "dependencies": [(APP, "0048_budgets_of_people")]}
    made: Migration = type("Migration", (Migration,), values)("0099_colours", APP)
    return made
