"""What an upgrade from 0.1.0 changes that it should not. Runs beside a new installation's database."""

from __future__ import annotations

import json
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks_app.operations import new_database, rows
from tasks_app.operations.archive import MANIFEST, SUMMARY
from tasks_app.operations.restore import Verified, open_backup
from tests.schema import schema_of

#: A backup of the last snapshot, whose schema is that of 0.1.0: a rehearsal with two waiting tasks, and a row
#: in each other table.
BACKUP = Path(__file__).with_name("snapshot.tar.gz")
#: What an upgrade may change, as (table, column). The changelog says why.
CHANGED: frozenset[tuple[str, str]] = frozenset({("tasks_app.indexedanswer", "words")})
#: Tables that an upgrade may drop.
DROPPED = frozenset({"tasks_app.span", "tasks_app.notedhop"})
#: Tables in which Django adds rows for each new table.
GROWING = frozenset({"contenttypes.contenttype", "auth.permission"})
_STAMP = "20261126-150000"

Rows = dict[str, list[dict[str, Any]]]


def differences() -> list[str]:
    """Make a database as 0.1.0 did, migrate it, and compare schema and rows."""
    with tempfile.TemporaryDirectory() as folder, open_backup(BACKUP) as backup:
        try:
            with new_database.new_database(Path(folder), _STAMP) as made:
                before = _load(made, backup)
                call_command("migrate", database=made.alias, verbosity=0)
                schema = sorted(schema_of(made) ^ schema_of(connection))
                return [*schema, *_changed(before, _rows_of(made.alias))]
        finally:
            new_database.drop_new_database(_STAMP)


def _load(made: BaseDatabaseWrapper, backup: Verified) -> Rows:
    """Load the rows of the backup. Return them."""
    loader = rows.Loader(made, backup.manifest, new_data_dir=Path(backup.manifest["data_dir"]))
    members = (one for one in backup.reader.members() if one[0] not in (MANIFEST, SUMMARY))
    found: Rows = {}
    with loader.transaction():
        for (kind, label), parts in groupby(members, key=lambda one: tuple(one[0].split("/")[:2])):
            if kind == "rows":
                data = [part for _, part in parts]
                assert loader.load(label, data), f"no row of {label}"
                found[label] = _parsed(backup.manifest["fields"][label], b"".join(data).splitlines())
        rows.set_last_ids(made, backup.summary["last_numbers"])
    return found


def _rows_of(alias: str) -> Rows:
    return {
        model._meta.label_lower: _parsed(
            [field.attname for field in rows.fields_of(model)], rows.dump_rows(model, alias=alias)
        )
        for model in rows.dumped_models()
    }


def _parsed(names: list[str], lines: Any) -> list[dict[str, Any]]:
    return [dict(zip(names, json.loads(line), strict=True)) for line in lines]


def _changed(before: Rows, after: Rows) -> list[str]:
    changed = []
    for label, found in before.items():
        if label not in after and label in DROPPED:
            continue
        kept = after[label][: len(found)] if label in GROWING else after[label]
        if len(kept) != len(found):
            changed.append(f"{label}: {len(found)} rows, then {len(kept)}")
            continue
        for old, new in zip(found, kept, strict=True):
            changed += [
                f"{label}.{name}: {old[name]!r}, then {new[name]!r}"
                for name in old.keys() & new.keys()
                if new[name] != old[name] and (label, name) not in CHANGED
            ]
    return changed
