"""P1: settings in the portal override those of the repository, visibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.models import Action, AuditEntry, Project, Role
from tasks_app.operations import local_sandbox
from tasks_app.sandbox import Limits, Sandbox
from tasks_app.services.projects.projects import fetch
from tasks_app.services.tasks import create_task
from tasks_app.web.projects import at_head
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner

SAYS_TWO = """\
interactionThreshold: 2
pipelines:
  careful: [{name: do, command: self}]
  quick: [{name: dash, command: self}]
"""
TEXT = "# Paint it\n\nBlue.\n"


@pytest.fixture
def project(runner: Runner) -> Project:
    return runner.project(SAYS_TWO)


def browser_of(project: Project, role: Role) -> Client:
    return signed_in(MembershipFactory.create(project=project, role=role).user)


def given(**changed: Any) -> dict[str, Any]:
    return {
        "threshold": "",
        "default_pipeline": "",
        "model": "",
        "wait_for_reset": "",
        "auto_commit": "",
        "publish_plan": "",
        "manage_git_branch": "",
        "max_turns": "",
        "max_cost_usd": "",
        "soft_cost_usd": "",
        "monthly_budget_usd": "",
        "max_running_tasks": "",
        "apply_decisions": "",
        "step_timeout": "",
        "check_timeout": "",
        **changed,
    }


@pytest.mark.django_db(transaction=True)
def test_what_the_portal_says_overrides_the_repository(runner: Runner, project: Project) -> None:
    client = browser_of(project, Role.MAINTAINER)
    address = reverse("project_settings", args=[project.pk])
    page = client.get(address).text
    assert "2 h (default)" in page and "10 min (default)" in page and "no limit" in page
    assert "careful (first pipeline)" in page and f"/projects/{project.pk}/#line-1" in page
    assert create_task(project, TEXT, by=acting(runner.user), where="t").threshold == 2
    chosen = given(
        threshold="4", default_pipeline="quick", model="opus", wait_for_reset="yes", auto_commit="yes"
    )
    assert client.post(address, chosen).status_code == 302
    project.refresh_from_db()
    task = create_task(project, TEXT, by=acting(runner.user), where="t")
    assert (task.threshold, task.pipeline, task.model) == (4, "quick", "opus")
    assert task.wait_for_reset and task.auto_commit
    assert "Saved." in client.get(address).text
    assert (
        create_task(
            project, f"---\ninteractionThreshold: 1\n---\n{TEXT}", by=acting(runner.user), where="t"
        ).threshold
        == 1
    )


@pytest.mark.django_db(transaction=True)
def test_nothing_chosen_leaves_it_to_the_repository_again(runner: Runner, project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(overrides={"threshold": 5, "auto_commit": True})
    browser_of(project, Role.MAINTAINER).post(reverse("project_settings", args=[project.pk]), given())
    project.refresh_from_db()
    assert project.overrides == {}


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold": "6"},
        {"threshold": "high"},
        {"default_pipeline": "none"},
        {"auto_commit": "x"},
        {"model": "--dangerous"},
        {"max_turns": "0"},
        {"max_cost_usd": "nan"},
        {"soft_cost_usd": "-1"},
        {"step_timeout": "soon"},
        {"model": "a\0b"},
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_bad_setting_is_refused_in_words(runner: Runner, project: Project, bad: dict[str, str]) -> None:
    page = browser_of(project, Role.MAINTAINER).post(
        reverse("project_settings", args=[project.pk]), given(**bad)
    )
    assert page.status_code == 400
    project.refresh_from_db()
    assert project.overrides == {}


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
@pytest.mark.django_db(transaction=True)
def test_only_maintainers_change_settings(runner: Runner, project: Project, role: Role) -> None:
    client = browser_of(project, role)
    address = reverse("project_settings", args=[project.pk])
    assert "Only maintainers of the project can change" in client.get(address).text
    assert client.post(address, given(threshold="5")).status_code == 403
    project.refresh_from_db()
    assert project.overrides == {}


@pytest.mark.django_db(transaction=True)
def test_a_broken_file_is_reported_on_the_page(runner: Runner) -> None:
    project = runner.project("interactionThreshold: 9\n")
    page = browser_of(project, Role.VIEWER).get(reverse("project_settings", args=[project.pk]))
    assert "cat-herder.yaml:1" in page.text


@pytest.mark.django_db(transaction=True)
def test_limits_and_branches_of_the_portal_hold_for_new_tasks(runner: Runner, project: Project) -> None:
    address = reverse("project_settings", args=[project.pk])
    chosen = given(max_turns="7", max_cost_usd="2.5", step_timeout="45m", manage_git_branch="no")
    assert browser_of(project, Role.MAINTAINER).post(address, chosen).status_code == 302
    project.refresh_from_db()
    task = create_task(project, TEXT, by=acting(runner.user), where="t")
    assert (task.max_turns, task.max_cost_usd, task.checkout) == (7, 2.5, "main")
    assert task.steps.get().config["timeout"] == 45 * 60


@pytest.mark.django_db(transaction=True)
def test_one_setting_is_reset_and_the_others_stay(runner: Runner, project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(overrides={"threshold": 5, "model": "opus"})
    client = browser_of(project, Role.MAINTAINER)
    address = reverse("project_settings", args=[project.pk])
    assert client.post(address, given(threshold="1", reset="threshold")).status_code == 302
    project.refresh_from_db()
    assert project.overrides == {"model": "opus"}


@pytest.mark.django_db(transaction=True)
def test_who_changed_what_stands_on_the_page(runner: Runner, project: Project) -> None:
    client = browser_of(project, Role.MAINTAINER)
    address = reverse("project_settings", args=[project.pk])
    client.post(address, given(threshold="4"))
    client.post(address, given(threshold="4"))
    assert AuditEntry.objects.filter(action=Action.SETTINGS_CHANGED).count() == 1
    page = client.get(address).text
    assert "Threshold: " in page and "→ 4" in page


@pytest.mark.django_db(transaction=True)
def test_a_maintainer_changes_the_branch(runner: Runner, project: Project) -> None:
    GitRepository(Path(project.source)).git("branch", "next")
    fetch(project)
    client = browser_of(project, Role.MAINTAINER)
    address = reverse("project_settings", args=[project.pk])
    refused = client.post(address, {"branch": "no-such\0branch"})
    assert refused.status_code == 400 and "The source had no branch" in refused.text
    assert client.post(address, {"branch": "next"}).status_code == 302
    project.refresh_from_db()
    assert project.branch == "next" and "main" in client.get(address).text
    assert browser_of(project, Role.MEMBER).post(address, {"branch": "main"}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_removing_asks_for_the_name_and_says_what_is_lost(runner: Runner, project: Project) -> None:
    create_task(project, TEXT, by=acting(runner.user), where="t")
    client = browser_of(project, Role.MAINTAINER)
    address = reverse("project_remove", args=[project.pk])
    assert "1 task, with their logs" in " ".join(
        client.get(reverse("project_settings", args=[project.pk])).text.split()
    )
    refused = client.post(address, {"name": "another"})
    assert refused.status_code == 400 and 'value="another"' in refused.text
    assert browser_of(project, Role.MEMBER).post(address, {"name": project.name}).status_code == 403
    assert client.post(address, {"name": project.name}).status_code == 302
    assert not Project.objects.filter(pk=project.pk).exists()
    assert client.post(address, {"name": project.name}).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_viewer_sees_what_holds_and_has_no_buttons(runner: Runner, project: Project) -> None:
    page = browser_of(project, Role.VIEWER).get(reverse("project_settings", args=[project.pk])).text
    assert "careful (first pipeline)" in page
    assert "Save settings" not in page and "Remove" not in page and "Change branch" not in page


@pytest.mark.django_db(transaction=True)
def test_a_bad_pattern_is_reported_with_its_line_and_the_input_stays(
    runner: Runner, project: Project
) -> None:
    typed = "Bash(git push*)\n\ngit push\n"
    page = browser_of(project, Role.MAINTAINER).post(
        reverse("project_settings", args=[project.pk]), given(ask_before=typed, model="opus")
    )
    assert page.status_code == 400
    assert "Line 3, “git push”, must be a tool such as WebFetch" in page.text
    assert "Bash(git push*)\n\ngit push" in page.text.replace("\r\n", "\n") and 'value="opus"' in page.text
    project.refresh_from_db()
    assert project.overrides == {}


@pytest.mark.django_db(transaction=True)
def test_patterns_of_the_portal_stand_in_place_of_the_files(runner: Runner) -> None:
    project = runner.project('askBefore: ["WebFetch"]\n' + SAYS_TWO)
    address = reverse("project_settings", args=[project.pk])
    chosen = given(ask_before="Bash(git push*)\r\nBash(git push*)\r\n")
    assert browser_of(project, Role.MAINTAINER).post(address, chosen).status_code == 302
    project.refresh_from_db()
    task = create_task(project, TEXT, by=acting(runner.user), where="t")
    assert list(task.ask_before) == ["Bash(git push*)"]


@pytest.mark.django_db(transaction=True)
def test_the_network_chosen_here_is_the_most_that_a_step_gets(runner: Runner) -> None:
    """M7: shown on the project's page and in its settings, and kept by the tasks that are created."""
    step = "{name: do, command: self, network: none}"
    project = runner.project(f"network: full\npipelines: {{p: [{step}], q: [{{name: do, command: self}}]}}\n")
    client = browser_of(project, Role.MAINTAINER)
    page = client.get(reverse("project", args=[project.pk])).text
    assert "Full network access" in page
    assert "No network, no web access of the model" in page
    address = reverse("project_settings", args=[project.pk])
    assert client.post(address, given(network="model")).status_code == 302
    page = client.get(reverse("project", args=[project.pk])).text
    project.refresh_from_db()
    assert "No network except the model" in page
    assert "Full network access" not in page
    for pipeline, network in (("p", "none"), ("q", "model")):
        task = create_task(project, TEXT, by=acting(runner.user), where="t", pipeline=pipeline)
        assert task.steps.get().config["network"] == network
    assert client.post(address, given(network="some")).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_a_network_that_cannot_be_blocked_is_reported_on_the_project_s_page(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_head, "sandbox", lambda: Sandbox(None, "bubblewrap is not installed."))
    project = runner.project("network: model\npipelines: {p: [{name: do, command: self}]}\n")
    page = browser_of(project, Role.VIEWER).get(reverse("project", args=[project.pk])).text
    assert "Cannot run here: bubblewrap is not installed." in page


@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_project_lists_the_limits_and_warns_of_those_that_nothing_holds(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M7: what cannot be held is shown."""
    limits = Limits(memory=3 << 30, processes=77, tmp=5 << 20)
    monkeypatch.setattr(local_sandbox, "sandbox", lambda: Sandbox(None).with_limits(limits, cgroup=None))
    project = runner.project("pipelines: {p: [{name: do, command: self}]}\n")
    client = browser_of(project, Role.VIEWER)
    page = client.get(reverse("project", args=[project.pk])).text
    section = page[page.index('aria-labelledby="limits-title"') :]
    rows = {row.split("</th>")[0]: row for row in section.split('<th scope="row">')[1:]}
    assert list(rows) == [
        "Memory",
        "Processes",
        "Files",
        "Temporary files",
        "Free disk kept",
        "CPU cores",
        "CPU",
    ]
    assert "3 GiB" in rows["Memory"] and "watched once a second" in rows["Memory"]
    assert "5 MiB" in rows["Temporary files"] and "tone-bad" in rows["Temporary files"]
    assert "not set" in rows["Files"]
    assert "after the portal" in rows["CPU"] and "tone-bad" in rows["CPU"]
    assert section.count("tone-bad") == 2


@pytest.mark.django_db(transaction=True)
def test_where_no_agent_may_be_run_there_are_no_limits_to_list(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Sandbox:
        raise SandboxUnavailable("there is none")

    monkeypatch.setattr(local_sandbox, "sandbox", missing)
    project = runner.project("pipelines: {p: [{name: do, command: self}]}\n")
    page = browser_of(project, Role.VIEWER).get(reverse("project", args=[project.pk]))
    assert page.status_code == 200 and "limits-title" not in page.text


@pytest.mark.parametrize(
    ("file", "given_now", "field"),
    [
        ("", {"soft_cost_usd": "5", "max_cost_usd": "5"}, "soft_cost_usd"),
        ("limits: {maxCostUsd: 4}\n", {"soft_cost_usd": "5"}, "soft_cost_usd"),
        ("limits: {softCostUsd: 6}\n", {"max_cost_usd": "5"}, "max_cost_usd"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_m8_a_soft_limit_that_is_not_below_the_hard_one_is_refused_at_its_field(
    runner: Runner, file: str, given_now: dict[str, str], field: str
) -> None:
    project = runner.project(file + SAYS_TWO)
    address = reverse("project_settings", args=[project.pk])
    page = browser_of(project, Role.MAINTAINER).post(address, given(**given_now))
    assert page.status_code == 400
    assert list(page.context["form"].errors) == [field]
    assert "The soft limit is" in page.text and "must be less than" in page.text
    script = Script(MembershipFactory.create(project=project, role=Role.MAINTAINER).user)
    numbers = {name: float(text) for name, text in given_now.items()}
    answer = script.send("patch", f"/projects/{project.name}/settings", numbers)
    assert answer.status_code == 400 and answer.json()["errors"][0]["where"] == field
    project.refresh_from_db()
    assert project.overrides == {}


@pytest.mark.django_db(transaction=True)
def test_m8_zero_switches_off_the_soft_limit_of_the_file(runner: Runner) -> None:
    project = runner.project("limits: {softCostUsd: 2}\n" + SAYS_TWO)
    assert create_task(project, TEXT, by=acting(runner.user), where="t").soft_cost_usd == 2
    client, address = browser_of(project, Role.MAINTAINER), reverse("project_settings", args=[project.pk])
    assert client.post(address, given(soft_cost_usd="0")).status_code == 302
    project.refresh_from_db()
    assert create_task(project, TEXT, by=acting(runner.user), where="t").soft_cost_usd is None
    assert "<strong>none</strong>" in client.get(address).text


@pytest.mark.django_db(transaction=True)
def test_m8_a_commit_that_puts_the_soft_limit_above_the_overridden_hard_one_blocks_no_task(
    runner: Runner,
) -> None:
    project = runner.project("limits: {softCostUsd: 6}\n" + SAYS_TWO)
    Project.objects.filter(pk=project.pk).update(overrides={"max_cost_usd": 5})
    project.refresh_from_db()
    task = create_task(project, TEXT, by=acting(runner.user), where="t")
    assert (task.soft_cost_usd, task.max_cost_usd) == (None, 5)
