"""SQL functions for days and seconds, on both databases."""

from __future__ import annotations

from typing import Any

from django.db.models import DateField, FloatField, Func


class Day(Func):
    """The day of a time in UTC."""

    output_field = DateField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Stored times are text in UTC; a substring is much faster than Django's function.
        return self.as_sql(compiler, connection, template="substr(%(expressions)s, 1, 10)", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) AT TIME ZONE 'UTC')::date"
        return self.as_sql(compiler, connection, template=template, **extra)


class Seconds(Func):
    """The seconds from the second time to the first."""

    output_field = FloatField()
    arity = 2

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) * 86400.0)"
        days = self.copy()
        days.set_source_expressions([Func(one, function="julianday") for one in self.source_expressions])
        return days.as_sql(compiler, connection, template=template, arg_joiner=" - ", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "EXTRACT(EPOCH FROM (%(expressions)s))::float8"
        return self.as_sql(compiler, connection, template=template, arg_joiner=" - ", **extra)
