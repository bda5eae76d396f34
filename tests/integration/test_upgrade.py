"""Databases and backups of earlier versions: what 0.1.0 or the last snapshot before it has made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.cli.command import require_tables
from tasks_app.core.errors import BackupError, CatHerderError
from tasks_app.operations import rows
from tasks_app.operations.doctor.services import database
from tasks_app.operations.fitness import worker_problem
from tasks_app.operations.health import IS_SNAPSHOT, LEAVE_SNAPSHOT, SNAPSHOT
from tasks_app.operations.restore import open_backup
from tests.databases import copy_migrated, copy_migrated_to_postgres
from tests.installation import Installation
from tests.upgrade.check import BACKUP

DIFFERENCES = """
from tests.upgrade.check import differences
result = differences()
"""
#: Something that changes rows during an update.
LOSING = """
from django.db.models.signals import pre_migrate
def lose(using, **more):
    Task.objects.using(using).update(title="?")
pre_migrate.connect(lose)
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    """A new installation, whose database has the newest migrations and no rows."""
    if request.param == "sqlite":
        copy_migrated(tmp_path / "data")
        return Installation(tmp_path / "data")
    url = request.getfixturevalue("postgres_url")
    copy_migrated_to_postgres(url)
    return Installation(tmp_path / "data", DATABASE_URL=url)


@pytest.mark.once(on="sqlite")
def test_an_upgrade_from_0_1_0_keeps_rows_and_ends_with_the_schema_of_a_new_installation(
    fresh: Installation,
) -> None:
    assert fresh.rows(DIFFERENCES) == []


@pytest.mark.once(on="sqlite")
def test_a_lost_index_and_a_changed_row_would_be_noticed(tmp_path: Path) -> None:
    copy_migrated(tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / "catherder.sqlite3")) as database:
        database.execute("DROP INDEX delivery_waiting")
    found = Installation(tmp_path / "data").rows(LOSING + DIFFERENCES)
    assert {one.split()[0] for one in found} == {"tasks_app_delivery", "tasks_app.task.title:"}


@pytest.mark.django_db
def test_a_database_of_a_snapshot_is_refused_with_the_way_out() -> None:
    MigrationRecorder(connection).record_applied(*SNAPSHOT)
    with pytest.raises(CommandError, match="restore"):
        call_command("migrate", verbosity=0)
    with pytest.raises(CatHerderError) as refused:
        require_tables()
    assert str(refused.value) == worker_problem() == f"{IS_SNAPSHOT} {LEAVE_SNAPSHOT}"
    (found,) = database()
    assert (found.text, found.advice) == (IS_SNAPSHOT, LEAVE_SNAPSHOT)


@pytest.mark.once(on="sqlite")
def test_up_refuses_a_database_of_a_snapshot(installation: Installation) -> None:
    installation.python(f"""
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
MigrationRecorder(connection).record_applied(*{SNAPSHOT})
""")
    done = installation.manage("up", CATHERDER_BIND="127.0.0.1:0")
    assert done.returncode == 2 and LEAVE_SNAPSHOT in done.stderr, done.stderr


@pytest.mark.once(on="sqlite")
def test_o2_a_backup_of_the_last_snapshot_is_restored(fresh: Installation) -> None:
    """Django adds rows for new tables to it, whose ids come after those of the backup."""
    done = fresh.manage("restore", str(BACKUP))
    assert done.returncode == 0, done.stderr
    assert fresh.manage("status", CATHERDER_USER="admin").returncode == 0
    assert fresh.rows("result = Question.objects.open().count()") == 2


def test_o2_a_backup_of_an_older_snapshot_is_refused() -> None:
    with open_backup(BACKUP) as backup:
        manifest = dict(backup.manifest)
    manifest["migrations"] = [one for one in manifest["migrations"] if tuple(one) != rows.LAST_SNAPSHOT]
    with pytest.raises(BackupError, match="older than the last one"):
        rows.schema_of(manifest)
