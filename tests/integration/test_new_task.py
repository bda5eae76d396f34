"""The form for a new task: settings beside the text, files of the repository, one task each (W2, P3, R5)."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tasks_app.models import Project, Role, Sequence, Task
from tasks_app.templatetags.catherder import threshold_default
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory
from tests.runner import Runner

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = """\
taskFolder: tasks
pipelines:
  careful: [{name: think, command: plan-task}, {name: paint, command: implement}]
  quick: [{name: dash, command: self}]
"""
TEXT = "# Paint it\n\nBlue.\n"
FILES = {
    "tasks/paint.md": TEXT,
    "tasks/walls/02-north.md": "# North",
    "tasks/walls/01-south.md": "# South",
    "tasks/walls/_ideas.md": "no",
    "README.md": "# Readme",
    "evil.txt": "no",
}
PAGE, FILES_PART, PREVIEW = "/tasks/new/", "/tasks/new/files/", "/tasks/new/preview/"


@pytest.fixture
def project(runner: Runner) -> Project:
    return runner.project(CONFIG, **FILES)


def browser_of(project: Project, role: Role = Role.MEMBER) -> Client:
    return signed_in(MembershipFactory.create(project=project, role=role).user)


def post(client: Client, project: Project, **given: Any) -> Any:
    return client.post(PAGE, {"project": project.pk, "text": TEXT, "kind": "task", **given})


def test_what_is_chosen_beside_the_text_becomes_front_matter(project: Project) -> None:
    chosen = {
        "pipeline": "quick",
        "threshold": "2",
        "title": "Paint: all",
        "model": "opus",
        "resume": "replay",
    }
    sent = TEXT.replace("\n", "\r\n")  # as browsers do
    assert post(browser_of(project), project, text=sent, **chosen).status_code == 302
    task = Task.objects.get()
    assert (task.title, task.pipeline, task.threshold) == ("Paint: all", "quick", 2)
    assert (task.model, task.resume, task.body) == ("opus", "replay", TEXT)
    assert task.text == (
        "---\ntitle: 'Paint: all'\npipeline: quick\ninteractionThreshold: 2\n"
        f"model: opus\nresume: replay\n---\n{TEXT}"
    )


def test_the_same_setting_in_text_and_form_is_written_once(project: Project) -> None:
    text = f"---\npipeline: quick  # fast\n---\n{TEXT}"
    assert post(browser_of(project), project, text=text, pipeline="quick").status_code == 302
    assert Task.objects.get().text == text


def test_a_contradiction_names_line_and_key_and_keeps_what_was_typed(project: Project) -> None:
    text = f"---\ntitle: x\npipeline: careful\ninteractionThreshold: 1\n---\n{TEXT}"
    page = post(browser_of(project), project, text=text, pipeline="quick", threshold="4")
    assert page.status_code == 400
    assert "Line 3: pipeline is &quot;careful&quot; in the text and &quot;quick&quot; beside it" in page.text
    assert "Line 4: interactionThreshold is 1 in the text and 4 beside it" in page.text
    assert "pipeline: careful" in page.text and not Task.objects.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\npipeline: nope\n---\n# x", "Line 2: there is no pipeline &quot;nope&quot;"),
        ("---\ninteractionThreshold: 9\n---\n# x", "Line 2: interactionThreshold must be a whole number"),
        (
            "---\npipeline: nope\ninteractionThreshold: 9\n---\n",
            "Line 2: there is no pipeline &quot;nope&quot;|Line 3: interactionThreshold|the task has no text",
        ),
        ("---\ntitle: x\n", "Line 1: the front matter that begins here is never closed"),
        ("---\n- a\n---\n# x", "must be a mapping"),
        ("   ", "Enter the task"),
        ("# x\n" + "y" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_faulty_text_is_reported_with_its_line(project: Project, text: str, words: str) -> None:
    page = post(browser_of(project), project, text=text)
    assert page.status_code == 400 and all(one in page.text for one in words.split("|"))
    assert not Task.objects.exists()


def test_a_form_that_is_sent_twice_makes_one_task(project: Project) -> None:
    client, key = browser_of(project), str(uuid.uuid4())
    first = post(client, project, form_key=key, start="1")
    second = post(client, project, form_key=key, start="1")
    assert first["Location"] == second["Location"] and Task.objects.count() == 1
    assert post(client, project, form_key=key, text="# Another").status_code == 302
    assert Task.objects.count() == 2
    assert f'data-sent="{key}"' in client.get(PAGE).text


def test_a_folder_that_is_sent_twice_makes_one_sequence(project: Project) -> None:
    client, key = browser_of(project), str(uuid.uuid4())
    for _ in range(2):
        assert post(client, project, kind="folder", folder="tasks/walls", form_key=key).status_code == 302
    assert Sequence.objects.count() == 1


def test_a_file_of_the_repository_is_taken_with_its_path(project: Project) -> None:
    client = browser_of(project)
    page = client.get(PAGE, {"project": str(project.pk), "file": "tasks/paint.md"}).text
    assert "Blue." in page and "From tasks/paint.md" in page
    assert post(client, project, file="tasks/paint.md").status_code == 302
    assert Task.objects.get().file == "tasks/paint.md"


@pytest.mark.parametrize("path", ["evil.txt", "../x.md", "no\0pe.md", "tasks", "/etc/passwd", "x" * 5000])
def test_a_missing_file_is_reported(project: Project, path: str) -> None:
    page = browser_of(project).get(PAGE, {"project": str(project.pk), "file": path})
    assert page.status_code == 200 and "There is no Markdown file" in page.text


def test_q1_a_folder_says_whom_all_its_tasks_ask(project: Project) -> None:
    client = browser_of(project)
    MembershipFactory.create(project=project, user__username="bob")
    refused = post(client, project, kind="folder", folder="tasks/walls", ask="bob, nobody")
    assert refused.status_code == 400 and "is neither a user who may answer" in refused.text
    assert not Sequence.objects.exists()
    assert post(client, project, kind="folder", folder="tasks/walls", ask="bob").status_code == 302
    assert (Sequence.objects.get().ask, Task.objects.get().ask) == (["bob"], ["bob"])


def test_files_and_folders_are_found_by_their_names(project: Project) -> None:
    client = browser_of(project)
    everything = client.get(FILES_PART, {"project": project.pk}).text
    assert everything.index("tasks/paint.md") < everything.index("README.md") and "evil" not in everything
    assert "README" not in client.get(FILES_PART, {"project": str(project.pk), "q": "Paint"}).text
    folders = client.get(FILES_PART, {"project": str(project.pk), "kind": "folder"}).text
    assert "tasks/walls" in folders and "01-south" not in folders
    asked = {"project": str(project.pk), "folder": "tasks/walls/", "would_run": "1"}
    runs = client.get(FILES_PART, asked).text
    assert "2 tasks will run" in runs and runs.index("01-south.md") < runs.index("02-north.md")
    assert "_ideas" not in runs


def test_files_of_the_root_are_not_cut_from_a_long_list(runner: Runner) -> None:
    """The page shows 50: those of the task folder, then those of the root."""
    files = {f"docs/{number:03}.md": "x" for number in range(60)} | {"todo.md": "x"}
    project = runner.project(**files)
    client = browser_of(project)
    assert "todo.md" in client.get(FILES_PART, {"project": project.pk}).text


def test_the_pipelines_of_a_project_are_shown_with_their_steps(project: Project) -> None:
    client = browser_of(project)
    for page in (client.get(PAGE).text, client.get("/tasks/new/project/", {"project": project.pk}).text):
        assert "quick" in page and "think" in page and "paint" in page and "Project default (careful)" in page


def test_the_default_threshold_is_named_by_what_it_does() -> None:
    assert threshold_default(0) == "Default: never asks"
    assert threshold_default(3).startswith("Default: asks about ") and "(3 of 5)" in threshold_default(3)


def test_choosing_a_project_works_without_scripts(runner: Runner, project: Project) -> None:
    other = runner.project("pipelines: {other: [{name: only, command: self}]}\n")
    client = browser_of(project)
    MembershipFactory.create(project=other, user_id=client.session["_auth_user_id"])
    page = client.post(PAGE, {"project": other.pk, "text": "# Kept", "choose": "project"})
    assert page.status_code == 200 and "# Kept" in page.text and 'value="other"' in page.text
    assert not Task.objects.exists()


def test_the_preview_shows_the_text_and_what_its_settings_come_to(project: Project) -> None:
    client = browser_of(project)
    told = client.post(
        PREVIEW, {"text": f"{TEXT}<script>x</script>", "pipeline": "quick", "threshold": "3"}
    ).text
    assert "<h3>Paint it</h3>" in told and "<dd>quick</dd>" in told and "<script>" not in told
    faulty = client.post(PREVIEW, {"text": "---\ninteractionThreshold: high\n---\n# Still shown"}).text
    assert "Line 2: interactionThreshold" in faulty and "Still shown" in faulty
    assert "high</h" not in faulty, "front matter is no heading"
    assert "Nothing to preview" in client.post(PREVIEW, {"text": ""}).text
    assert client.post(PREVIEW, {"text": "a\0b", "threshold": "x"}).status_code == 200
    page = client.post(PAGE, {"project": project.pk, "text": TEXT, "preview": "1"})
    assert page.status_code == 200 and "<h3>Paint it</h3>" in page.text and not Task.objects.exists()


def test_a_task_is_written_again_by_those_who_see_it(project: Project) -> None:
    task = TaskFactory.create(project=project, text="---\npipeline: quick\n---\n# Again")
    client = browser_of(project)
    assert "pipeline: quick" in client.get(PAGE, {"from": task.pk}).text
    hidden = TaskFactory.create(project=ProjectFactory.create(name="hidden"), text="# Secret")
    for number in (hidden.pk, "x", "9" * 30, "1\0"):
        assert client.get(PAGE, {"from": number}).status_code == 404


def test_nothing_of_other_projects_is_shown(project: Project) -> None:
    client = browser_of(ProjectFactory.create(name="another"))
    for address in (PAGE, FILES_PART, "/tasks/new/project/"):
        page = client.get(address, {"project": str(project.pk), "file": "tasks/paint.md"})
        assert page.status_code == 200 and "Blue." not in page.text
        assert not re.search(r"\bquick\b(?!-)", page.text)  # the class of the search field aside
    assert post(client, project).status_code == 400


def test_a_viewer_may_not_create(project: Project) -> None:
    assert post(browser_of(project, Role.VIEWER), project).status_code == 403
    assert not Task.objects.exists()


def test_a_project_with_a_faulty_file_says_so(runner: Runner) -> None:
    project = runner.project("interactionThreshold: 9\n")
    page = browser_of(project).get(PAGE).text
    assert "has errors. Fix them" in page


def test_a_project_that_was_never_fetched_still_has_its_form() -> None:
    assert "has not been fetched yet" in browser_of(ProjectFactory.create()).get(PAGE).text


def test_the_page_asks_the_database_as_often_with_many_tasks(project: Project) -> None:
    client = signed_in(UserFactory.create(is_superuser=True))
    chosen = {"project": project.pk}
    client.get(PAGE, chosen)
    with CaptureQueriesContext(connection) as few:
        client.get(PAGE, chosen)
    for number in range(5):
        TaskFactory.create(project=project)
        ProjectFactory.create(name=f"more-{number}")
    with CaptureQueriesContext(connection) as many:
        client.get(PAGE, chosen)
    assert len(many) == len(few)
