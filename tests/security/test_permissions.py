"""Permissions ask for a principal: its limits cannot get lost, and without one nothing is open."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from tasks_app import permissions
from tasks_app.core.errors import NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.models import Membership, Project, Role, Scope, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.members import add_member
from tasks_app.services.projects.projects import add_project_as_admin, remove_project
from tasks_app.services.sequences import start_sequence
from tasks_app.services.tasks import cancel_task, create_task, resume_task, start_task
from tests.factories import MembershipFactory, ProjectFactory, SequenceFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

RULES = [
    rule
    for _, rule in inspect.getmembers(permissions, inspect.isfunction)
    if "principal" in inspect.signature(rule).parameters and not rule.__name__.startswith("_")
]


def principal_for(project: Project, *, superuser: bool = True) -> Principal:
    """A token that is restricted to the project, of somebody who may do everything everywhere."""
    user = UserFactory.create(is_superuser=superuser)
    MembershipFactory.create(user=user, project=project, role=Role.MAINTAINER)
    made = make_token("one project", tuple(Scope), by=acting(user), projects=[project])
    return Principal.of_token(made.token)


@pytest.mark.parametrize("superuser", [True, False])
def test_a_user_who_is_fetched_anew_keeps_the_limits_of_the_token(superuser: bool) -> None:
    mine, other = TaskFactory.create(), TaskFactory.create()
    limited = principal_for(mine.project, superuser=superuser)
    MembershipFactory.create(user=limited.user, project=other.project, role=Role.MAINTAINER)
    anew = replace(limited, user=User.objects.get(pk=limited.user.pk))
    for principal in (limited, anew, replace(anew, token=type(anew.token).objects.get())):  # type: ignore[union-attr]
        assert list(permissions.projects_visible_to(principal)) == [mine.project]
        assert list(permissions.tasks_visible_to(principal)) == [mine]
        assert permissions.may_maintain(principal, mine.project)
        assert not permissions.may_see(principal, other.project)
        assert not principal.is_site_admin


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("somebody", ["site admin", "anonymous", "nobody"])
def test_no_rule_answers_without_a_principal(rule: Callable[..., Any], somebody: str) -> None:
    task = TaskFactory.create()
    people = {
        "site admin": UserFactory.create(is_superuser=True),
        "anonymous": AnonymousUser(),
        "nobody": None,
    }
    rest = [task.project for _ in list(inspect.signature(rule).parameters)[1:]]
    with pytest.raises((TypeError, AttributeError)):
        rule(people[somebody], *rest)


def test_every_rule_is_tried() -> None:
    assert len(RULES) >= 20


@pytest.mark.parametrize("nobody", [AnonymousUser(), None, "ann"])
def test_only_a_user_who_is_logged_in_is_a_principal(nobody: Any) -> None:
    with pytest.raises(TypeError):
        Principal.unrestricted(nobody)


def test_a_token_acts_for_its_owner_alone() -> None:
    token = principal_for(ProjectFactory.create()).token
    with pytest.raises(ValueError, match="owner"):
        Principal(UserFactory.create(is_superuser=True), token)


def test_a_token_whose_projects_were_removed_sees_nothing() -> None:
    limited = principal_for(project := ProjectFactory.create())
    project.delete()
    assert not permissions.projects_visible_to(Principal.of_token(limited.token)).exists()  # type: ignore[arg-type]


def actions(task: Task) -> dict[str, Callable[[Any], object]]:
    sequence = SequenceFactory.create(project=task.project)
    return {
        "create_task": lambda by: create_task(task.project, "# Do it", by=by, where="task"),
        "start_task": lambda by: start_task(task, by=by),
        "cancel_task": lambda by: cancel_task(task, by=by),
        "resume_task": lambda by: resume_task(task, by=by),
        "start_sequence": lambda by: start_sequence(sequence, by=by),
        "add_member": lambda by: add_member(task.project, UserFactory.create(), Role.VIEWER, by=by),
        "remove_project": lambda by: remove_project(task.project, by=by),
        "add_project": lambda by: add_project_as_admin("new", "/nowhere", by=by),
    }


NAMES = (
    *("create_task", "start_task", "cancel_task", "resume_task", "start_sequence", "add_member"),
    *("remove_project", "add_project"),
)


@pytest.mark.parametrize("name", NAMES)
def test_no_service_acts_beyond_the_limits_of_the_token(name: str) -> None:
    task = TaskFactory.create(phase=Phase.PENDING)
    elsewhere = principal_for(ProjectFactory.create())
    with pytest.raises(NotAllowed):
        actions(task)[name](elsewhere)
    assert_untouched(task)


@pytest.mark.parametrize("name", NAMES)
def test_no_service_acts_for_a_bare_user(name: str) -> None:
    """Not even for a site admin: whether a token acts for them would not be known."""
    task = TaskFactory.create(phase=Phase.PENDING)
    admin = UserFactory.create(is_superuser=True)
    with pytest.raises((TypeError, AttributeError)):
        actions(task)[name](admin)
    assert_untouched(task)


def assert_untouched(task: Task) -> None:
    task.refresh_from_db()
    assert task.phase == Phase.PENDING and task.queued_at is None
    assert Task.objects.count() == 1
    assert not Membership.objects.filter(project=task.project).exists()


def test_a_token_makes_no_tokens() -> None:
    with pytest.raises(NotAllowed):
        make_token("another", [Scope.READ], by=principal_for(ProjectFactory.create()))
