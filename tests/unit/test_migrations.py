"""Migrations that replace others make the same tables as these."""

from __future__ import annotations

import pytest
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration

LOADER = MigrationLoader(None, replace_migrations=False)
REPLACING = [one for one in LOADER.disk_migrations.values() if one.replaces and one.app_label == "tasks_app"]


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
