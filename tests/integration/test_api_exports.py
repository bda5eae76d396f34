"""What the form for a new task and the exports offer on pages, the API offers too (W5)."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tasks_app.models import AuditEntry, Project, Role, Sequence, Task, User
from tasks_app.services.projects.projects import add_project
from tests.addresses import text_of
from tests.api import PROBLEM, Script
from tests.factories import MemberGroupFactory, MembershipFactory, QuestionFactory, TaskFactory
from tests.integration.git_repository import GitRepository

pytestmark = pytest.mark.django_db

PIPELINES = """interactionThreshold: 2
taskFolder: todo
pipelines:
  quick:
    - {name: do, command: self}
  whole:
    - {name: plan, command: plan-task}
    - {name: implement, command: implement}
"""
FILES = {
    "cat-herder.yaml": PIPELINES,
    "README.md": "# Shop\n",
    "docs/how.md": "# How\n",
    "todo/10-round.md": "# Round prices\r\n",
    "todo/2-show.md": "# Show the tax\n",
    "todo/_ideas.md": "# Ideas\n",
    "src/price.py": "total = 0\n",
}


@pytest.fixture
def shop(settings: Any, tmp_path: Path) -> Project:
    settings.DATA_DIR = tmp_path / "data"
    return add_project("shop", str(GitRepository.make(tmp_path / "source", **FILES).path))


@pytest.fixture
def ann(shop: Project) -> Script:
    return Script(MembershipFactory.create(project=shop, user__username="ann").user)


def test_markdown_files_are_listed_those_of_the_task_folder_first(ann: Script) -> None:
    said = ann.get("/projects/shop/files").json()
    assert said["items"] == [
        "todo/10-round.md", "todo/2-show.md", "todo/_ideas.md", "README.md", "docs/how.md"
    ]  # fmt: skip
    assert said["more"] == 0 and len(said["commit"]) == 40
    assert ann.get("/projects/shop/files", q="TODO show").json()["items"] == ["todo/2-show.md"]
    assert ann.get("/projects/shop/files", limit=2).json()["more"] == 3


def test_the_text_of_a_file_is_read_and_no_other_files(ann: Script) -> None:
    said = ann.get("/projects/shop/files/text", path="todo/10-round.md").json()
    assert (said["path"], said["text"]) == ("todo/10-round.md", "# Round prices\n")
    for path in ("src/price.py", "../source/README.md", "todo/none.md"):
        answer = ann.get("/projects/shop/files/text", path=path)
        assert (answer.status_code, answer["Content-Type"]) == (404, PROBLEM)
        assert path in answer.json()["detail"]


def test_folders_are_listed_with_what_would_run(ann: Script) -> None:
    said = ann.get("/projects/shop/folders").json()
    assert said["items"] == [
        {"folder": "docs", "tasks": ["how.md"]},
        {"folder": "todo", "tasks": ["10-round.md", "2-show.md"]},
    ]
    assert [one["folder"] for one in ann.get("/projects/shop/folders", q="to").json()["items"]] == ["todo"]


def test_files_are_listed_though_the_settings_have_a_fault(ann: Script, shop: Project) -> None:
    GitRepository(Path(shop.source)).commit(**{"cat-herder.yaml": "pipelines: 3\n"})
    assert ann.post("/projects/shop/fetch").status_code == 200
    assert "docs/how.md" in ann.get("/projects/shop/files").json()["items"]


def test_a_text_is_previewed_and_nothing_is_stored(ann: Script) -> None:
    front = "---\ninteractionThreshold: 4\npipeline: whole\nresume: replay\n---\n"
    text = f"{front}# Round prices\n\nAs the cashier.\n"
    said = ann.post("/tasks/preview", {"project": "shop", "text": text}).json()
    assert said.pop("commit")
    assert said == {
        "title": "Round prices",
        "pipeline": "whole",
        "steps": ["clarify", "plan", "implement"],
        "threshold": 4,
        "model": "",
        "resume": "replay",
        "ask": [],
        "body": "# Round prices\n\nAs the cashier.\n",
        "forecast": {"tasks": 0, "cost_usd": None, "working_seconds": None},
        "budgets": {"project": None, "person": None},
    }
    plain = ann.post("/tasks/preview", {"project": "shop", "text": "# Do it", "threshold": 0}).json()
    assert (plain["pipeline"], plain["threshold"]) == ("quick", 0)
    assert not Task.objects.exists()


def test_a_task_may_say_whom_its_questions_are_put_to(ann: Script) -> None:
    """Q1: instead of those in its front matter."""
    text = "---\nask: [bob]\n---\n# Do it"
    project = Project.objects.get(name="shop")
    MemberGroupFactory.create(project=project, name="leads", members=[User.objects.get(username="ann")])
    for given, expected in (
        ({}, ["bob"]),
        ({"ask": []}, ["bob"]),
        ({"ask": ["ann", "@leads"]}, ["ann", "@leads"]),
    ):
        body = {"project": "shop", "text": text, **given}
        assert ann.post("/tasks/preview", body).json()["ask"] == expected
        made = ann.post("/tasks", body).json()
        assert made["ask"] == ann.get(f"/tasks/{made['task']}").json()["ask"] == expected
        assert Task.objects.get(pk=made["task"]).ask == expected


def test_a_sequence_may_say_whom_the_questions_of_its_tasks_are_put_to(ann: Script) -> None:
    """Q1"""
    body = {"project": "shop", "folder": "todo"}
    assert ann.post("/sequences", body).json()["ask"] == []
    made = ann.post("/sequences", {**body, "ask": ["ann"]}).json()
    assert made["ask"] == ann.get(f"/sequences/{made['sequence']}").json()["ask"] == ["ann"]
    assert [task["ask"] for task in made["tasks"]] == [["ann"]]
    for names in (["nobody"], ["a\nb"]):
        assert ann.post("/sequences", {**body, "ask": names}).status_code == 400
    assert Sequence.objects.count() == 2


@pytest.mark.parametrize(
    ("names", "where"),
    [([""], "body.ask.0"), (["ann", "a\nb"], "body.ask.1"), ([7], "body.ask.0"), (["ann"] * 51, "body.ask")],
)
def test_an_unusable_name_of_whom_to_ask_is_reported(ann: Script, names: list[Any], where: str) -> None:
    """Q1"""
    for address in ("/tasks", "/tasks/preview"):
        said = ann.post(address, {"project": "shop", "text": "# Do it", "ask": names})
        assert said.status_code == 400 and said.json()["errors"][0]["where"] == where
    assert not Task.objects.exists()


def test_the_preview_reports_the_faults_that_creating_it_would_report(ann: Script) -> None:
    wrong = {"project": "shop", "text": "---\npipeline: slow\n---\n# Do it\n"}
    preview, created = ann.post("/tasks/preview", wrong), ann.post("/tasks", wrong)
    assert preview.status_code == 400
    assert preview.json()["errors"] == created.json()["errors"]
    assert preview.json()["errors"][0]["where"] == "task:2"


def test_tasks_are_exported_in_full_as_csv_or_json(ann: Script, shop: Project) -> None:
    TaskFactory.create(project=shop, title="=1+1", phase="failed")
    TaskFactory.create(project=shop, title="Round prices")
    TaskFactory.create(title="Elsewhere")
    answer = ann.get("/tasks/export", format="csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(StringIO(text_of(answer))))
    assert [row["title"] for row in rows] == ["Round prices", "'=1+1"]
    found = json.loads(text_of(ann.get("/tasks/export", phase="failed")))
    assert [row["title"] for row in found] == ["=1+1"]
    entry = AuditEntry.objects.filter(action="exported").latest("pk")
    assert (entry.actor_name, entry.via, entry.token) == ("ann", "api", "script")
    assert entry.detail["filters"] == {"phase": ["failed"]}


def test_questions_are_exported_in_full(ann: Script, shop: Project) -> None:
    QuestionFactory.create(task__project=shop, task__title="Round prices")
    QuestionFactory.create(task__title="Elsewhere")
    answer = ann.get("/questions/export", state="open", format="json")
    assert answer["Content-Type"] == "application/json; charset=utf-8"
    assert [row["title"] for row in json.loads(text_of(answer))] == ["Round prices"]
    assert ann.get("/questions/export", format="xml").status_code == 400


def test_an_export_asks_no_more_of_the_database_for_more_tasks(
    ann: Script, shop: Project, django_assert_num_queries: Any
) -> None:
    def queries(tasks: int) -> int:
        TaskFactory.create_batch(tasks, project=shop)
        with django_assert_num_queries(100, exact=False) as counted:
            text_of(ann.get("/tasks/export"))
        return len(counted)

    queries(1)  # which also notes that the token was used
    assert queries(2) == queries(20)


def test_who_only_looks_picks_no_files(shop: Project) -> None:
    viewer = Script(MembershipFactory.create(project=shop, role=Role.VIEWER).user)
    assert viewer.get("/projects/shop/files").status_code == 403
    assert viewer.get("/projects/shop/files/text", path="README.md").status_code == 403
