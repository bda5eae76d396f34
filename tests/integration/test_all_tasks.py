"""The history (W2): searched, filtered, page by page, taken away as CSV and JSON; bounded queries (F)."""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Project, QuestionState, Role, Run, Task, User
from tasks_app.services.exports import QUESTION_COLUMNS, TASK_COLUMNS
from tasks_app.services.list_filters import ListFilters
from tasks_app.services.search import PageCursor, page_of_ids
from tasks_app.web.tasks import all_tasks
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.VIEWER).user


@pytest.fixture
def client(viewer: User) -> Client:
    return signed_in(viewer)


def titles(page: Any) -> list[str]:
    return [row.task.title for row in page.context["rows"]]


def many(project: Project, count: int) -> None:
    for number in range(count):
        task = TaskFactory.create(
            project=project, title=f"Number {number} totals", created_by=UserFactory.create()
        )
        run = RunFactory.create(task=task, model="opus", input_tokens=5, cost_usd=0.5)
        QuestionFactory.create(
            task=task, run=run, state=QuestionState.ANSWERED, answered_at=timezone.now(),
            answered_by=UserFactory.create(), answers={"How should half cents be rounded?": "up"},
        )  # fmt: skip


# ---- what is listed ----


def test_every_phase_is_listed_the_newest_first(client: Client, project: Project) -> None:
    for phase in Phase:
        TaskFactory.create(project=project, title=phase.value, phase=phase)
    assert titles(client.get("/tasks/all/")) == [phase.value for phase in reversed(Phase)]
    assert titles(client.get("/tasks/all/?sort=oldest")) == [phase.value for phase in Phase]


def test_nothing_of_another_project_is_listed_or_offered(client: Client) -> None:
    secret = TaskFactory.create(
        title="Secret totals", pipeline="secret-pipe",
        created_by=UserFactory.create(username="secret-person"),
        sequence=SequenceFactory.create(folder="secret-folder"),
    )  # fmt: skip
    question = QuestionFactory.create(
        task=secret, notes="secret notes", run=RunFactory.create(task=secret, model="secret-model")
    )
    for address in ("?", "?q=secret", "?q=totals", f"?project={secret.project}", "?kind=questions",
                    "?kind=questions&q=secret", f"?sequence={secret.sequence_id}", "?q=rounded"):  # fmt: skip
        page = client.get(f"/tasks/all/{address}")
        assert not page.context["rows"]
        assert "Secret" not in page.text and "secret-" not in page.text, address
        assert question.headline not in page.text


@pytest.fixture
def varied(project: Project) -> dict[str, Task]:
    ann = UserFactory.create(username="ann")
    sequence = SequenceFactory.create(project=project)
    old = TaskFactory.create(
        project=project, title="old", phase=Phase.FAILED, created_by=ann, failure="broke"
    )
    Task.objects.filter(pk=old.pk).update(created_at=datetime(2026, 3, 1, 23, 59, tzinfo=UTC))
    piped = TaskFactory.create(
        project=project, title="piped", pipeline="docs", phase=Phase.DONE, sequence=sequence
    )
    RunFactory.create(task=old, model="opus")
    RunFactory.create(task=piped, model="haiku")
    asking = QuestionFactory.create(task__project=project, task__title="asking").task
    elsewhere = TaskFactory.create(
        title="elsewhere", project=MembershipFactory.create(user=project.memberships.get().user).project
    )
    return {"old": old, "piped": piped, "asking": asking, "elsewhere": elsewhere}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("phase=failed", {"old"}),
        ("phase=failed&phase=done", {"old", "piped"}),
        ("phase=nonsense", {"old", "piped", "asking", "elsewhere"}),
        ("project=shop", {"old", "piped", "asking"}),
        ("project=nowhere", set()),
        ("person=ann", {"old"}),
        ("pipeline=docs", {"piped"}),
        ("model=opus", {"old"}),
        ("from=2026-03-01&to=2026-03-01", {"old"}),
        ("to=2026-02-28", set()),
        ("from=2026-03-02", {"piped", "asking", "elsewhere"}),
        ("questions=yes", {"asking"}),
        ("questions=no", {"old", "piped", "elsewhere"}),
        ("q=broke", {"old"}),
        ("q=half+cents", {"asking"}),
        ("q=-old", set()),
        ("q=old&phase=done", set()),
    ],
)  # fmt: skip
def test_filters_in_the_address(
    client: Client, varied: dict[str, Task], query: str, expected: set[str]
) -> None:
    page = client.get(f"/tasks/all/?{query}")
    assert set(titles(page)) == expected
    assert "No results" in page.text if not expected else "No results" not in page.text


def test_a_sequence_is_a_filter(client: Client, varied: dict[str, Task]) -> None:
    assert titles(client.get(f"/tasks/all/?sequence={varied['piped'].sequence_id}")) == ["piped"]


@pytest.mark.parametrize(
    "query",
    [
        "from=2026-13-99", "to=yesterday", "sequence=x", "sequence=99999999999999999999", "questions=maybe",
        "from=%00", "sequence=%C2%B2", "kind=questions&state=odd", "kind=questions&via=pigeon",
    ],
)  # fmt: skip
def test_an_unusable_value_is_reported_and_left_out(
    client: Client, varied: dict[str, Task], query: str
) -> None:
    page = client.get(f"/tasks/all/?{query}")
    assert page.status_code == 200 and "It was ignored." in page.text
    assert page.context["rows"]


@pytest.mark.parametrize(
    "query",
    [
        "q=%00", "q=%22", "q=NEAR(", "q=*&phase=%00", "project=%00", "person=%00", "pipeline=%00&model=%00",
        "after=%00", "after=99999999999999999999999", "before=-1", "after=x&before=y", "before=0", "sort=%00",
        "kind=%00", "kind=questions&q=%00&person=%00", "from=0001-01-01&to=9999-12-31", "q=" + "x" * 10_000,
        "before=9223372036854775808", "sequence=9223372036854775807",
    ],
)  # fmt: skip
@pytest.mark.both
def test_garbage_in_the_address_is_no_error(client: Client, varied: dict[str, Task], query: str) -> None:
    assert client.get(f"/tasks/all/?{query}").status_code == 200
    assert client.get(f"/tasks/all/?{query}", headers={"HX-Request": "true"}).status_code == 200


@pytest.mark.both
def test_words_found_are_marked_where_they_are(client: Client, project: Project) -> None:
    TaskFactory.create(
        project=project, title="Round <b>prices</b>", body="x " * 500 + "the café’s quokka & co"
    )
    page = client.get("/tasks/all/?q=cafe+quok")
    assert "<mark>café</mark>’s <mark>quokka</mark> &amp; co" in page.text and "<b>" not in page.text
    assert "<mark>prices</mark>" in client.get("/tasks/all/?q=prices").text


@pytest.mark.both
def test_a_hit_in_a_question_shows_the_question(client: Client, project: Project) -> None:
    question = QuestionFactory.create(task__project=project)
    page = client.get("/tasks/all/?q=half+cents")
    assert "How should <mark>half</mark> <mark>cents</mark> be rounded?" in page.text
    assert f"/questions/{question.pk}/" in page.text


MARKDOWN = """\
## What is *wanted*

Round the **quokka** totals of `bill.py <a&b>`, see [the rules](http://rules.test/marsupial).

```
def quokka(): ...
```
"""


@pytest.mark.both
def test_what_is_found_in_markdown_is_shown_without_its_signs(client: Client, project: Project) -> None:
    title = "Mend `quokka.py` at once"
    TaskFactory.create(project=project, title=title, body="# Long\n\n" + "x\n" * 5000 + MARKDOWN)
    page = client.get("/tasks/all/?q=quokka").text
    assert "Mend <mark>quokka</mark>.py at once" in page
    told = "What is wanted Round the <mark>quokka</mark> totals of bill.py &lt;a&amp;b&gt;, see the rules."
    assert f"{told} def <mark>quokka</mark>():" in page
    assert "<mark>marsupial</mark>" in client.get("/tasks/all/?q=marsupial").text
    assert "<code>quokka.py</code>" in client.get("/tasks/all/").text


def test_questions_are_listed_in_plain_words(client: Client, project: Project) -> None:
    item = {"question": "Round **half** `up`?\n\n- The *rules* are silent.", "header": "", "options": []}
    QuestionFactory.create(
        task__project=project, items=[item], answers={item["question"]: "**Yes**, `always`."},
        state=QuestionState.ANSWERED, answered_at=timezone.now(),
    )  # fmt: skip
    page = client.get("/tasks/all/?kind=questions").text
    assert "Round half up?" in page and "Yes, always." in page and "silent" not in page
    assert "Round <mark>half</mark> up?" in client.get("/tasks/all/?kind=questions&q=half").text
    assert "The rules are <mark>silent</mark>." in client.get("/tasks/all/?kind=questions&q=silent").text


def test_a_question_without_an_answer_shows_no_empty_line(client: Client, project: Project) -> None:
    QuestionFactory.create(task__project=project)
    page = client.get("/tasks/all/?kind=questions").text
    assert "How should half cents be rounded?" in page and "row-answer" not in page


def test_htmx_gets_the_list_alone(client: Client, varied: dict[str, Task]) -> None:
    part = client.get("/tasks/all/?q=old", headers={"HX-Request": "true"}).text
    assert "<mark>old</mark>" in part and "<form" not in part and "<html" not in part


def test_what_was_chosen_stands_in_the_form(client: Client, varied: dict[str, Task]) -> None:
    page = client.get('/tasks/all/?q="half+cents"&phase=failed&person=ann&from=2026-03-01&questions=yes').text
    for text in (
        'value="&quot;half cents&quot;"',
        'value="failed" checked',
        'value="ann"',
        'value="2026-03-01"',
    ):
        assert text in page, text


def test_filters_in_use_are_named_and_each_can_be_removed(
    client: Client, varied: dict[str, Task], viewer: User
) -> None:
    client.force_login(viewer)
    page = tidy(client.get("/tasks/all/?q=old&phase=failed&phase=done&questions=yes&from=2026-03-01").text)
    chips = dict(re.findall(r'<a class="chip-choice" href="\?([^"]*)">([^<]*?) <svg', page))
    assert chips == {
        "q=old&amp;questions=yes&amp;from=2026-03-01": "done, failed",
        "q=old&amp;phase=done&amp;phase=failed&amp;from=2026-03-01": "with questions",
        "q=old&amp;phase=done&amp;phase=failed&amp;questions=yes": "from: 2026-03-01",
    }


def test_the_fold_of_the_filters_says_how_many_are_set(client: Client, varied: dict[str, Task]) -> None:
    for query, said in (
        ("q=old", "Filter"),
        ("phase=failed&phase=done", "1 filter"),
        ("phase=failed&questions=yes", "2 filters"),
    ):
        assert f'<summary class="button"><span id="filter-count">{said}</span>' in tidy(
            client.get(f"/tasks/all/?{query}").text
        )
        part = tidy(client.get(f"/tasks/all/?{query}", headers={"HX-Request": "true"}).text)
        assert f'<span id="filter-count" hx-swap-oob="true">{said}</span>' in part


def test_nobody_has_tasks_yet(client: Client) -> None:
    assert "No tasks yet" in client.get("/tasks/all/").text
    assert "No questions yet" in client.get("/tasks/all/?kind=questions").text


# ---- pages ----


@pytest.mark.both
def test_pages_lead_on_and_back_and_nothing_is_listed_twice(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tasks, "PER_PAGE", 3)
    wanted = [TaskFactory.create(project=project, title=f"{number}").title for number in range(7)]
    for order, expected in (("", wanted[::-1]), ("&sort=oldest", wanted)):
        page = client.get(f"/tasks/all/?phase=pending{order}")
        seen, pages = titles(page), [titles(page)]
        while after := page.context["slice"].after:
            page = client.get(f"/tasks/all/?phase=pending{order}&after={after}")
            seen += titles(page)
            pages.append(titles(page))
        assert seen == expected
        for before in reversed(pages[:-1]):
            page = client.get(f"/tasks/all/?phase=pending{order}&before={page.context['slice'].before}")
            assert titles(page) == before
        assert page.context["slice"].before is None


def test_links_between_pages_keep_the_filters(client: Client, project: Project, monkeypatch: Any) -> None:
    monkeypatch.setattr(all_tasks, "PER_PAGE", 1)
    first, second = TaskFactory.create(project=project), TaskFactory.create(project=project)
    page = client.get("/tasks/all/?phase=pending&phase=done&q=totals&sort=oldest")
    assert f"?q=totals&amp;phase=pending&amp;phase=done&amp;sort=oldest&amp;after={first.pk}" in page.text
    assert second.title not in page.text


def test_a_page_beyond_the_end_leads_back(client: Client, project: Project) -> None:
    TaskFactory.create(project=project)
    assert "First page" in client.get("/tasks/all/?after=1").text


# ---- questions ----


def test_questions_are_listed_with_answer_and_person(client: Client, project: Project) -> None:
    QuestionFactory.create(
        task__project=project,
        state=QuestionState.ANSWERED,
        answered_at=timezone.now(),
        answered_via="terminal",
        answered_by=UserFactory.create(username="ben"),
        answers={"How should half cents be rounded?": "Half to even"},
    )
    QuestionFactory.create(task__project=project)
    page = client.get("/tasks/all/?kind=questions&q=even&person=ben&via=terminal&state=answered")
    assert len(page.context["rows"]) == 1
    assert "Half to <mark>even</mark>" in page.text and "ben in the terminal" in tidy(page.text)
    assert len(client.get("/tasks/all/?kind=questions").context["rows"]) == 2


def test_the_inbox_leads_to_all_questions(client: Client) -> None:
    assert "/tasks/all/?kind=questions" in client.get("/inbox/").text


# ---- to take away ----


def taken(client: Client, address: str) -> str:
    response: Any = client.get(address)
    assert response.status_code == 200 and response.streaming
    return text_of(response)


def test_tasks_as_csv_with_what_is_filtered(client: Client, varied: dict[str, Task]) -> None:
    Task.objects.filter(title="old").update(
        title="=1+1",
        started_at=timezone.now() - timedelta(seconds=60),
        ended_at=timezone.now(),
        paused_seconds=20,
    )
    Run.objects.filter(model="opus").update(input_tokens=7, cost_usd=0.25)
    rows = list(csv.DictReader(taken(client, "/tasks/export.csv?phase=failed").splitlines()))
    assert [row["title"] for row in rows] == ["'=1+1"]
    row = rows[0]
    assert (row["models"], row["input_tokens"], row["cost_usd"], row["created_by"]) == (
        "opus",
        "7",
        "0.25",
        "ann",
    )
    assert float(row["seconds"]) == pytest.approx(60, abs=1)
    assert float(row["seconds_without_waiting"]) == pytest.approx(40, abs=1)


def test_tasks_as_json(client: Client, varied: dict[str, Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks_app.services.exports.BATCH_SIZE", 2)
    rows = json.loads(taken(client, "/tasks/export.json?project=shop"))
    assert [row["title"] for row in rows] == ["asking", "piped", "old"]
    assert list(rows[0]) == TASK_COLUMNS and rows[0]["questions"] == 1


def test_questions_as_csv_and_json(client: Client, project: Project) -> None:
    many(project, 2)
    rows = json.loads(taken(client, "/tasks/export.json?kind=questions&q=up"))
    assert len(rows) == 2 and list(rows[0]) == QUESTION_COLUMNS and rows[0]["answer"] == "up"
    assert taken(client, "/tasks/export.csv?kind=questions&q=nothing") == ",".join(QUESTION_COLUMNS) + "\r\n"


def test_an_export_is_recorded(client: Client, viewer: User) -> None:
    taken(client, "/tasks/export.csv?phase=failed")
    entry = AuditEntry.objects.get(action=Action.EXPORTED)
    assert entry.actor == viewer and entry.subject == "tasks"
    assert entry.detail == {"form": "csv", "filters": {"phase": ["failed"]}}


def test_nothing_of_another_project_can_be_exported(client: Client) -> None:
    QuestionFactory.create(task__title="Secret")
    assert json.loads(taken(client, "/tasks/export.json")) == []
    assert json.loads(taken(client, "/tasks/export.json?kind=questions")) == []


def test_other_forms_and_garbage(client: Client) -> None:
    assert client.get("/tasks/export.xlsx").status_code == 404
    assert taken(client, "/tasks/export.json?q=%00&phase=%00&from=%00").strip() == "[\n]"


# ---- how much is asked of the database ----


@pytest.mark.parametrize(
    "query",
    ["", "?q=totals", "?q=totals&phase=pending&project=shop", "?kind=questions", "?kind=questions&q=up"],
)
def test_the_number_of_queries_does_not_grow(client: Client, project: Project, query: str) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert client.get(f"/tasks/all/{query}").context["rows"]
        return len(asked)

    many(project, 2)
    few = queries()
    many(project, 12)
    assert queries() == few <= 16


def test_an_export_asks_the_same_for_each_part(client: Client, project: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            taken(client, "/tasks/export.csv")
        return len(asked)

    many(project, 2)
    few = queries()
    many(project, 12)
    assert queries() == few


@pytest.mark.parametrize(
    "query",
    ["", "phase=failed", "phase=failed&phase=done", "person=ann", "project=shop", "project=shop&phase=done",
     "from=2026-03-01&to=2026-03-09", "sequence=1", "q=totals", "project=shop&q=totals"],
)  # fmt: skip
@pytest.mark.both
def test_no_filter_reads_the_whole_table(project: Project, query: str) -> None:
    """On SQLite; PostgreSQL knows how large a table is, and reads small ones whole."""
    if connection.vendor != "sqlite":
        return
    tasks = ListFilters.from_query(QueryDict(query)).matching_tasks(
        acting(UserFactory.create(is_superuser=True))
    )
    with CaptureQueriesContext(connection) as asked:
        page_of_ids(tasks, PageCursor(), 40)
    plan = tasks.order_by("-pk").values_list("pk", flat=True)[:41].explain()
    assert len(asked) == 1 and "COUNT" not in asked[0]["sql"]
    assert "SCAN tasks_app_question" not in plan
    assert "SCAN tasks_app_task" not in plan or not query, plan
