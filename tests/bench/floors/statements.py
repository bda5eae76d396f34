"""What the portal asks its database: the statements of a page, to execute them alone; rows of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.portal import UpPortal

_CAPTURE = "from tests.bench.floors.statements import captured; result = captured({username!r}, {paths!r})"


def statements_of(portal: UpPortal, username: str, paths: list[str]) -> dict[str, list[str]]:
    """Return the statements of each page for this user, with their values."""
    found: dict[str, list[str]] = portal.rows(_CAPTURE.format(username=username, paths=paths))
    return found


def captured(username: str, paths: list[str]) -> dict[str, list[str]]:
    from tasks_app.models import User

    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username=username))
    return {path: _of(client, path) for path in paths}


def _of(client: Any, path: str) -> list[str]:
    client.get(path)  # as for the page itself, what is read only once is not counted
    with CaptureQueriesContext(connection) as queries:
        response = client.get(path)
        b"".join(response) if response.streaming else response.content
    assert response.status_code == 200, f"{path}: {response.status_code}"
    return reading(query["sql"] for query in queries.captured_queries)


def reading(statements: Iterable[str]) -> list[str]:
    """Return those of the statements that only read."""
    return [one for one in statements if one.lstrip("( ").upper().startswith(("SELECT", "WITH"))]


@contextmanager
def counting_rows() -> Iterator[list[int]]:
    """Yield a list to which each statement in the block adds how many rows it inserts, changes or removes.

    What triggers do with an index of words is not counted.
    """
    counted: list[int] = []

    def execute(run: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        result = run(sql, params, many, context)
        counted.append(rows_of(sql, context["cursor"].rowcount))
        return result

    with connection.execute_wrapper(execute):
        yield counted


def rows_of(sql: str, rowcount: int) -> int:
    """Return how many rows a statement changes.

    The driver's `rowcount` is not known in SQLite until the ids of inserted rows are fetched.
    """
    match sql.split(maxsplit=1)[0].upper():
        case "INSERT":
            return max(sql.count("), (") + 1, rowcount)
        case "UPDATE" | "DELETE":
            return max(rowcount, 0)
        case _:
            return 0
