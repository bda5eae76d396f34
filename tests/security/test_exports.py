"""Files that are taken away: no spreadsheet runs what an agent wrote, and a token keeps to its projects."""

from __future__ import annotations

import csv

import pytest
from django.http import QueryDict

from tasks_app.csv_text import csv_lines
from tasks_app.models import Run
from tasks_app.search.filters import Filters
from tasks_app.usage import _within
from tests.factories import QuestionFactory, UserFactory

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
    mine, other = QuestionFactory(), QuestionFactory()
    user = UserFactory(is_superuser=True)
    user.reach = frozenset({mine.task.project_id})
    filters = Filters.of(QueryDict(""))
    assert [task.pk for task in filters.tasks(user)] == [mine.task_id]
    assert [asked.pk for asked in filters.asked(user)] == [mine.pk]
    runs = _within(Run.objects.all(), user, "", "step__task__project__in")
    assert other.run not in runs and mine.run in runs
