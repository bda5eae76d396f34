"""The pages of projects: the list, adding one, the overview with pipelines and faults in place (W2, P1)."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import Action, AuditEntry, Project, Role
from tasks_app.services.projects import projects
from tasks_app.services.projects.projects import fetch, fetch_meanwhile
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/projects/"
CONFIG = """\
interactionThreshold: 2
defaultPipeline: feature
askBefore: ["Bash(git push:*)"]
pipelines:
  feature:
    - name: plan
      planApproval: true
      command: plan-task
      check: {type: fileExists, path: PLAN.md}
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
      check: {type: shell, command: make test, expect: fail, timeout: 10m}
      retry: 2
      timeout: 45m
      allowedTools: [Read]
  quick: [{name: dash, command: self}]
"""


def member(project: Project, role: Role = Role.MEMBER) -> Client:
    return signed_in(MembershipFactory.create(project=project, role=role).user)


def admin() -> Client:
    return signed_in(UserFactory.create(is_superuser=True))


def overview(project: Project, client: Client | None = None) -> str:
    page = (client or member(project)).get(reverse("project", args=[project.pk]))
    assert page.status_code == 200
    return " ".join(page.text.split())


def test_the_list_shows_roles_and_how_tasks_stand() -> None:
    project, hidden = ProjectFactory.create(name="shop"), ProjectFactory.create(name="secret-plan")
    for phase in (Phase.WAITING_FOR_INPUT, Phase.RUNNING, Phase.FAILED, Phase.FAILED, Phase.DONE):
        ended = timezone.now() if phase in ENDED else None
        TaskFactory.create(project=project, phase=phase, ended_at=ended)
    page = member(project).get(LIST).text
    assert "1 waiting" in page and "1 running" in page and "2 failed" in page and "5 tasks" in page
    assert "member" in page and hidden.name not in page
    assert "Add a project" not in page


@pytest.mark.parametrize(
    "files",
    [
        {"Makefile": "test:\n\ttrue\n"},
        {"package.json": '{"scripts": {"test": "node --test"}}'},
        {"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/test_one.py": "def test_one(): pass\n"},
        {"README.md": "# Nothing to test\n"},
    ],
    ids=["make", "node", "python", "nothing"],
)
def test_the_starter_file_of_a_new_project_works_as_it_is(
    files: dict[str, str], tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path / "data"
    source = GitRepository.make(tmp_path / "source", **files)
    client = admin()
    added = client.post(LIST, {"name": "shop", "source": str(source.path), "branch": ""}, follow=True)
    assert "Starter <code>cat-herder.yaml</code>" in added.text
    starter = added.context["head"].starter
    assert escape(starter) in added.text and "pipelines:" in starter
    source.commit(**{"cat-herder.yaml": starter})
    project = Project.objects.get()
    fetch(project)
    page = overview(project, client)
    assert "No problems at the newest commit" in page and "Starter" not in page
    assert "the built-in pipeline is used" not in page


def test_a_page_reads_the_files_of_a_commit_once(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later views ask git only which commit is the newest, and what its summary is."""
    project = runner.project(CONFIG)
    client = member(project)
    overview(project, client)
    started: list[Any] = []
    popen = subprocess.Popen.__init__

    def noted(process: Any, command: Any, *rest: Any, **options: Any) -> None:
        started.append(command)
        popen(process, command, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    assert "Built-in prompt: plan-task" in overview(project, client)
    assert len(started) == 2, started


def test_a_user_without_projects_is_told_who_can_help() -> None:
    assert "You are not a member of any project" in signed_in(UserFactory.create()).get(LIST).text
    assert "No projects yet" in admin().get(LIST).text


def test_the_list_asks_the_database_as_often_with_many_projects() -> None:
    client = admin()
    TaskFactory.create()
    client.get(LIST)
    with CaptureQueriesContext(connection) as few:
        client.get(LIST)
    for _ in range(5):
        TaskFactory.create()
    with CaptureQueriesContext(connection) as many:
        client.get(f"{LIST}?page=none%00")
    assert len(many) == len(few)


def test_an_admin_adds_a_repository(tmp_path: Path) -> None:
    GitRepository.make(tmp_path / "shop", **{"README.md": "# Shop"})
    client = admin()
    made = client.post(LIST, {"name": "shop", "source": str(tmp_path / "shop")})
    project = Project.objects.get()
    assert made["Location"] == reverse("project", args=[project.pk])
    assert project.fetched_at and not project.is_fetching
    assert AuditEntry.objects.get(action=Action.PROJECT_ADDED).project_name == "shop"
    assert "Change" in overview(project, client)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "", "source": "/x"}, "Enter a name."),
        ({"name": "Shop!", "source": "/x"}, "Use lower-case letters"),
        ({"name": "taken", "source": "/x"}, "There is already a project with this name."),
        ({"name": "shop", "source": ""}, "Enter a folder"),
        ({"name": "shop", "source": "/no/such/folder"}, "/no/such/folder does not exist"),
        ({"name": "shop", "source": "ftp://example.org/x"}, "only https and ssh URLs"),
        ({"name": "shop", "source": "https://ann:secret@example.org/x"}, "must not contain a password"),
        ({"name": "shop", "source": "a\0b"}, "Null characters are not allowed"),
    ],
)
def test_a_repository_that_cannot_be_added_is_reported_and_the_input_stays(
    given: dict[str, str], words: str
) -> None:
    ProjectFactory.create(name="taken")
    page = admin().post(LIST, given)
    assert page.status_code == 400 and words in page.text
    assert f'value="{given["name"]}"' in page.text or not given["name"]
    assert Project.objects.count() == 1


def test_what_cannot_be_fetched_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GitRepository.make(tmp_path / "shop", **{"README.md": "# Shop"})
    monkeypatch.setattr("tasks_app.git.Repository.fetch", refuse)
    page = admin().post(LIST, {"name": "shop", "source": str(tmp_path / "shop")})
    assert page.status_code == 400 and "the disk is full" in page.text
    assert not Project.objects.exists()


def refuse(*args: Any, **options: Any) -> None:
    raise WorkspaceError("the disk is full")


def test_only_an_admin_adds_projects(tmp_path: Path) -> None:
    GitRepository.make(tmp_path / "shop", **{"README.md": "# Shop"})
    for client in (signed_in(UserFactory.create()), member(ProjectFactory.create(), Role.MAINTAINER)):
        assert client.post(LIST, {"name": "shop", "source": str(tmp_path / "shop")}).status_code == 403
    assert not Project.objects.filter(name="shop").exists()


def test_the_overview_draws_each_pipeline_with_checks_and_guards(runner: Runner) -> None:
    page = overview(runner.project(CONFIG))
    assert page.count('<ol class="step-cards">') == 2
    for words in (
        'feature <span class="chip">default</span>',
        "<code>PLAN.md</code> exists",
        "May write only <code>PLAN.md</code>",
        "<code>make test</code> fails within 10 min",
        "Up to 2 retries",
        "Time limit: 45 min",
        "<code>Read</code>",
        "Approval needed: <code>Bash(git push:*)</code>",
        "The plan needs approval",
        "the task’s own text",
        "Built-in prompt: plan-task",
    ):
        assert words in page, words


def test_a_default_of_the_portal_is_marked_and_noted_in_the_file(runner: Runner) -> None:
    project = runner.project(CONFIG)
    Project.objects.filter(pk=project.pk).update(overrides={"default_pipeline": "quick"})
    page = overview(project)
    assert 'quick <span class="chip">default</span>' in page
    assert "<strong>Note</strong> defaultPipeline is overridden" in page
    Project.objects.filter(pk=project.pk).update(overrides={"default_pipeline": "gone"})
    assert "“gone”, which is not in the file" in overview(project)


def test_faults_stand_at_the_lines_that_they_are_about(runner: Runner) -> None:
    project = runner.project("interactionThreshold: 2\nmodel: claudius\npiplines: {}\n")
    page = overview(project)
    assert '<li id="line-3" class="line-error">' in page and '<li id="line-2" class="line-warning">' in page
    assert "piplines is not a known key; did you mean &quot;pipelines&quot;?" in page
    assert "<strong>Warning</strong>" in page
    assert "Fix the errors" in page


def test_code_in_a_sentence_of_the_validation_is_shown_as_code(runner: Runner) -> None:
    files = {".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n'}
    page = overview(runner.project("toolchains: []\n", **files))
    assert "write <code>submodules: true</code> into" in page


def test_a_repository_without_settings_gets_a_text_to_begin_with(runner: Runner) -> None:
    source = runner.folder / "bare"
    GitRepository.make(source, **{"README.md": "# Bare", "Makefile": "test:\n\ttrue\n"})
    client = admin()
    client.post(LIST, {"name": "bare", "source": str(source)})
    page = overview(Project.objects.get(), client)
    assert "the built-in pipeline is used" in page and "No problems" in page
    assert "# How Cat Herder works in this repository" in page and "command: make test" in page


def test_hostile_files_are_only_text(runner: Runner) -> None:
    script = "<script>alert(1)</script>"
    page = overview(runner.project(f"# {script}\nmodel: '{script}'\n"))
    assert script not in page and "&lt;script&gt;" in page


def test_a_huge_file_is_listed_but_not_shown(runner: Runner) -> None:
    assert "larger than" in overview(runner.project("# " + "x" * 1_100_000))
    assert "more lines" in overview(runner.project("# x\n" * 5000))


def test_a_project_that_was_never_fetched_has_its_page() -> None:
    assert "The source has not been fetched yet" in overview(ProjectFactory.create())


def test_fetching_brings_the_newest_commit(runner: Runner) -> None:
    project = runner.project()
    GitRepository(Path(project.source)).commit(**{"README.md": "# Newer"})
    client = member(project)
    before = overview(project, client)
    answer = client.post(reverse("project_fetch", args=[project.pk]), follow=True)
    assert "Fetched." in answer.text
    newest = GitRepository(Path(project.source)).git("rev-parse", "HEAD")[:10]
    assert newest not in before and newest in answer.text


def test_a_fetch_that_fails_says_why(runner: Runner) -> None:
    project = runner.project()
    Path(project.source).rename(f"{project.source}-gone")
    client = member(project)
    client.post(reverse("project_fetch", args=[project.pk]))
    page = overview(project, client)
    assert "The last fetch failed" in page and "Fetch now" in page


def test_a_long_fetch_is_shown_while_it_runs(runner: Runner) -> None:
    project = runner.project()
    Project.objects.filter(pk=project.pk).update(fetching_since=timezone.now())
    assert not fetch_meanwhile(project, by=acting(runner.user))
    page = overview(project)
    assert "Fetching since" in page and 'hx-trigger="every 2s"' in page and "Fetch now" not in page


def test_a_fetch_whose_process_died_does_not_stop_the_next(runner: Runner) -> None:
    project = runner.project()
    long_ago = timezone.now() - timedelta(hours=1)
    Project.objects.filter(pk=project.pk).update(fetching_since=long_ago, fetch_fault="old")
    assert fetch_meanwhile(project, by=acting(runner.user))
    project.refresh_from_db()
    assert project.fetching_since is None and project.fetch_fault == ""


def test_an_unexpected_error_is_reported_too(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    project = runner.project()
    monkeypatch.setattr("tasks_app.git.Repository.fetch", lambda self, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fetch(project)
    projects._fetch_in_thread(project)
    project.refresh_from_db()
    assert "division by zero" in project.fetch_fault and project.fetching_since is None


def test_a_viewer_looks_and_cannot_fetch(runner: Runner) -> None:
    project = runner.project()
    client = member(project, Role.VIEWER)
    assert "Fetch now" not in overview(project, client)
    assert client.post(reverse("project_fetch", args=[project.pk])).status_code == 403


def test_the_overview_asks_the_database_as_often_with_many_tasks(runner: Runner) -> None:
    project = runner.project()
    client = member(project)
    TaskFactory.create(project=project)
    for phase in (Phase.RUNNING, Phase.WAITING_FOR_INPUT):
        TaskFactory.create(project=project, phase=phase)
    overview(project, client)
    with CaptureQueriesContext(connection) as few:
        overview(project, client)
    for phase in Phase:
        TaskFactory.create(project=project, phase=phase)
    with CaptureQueriesContext(connection) as many:
        overview(project, client)
    assert len(many) == len(few)
