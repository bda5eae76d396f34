"""Files that are taken away: no spreadsheet runs what an agent wrote, and a token keeps to its projects."""

from __future__ import annotations

import csv
import gc
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import QueryDict

from tasks_app.core.errors import WorkspaceError
from tasks_app.models import Action, AuditEntry, Run, Scope
from tasks_app.permissions import Principal
from tasks_app.services import exports
from tasks_app.services.accounts import make_token
from tasks_app.services.exports import MAX_PATCHES, csv_lines, download_patch
from tasks_app.services.list_filters import ListFilters
from tasks_app.services.usage.usage import in_visible_projects
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import QuestionFactory, TaskFactory, UserFactory
from tests.people import acting

FORMULAS = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "\uff201", "a;=1+1", 'a";=1']


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_no_cell_begins_a_formula_wherever_cells_end(text: str, delimiter: str) -> None:
    """A spreadsheet ends cells at commas or at semicolons, as its language has it."""
    lines = "".join(csv_lines(["title"], [[text]]))
    for row in csv.reader(lines.splitlines(keepends=True), delimiter=delimiter):
        assert not [
            cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"))
        ]


@pytest.mark.django_db
def test_a_site_admin_sees_no_further_than_the_token_in_use() -> None:
    mine, other = QuestionFactory.create(), QuestionFactory.create()
    admin = acting(UserFactory.create(is_superuser=True))
    made = make_token("one project", [Scope.READ], by=admin, projects=[mine.task.project])
    principal = Principal.of_token(made.token)
    filters = ListFilters.from_query(QueryDict(""))
    assert [task.pk for task in filters.matching_tasks(principal)] == [mine.task_id]
    assert [asked.pk for asked in filters.matching_questions(principal)] == [mine.pk]
    runs = in_visible_projects(Run.objects.all(), principal, "", "step__task__project__in")
    assert other.run not in runs and mine.run in runs


class Large:
    """A difference that is never read to its end; git is at work on it as long as `at_work` says so."""

    def __init__(self) -> None:
        self.at_work = 0

    def patch(self) -> Iterator[bytes]:
        self.at_work += 1
        try:
            yield from itertools.repeat(b"x" * 1000)
        finally:
            self.at_work -= 1


@pytest.mark.django_db
def test_slow_readers_occupy_only_a_limited_number_of_gits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a large file of the repository whole in its memory: forty slow readers were 4 GB."""
    large, (ann, ben) = Large(), (UserFactory.create(), UserFactory.create())
    monkeypatch.setattr(exports, "difference_of", lambda _: large)
    # Closing a response, as a server does, ends the request and with it the connection to the database.
    monkeypatch.setattr(exports, "record_download", lambda *_, **__: None)
    task = TaskFactory.create()
    reading = [download_patch(task, by=acting(ann)) for _ in range(MAX_PATCHES)]
    with pytest.raises(WorkspaceError, match="already downloading"):
        download_patch(task, by=acting(ann))
    download_patch(task, by=acting(ben))
    reading.pop().close()
    gc.collect()
    reading.append(download_patch(task, by=acting(ann)))
    assert large.at_work <= MAX_PATCHES


@pytest.mark.django_db
def test_a_patch_that_cannot_be_made_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Any) -> Any:
        raise WorkspaceError("gone")

    monkeypatch.setattr(Large, "patch", gone)
    monkeypatch.setattr(exports, "difference_of", lambda _: Large())
    ann, task = UserFactory.create(), TaskFactory.create()
    for _ in range(MAX_PATCHES + 1):
        with pytest.raises(WorkspaceError, match="gone"):
            download_patch(task, by=acting(ann))


@pytest.mark.django_db
def test_an_export_puts_no_more_into_the_audit_than_it_asks_for() -> None:
    client, long = signed_in(UserFactory.create()), "x" * 20_000
    for page in ("tasks/export.csv", "usage/export.csv"):
        text_of(client.get(f"/{page}?q={long}&{long}=1&{'&'.join(f'a{n}=1&b=2' for n in range(300))}"))
    for entry in AuditEntry.objects.filter(action=Action.EXPORTED):
        assert len(json.dumps(entry.detail)) < 3_000
    assert AuditEntry.objects.filter(action=Action.EXPORTED).count() == 2
