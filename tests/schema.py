"""The schema of a database as lines that can be compared, whatever the order in which it was made."""

from __future__ import annotations

import re

from django.db.backends.base.base import BaseDatabaseWrapper

_SQLITE = "SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
_POSTGRES = (
    """SELECT concat_ws(' ', table_name, column_name, data_type, character_maximum_length, is_nullable,
        column_default, is_identity, generation_expression, collation_name)
        FROM information_schema.columns WHERE table_schema = current_schema()""",
    """SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = current_schema()::regnamespace""",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    """SELECT pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
        WHERE NOT g.tgisinternal AND t.relnamespace = current_schema()::regnamespace""",
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
)


def schema_of(connection: BaseDatabaseWrapper) -> set[str]:
    """Return tables, columns, defaults, constraints, indexes, triggers and functions, one a line."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(_SQLITE)
            return {
                f"{table} {' '.join(part.split())}"
                for table, statement in cursor.fetchall()
                for part in re.split(r', (?=CONSTRAINT |")', statement)
            }
        lines: set[str] = set()
        for query in _POSTGRES:
            cursor.execute(query)
            lines.update(line for (line,) in cursor.fetchall())
        cursor.execute("SELECT current_schema()")
        (own,) = cursor.fetchone()
        return {line.replace(f"{own}.", "") for line in lines}
