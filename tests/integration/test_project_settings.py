"""P1: settings in the portal override those of the repository, visibly. H5: the inbox."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.actions.tasks import create_task
from tasks_app.models import Project, QuestionState, Role
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.works import Works

SAYS_TWO = """\
interactionThreshold: 2
pipelines:
  careful: [{name: do, command: self}]
  quick: [{name: dash, command: self}]
"""
TEXT = "# Paint it\n\nBlue.\n"


@pytest.fixture
def project(works: Works) -> Project:
    return works.project(SAYS_TWO)


def signed_in(project: Project, role: Role) -> Client:
    client = Client()
    client.force_login(MembershipFactory(project=project, role=role).user)
    return client


def given(**changed: Any) -> dict[str, Any]:
    return {
        "threshold": "",
        "default_pipeline": "",
        "model": "",
        "wait_for_reset": "",
        "auto_commit": "",
        **changed,
    }


@pytest.mark.django_db(transaction=True)
def test_what_the_portal_says_overrides_the_repository(works: Works, project: Project) -> None:
    client = signed_in(project, Role.MAINTAINER)
    address = reverse("project_settings", args=[project.pk])
    page = client.get(address).text
    assert "as cat-herder.yaml: 2" in page and "as cat-herder.yaml: careful" in page
    assert create_task(project, TEXT, by=works.user, where="t").threshold == 2
    chosen = given(
        threshold="4", default_pipeline="quick", model="opus", wait_for_reset="yes", auto_commit="yes"
    )
    assert client.post(address, chosen).status_code == 302
    project.refresh_from_db()
    task = create_task(project, TEXT, by=works.user, where="t")
    assert (task.threshold, task.pipeline, task.model) == (4, "quick", "opus")
    assert task.wait_for_reset and task.auto_commit
    assert "Saved." in client.get(address).text
    assert (
        create_task(project, f"---\ninteractionThreshold: 1\n---\n{TEXT}", by=works.user, where="t").threshold
        == 1
    )


@pytest.mark.django_db(transaction=True)
def test_nothing_chosen_leaves_it_to_the_repository_again(works: Works, project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(threshold=5, auto_commit=True)
    signed_in(project, Role.MAINTAINER).post(reverse("project_settings", args=[project.pk]), given())
    project.refresh_from_db()
    assert (project.threshold, project.auto_commit) == (None, None)


@pytest.mark.parametrize(
    "bad", [{"threshold": "6"}, {"threshold": "high"}, {"default_pipeline": "none"}, {"auto_commit": "x"}]
)
@pytest.mark.django_db(transaction=True)
def test_a_bad_setting_is_refused_in_words(works: Works, project: Project, bad: dict[str, str]) -> None:
    page = signed_in(project, Role.MAINTAINER).post(
        reverse("project_settings", args=[project.pk]), given(**bad)
    )
    assert page.status_code == 400
    project.refresh_from_db()
    assert (project.threshold, project.default_pipeline, project.auto_commit) == (None, "", None)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
@pytest.mark.django_db(transaction=True)
def test_only_maintainers_change_settings(works: Works, project: Project, role: Role) -> None:
    client = signed_in(project, role)
    address = reverse("project_settings", args=[project.pk])
    assert "maintainers can change this" in client.get(address).text
    assert client.post(address, given(threshold="5")).status_code == 403
    project.refresh_from_db()
    assert project.threshold is None


@pytest.mark.django_db(transaction=True)
def test_a_broken_file_is_told_on_the_page(works: Works) -> None:
    project = works.project("interactionThreshold: 9\n")
    page = signed_in(project, Role.VIEWER).get(reverse("project_settings", args=[project.pk]))
    assert "cat-herder.yaml:1" in page.text


@pytest.mark.django_db
def test_the_inbox_has_open_answered_and_withdrawn_questions() -> None:
    """H5: the card is on the inbox too."""
    opened = QuestionFactory(items=[{"question": "Still open?"}])
    user = MembershipFactory(project=opened.task.project).user
    done = {"task": opened.task, "step": opened.step, "run": opened.run}
    QuestionFactory(
        **done,
        number=2,
        tool_use_id="two",
        items=[{"question": "Long answered?"}],
        state=QuestionState.ANSWERED,
        answered_at=timezone.now(),
        answered_by=user,
        answered_via="web",
        answers={"Long answered?": "Indeed."},
    )
    withdrawn = {"tool_use_id": "three", "state": QuestionState.WITHDRAWN}
    QuestionFactory(**done, number=3, items=[{"question": "Taken back?"}], **withdrawn)
    client = Client()
    client.force_login(user)
    page = client.get(reverse("inbox")).text
    assert "Still open?" in page and "Long answered?" not in page and "Send answer and resume" in page
    answered = client.get(reverse("inbox"), {"state": "answered", "project": opened.task.project.name}).text
    assert "Long answered?" in answered and "Indeed." in answered and "Still open?" not in answered
    assert "Taken back?" in client.get(reverse("inbox"), {"state": "withdrawn"}).text
    assert (
        "Still open?" in client.get(reverse("inbox"), {"state": "\x00", "project": "\x00", "page": "x"}).text
    )


@pytest.mark.django_db
def test_the_inbox_pages_and_its_queries_do_not_grow() -> None:
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    counts = []
    for many in (1, 30):
        for _ in range(many):
            QuestionFactory()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page = client.get(reverse("inbox"))
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert page.text.count('<article class="card') == 20
    assert "1 of 2" in page.text
