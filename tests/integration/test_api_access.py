"""Every operation of the API as stranger, outsider, viewer and member (W1, W5), by its OpenAPI document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.api.app import document
from tasks_app.history.events.blocks import append_one
from tasks_app.models import Delivery, EventKind, Invitation, Project, Question, Role, Scope, Target, User
from tasks_app.services.projects.projects import add_project
from tests.addresses import text_of
from tests.api import PROBLEM, Script
from tests.databases import undone
from tests.factories import (
    DecisionFactory,
    MemberGroupFactory,
    MembershipFactory,
    QuestionFactory,
    SequenceFactory,
    ThreadFactory,
    UserFactory,
)
from tests.integration.git_repository import GitRepository
from tests.runner import ONE_STEP

pytestmark = [pytest.mark.django_db, pytest.mark.once(on="sqlite")]  # the fuzz goes to PostgreSQL


@dataclass(frozen=True)
class Line:
    """An operation: the scope that it needs, what is sent, and what each kind of person gets."""

    scope: Scope = Scope.READ
    body: Any = None
    outsider: int = 404
    viewer: int = 200
    member: int = 200
    maintainer: int | None = None
    restricted: int | None = None  # a token for another project; else as an outsider
    query: str = ""


def everybody(scope: Scope = Scope.READ) -> Line:
    """Tells each their own."""
    return Line(scope, outsider=200)


def writes(body: Any = None, *, member: int = 200, scope: Scope = Scope.WRITE) -> Line:
    return Line(scope, body, viewer=403, member=member)


def manages(body: Any = None, *, maintainer: int = 200) -> Line:
    return Line(Scope.MANAGE, body, viewer=403, member=403, maintainer=maintainer)


HOOK = {
    "medium": "webhook",
    "name": "hook",
    "url": "https://example.org/hook",
    "event_types": ["failed"],
}
LINES = {
    "get_me": everybody(),
    "list_notices": everybody(),
    "read_notices": Line(Scope.WRITE, {}, outsider=200),
    "list_tokens": everybody(Scope.MANAGE),
    "revoke_token": Line(Scope.MANAGE, viewer=404, member=404),
    "get_preferences": everybody(),
    "change_preferences": Line(Scope.MANAGE, {"project_selection": "all"}, outsider=200, restricted=403),
    "get_working_hours": everybody(),
    "change_working_hours": Line(
        Scope.MANAGE,
        {"week": [None] * 6 + [{"begin": "10:00", "end": "12:00"}], "absences": [], "time_zone": "UTC"},
        outsider=200,
        restricted=403,
    ),
    "get_absence_calendar": Line(viewer=404, member=404),
    "change_absence_calendar": Line(
        Scope.MANAGE, {"url": "https://calendar.example.org/a.ics"}, outsider=200, restricted=403
    ),
    "read_absence_calendar": Line(Scope.MANAGE, viewer=404, member=404),
    "remove_absence_calendar": Line(Scope.MANAGE, viewer=404, member=404),
    "list_targets": Line(),
    "add_target": manages(HOOK, maintainer=201),
    "change_target": manages({"name": "hook", "event_types": ["done"], "active": False}),
    "remove_target": manages(maintainer=204),
    "renew_secret": manages(),
    "try_target": manages(),
    "list_deliveries": Line(),
    "send_again": manages(),
    "get_usage": everybody(),
    "list_audit": everybody(Scope.MANAGE),
    "export_audit": everybody(Scope.MANAGE),
    "list_projects": everybody(),
    "add_project": Line(Scope.MANAGE, {"project": "x", "source": "/x"}, 403, 403, 403, 403),
    "get_project": Line(),
    "change_project": manages({"branch": "main"}),
    "remove_project": manages(maintainer=204),
    "fetch_project": writes(),
    "get_settings": Line(),
    "change_settings": manages({"threshold": 2}),
    "list_pipelines": Line(),
    "get_validation": Line(),
    "list_files": Line(viewer=403),
    "get_file": Line(viewer=403, query="?path=tasks/one.md"),
    "list_folders": Line(viewer=403),
    "publish_task": writes({}, member=409),
    "let_agent_merge": writes(member=409),
    "list_publications": Line(),
    "get_publishing": Line(),
    "change_publishing": manages({"author": "Bot <bot@example.org>"}),
    "store_credential": manages({"kind": "token", "secret": "x"}, maintainer=400),
    "remove_credential": manages(maintainer=204),
    "create_forge_webhook": manages(),
    "remove_forge_webhook": manages(maintainer=204),
    "list_members": Line(),
    "put_member": manages({"role": "viewer"}),
    "remove_member": manages(maintainer=204),
    "list_groups": Line(),
    "put_group": manages({"members": ["ann"]}),
    "delete_group": manages(maintainer=204),
    "list_invitations": manages(),
    "create_invitation": manages({"email": "new@example.org", "role": "viewer"}, maintainer=201),
    "renew_invitation": manages(),
    "withdraw_invitation": manages(maintainer=204),
    "list_tasks": everybody(),
    "create_task": writes({"project": "shop", "text": "# Do it"}, member=201),
    "export_tasks": everybody(),
    "preview_task": Line(body={"project": "shop", "text": "# Do it"}),
    "get_task": Line(),
    "change_task": writes({"threshold": 2}),
    "start_task": writes(),
    "get_queue": everybody(),
    "cancel_task": writes(),
    "watch_task": Line(Scope.WRITE),
    "unwatch_task": Line(Scope.WRITE),
    "resume_task": writes(member=409),
    "list_steps": Line(),
    "retry_step": writes({}, member=409),
    "list_reviews": Line(),
    "create_review": writes({"verdict": "comment", "body": "Hm."}, member=400),
    "list_threads": Line(),
    "reply_to_thread": writes({"text": "Please do."}),
    "resolve_thread": writes({}),
    "list_events": Line(),
    "get_diff": Line(),
    "get_patch": Line(viewer=409, member=409),
    "get_log": Line(),
    "list_sequences": everybody(),
    "create_sequence": writes({"project": "shop", "folder": "nowhere"}, member=400),
    "get_sequence": Line(),
    "get_sequence_patch": Line(viewer=409, member=409),
    "start_sequence": writes(),
    "cancel_sequence": writes(),
    "resume_sequence": writes(member=409),
    "publish_sequence": writes({}, member=409),
    "let_agent_merge_sequence": writes(member=409),
    "list_questions": everybody(),
    "export_questions": everybody(),
    "get_question": Line(),
    "answer_question": writes({"answer": "Half up"}, scope=Scope.ANSWER),
    "dismiss_question": writes({}, scope=Scope.ANSWER),
    "decide_question": writes({"verdict": "approved"}, member=400, scope=Scope.ANSWER),
    "claim_question": writes(scope=Scope.ANSWER),
    "release_question": writes(scope=Scope.ANSWER),
    "undo_question": writes(scope=Scope.ANSWER),
    "ask_somebody": writes({"to": "ann", "kind": "hand_over"}, scope=Scope.ANSWER),
    "take_back_asking": writes(scope=Scope.ANSWER),
    "list_decisions": Line(),
    "make_decision": writes({"statement": "Cents."}, member=201, scope=Scope.ANSWER),
    "preview_decision_import": Line(viewer=403),
    "import_decisions": writes({}, member=201, scope=Scope.ANSWER),
    "export_decisions": writes(),
    "get_decision": Line(),
    "revise_decision": writes({"statement": "Mills."}, member=201, scope=Scope.ANSWER),
    "confirm_decision": writes(scope=Scope.ANSWER),
    "keep_decision": writes({}, scope=Scope.ANSWER),
    "retire_decision": writes({}, scope=Scope.ANSWER),
    "restore_decision": writes(member=409, scope=Scope.ANSWER),
}


@cache
def addresses() -> dict[str, tuple[str, str]]:
    """The method and the path of each operation. Not read on import: the document takes 2 s to make."""
    return {
        operation["operationId"]: (method, path.removeprefix("/api/v1"))
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("source") / "repository"
    return str(GitRepository.make(place, **{"cat-herder.yaml": ONE_STEP, "tasks/one.md": "# One"}).path)


@pytest.fixture
def question(source: str, settings: Any, tmp_path: Path) -> Question:
    """In a sequence, so that every operation has its thing."""
    settings.DATA_DIR = tmp_path
    project = add_project("shop", source)
    question = QuestionFactory.create(task__project=project, task__title="a hidden title")
    task = question.task
    task.sequence = SequenceFactory.create(project=project, phase=task.phase)
    task.save(update_fields=["sequence"])
    append_one(question.run, EventKind.TEXT, {"text": "hello"})
    MembershipFactory.create(project=project, user__username="ann")
    MemberGroupFactory.create(project=project, name="leads")
    Invitation.objects.create(project=project, email="a-hidden@example.org", token_hash="none")
    target = Target.objects.create(project=project, medium="webhook", name="a hidden place")
    Delivery.objects.create(target=target, medium="webhook", event_type="failed", due_at=timezone.now())
    ThreadFactory.create(task=task)
    DecisionFactory.create(project=project)
    # Somebody fetches already: another fetch would be a thread that does not see this transaction.
    Project.objects.update(fetching_since=timezone.now())
    return question


def call(name: str, question: Question, script: Script) -> Any:
    method, path = addresses()[name]
    task = question.task
    values = {
        "number": 1,
        "target_id": Target.objects.get().pk,
        "delivery_id": Delivery.objects.get().pk,
        "project": task.project.name,
        "task_id": task.pk,
        "sequence_id": task.sequence_id,
        "question_id": question.pk,
        "position": 1,
        "kind": "output",
        "username": "ann",
        "group": "leads",
        "invitation_id": Invitation.objects.get().pk,
        "token_id": 9999,
    }
    address = re.sub(r"{(\w+)}", lambda found: str(values[found[1]]), path)
    return script.send(method, address + LINES[name].query, LINES[name].body)


def member(question: Question, role: Role) -> User:
    return MembershipFactory.create(project=question.task.project, role=role).user


def told(answer: Any, status: int, question: Question) -> None:
    """The status, problems as problems, and nothing about what one may not see."""
    assert answer.status_code == status, answer.content
    if status >= 400:
        assert answer["Content-Type"] == PROBLEM
        assert answer.json()["status"] == status
    if status in (401, 404):
        assert question.headline not in text_of(answer) and "hidden" not in text_of(answer)


def test_every_operation_has_a_line() -> None:
    assert set(LINES) == set(addresses())


def test_an_anonymous_request_gets_401(question: Question, subtests: pytest.Subtests) -> None:
    for name in addresses():
        with subtests.test(name), undone():
            told(answer := call(name, question, Script(None)), 401, question)
            assert answer["WWW-Authenticate"].startswith("Bearer")


def test_an_outsider_learns_nothing(question: Question, subtests: pytest.Subtests) -> None:
    outsider = Script(UserFactory.create())
    for name in addresses():
        with subtests.test(name), undone():
            told(answer := call(name, question, outsider), LINES[name].outsider, question)
            assert "hidden" not in text_of(answer)


def test_a_viewer_looks_and_changes_nothing(question: Question, subtests: pytest.Subtests) -> None:
    viewer = Script(member(question, Role.VIEWER))
    for name in addresses():
        with subtests.test(name), undone():
            told(call(name, question, viewer), LINES[name].viewer, question)
            question.refresh_from_db()
            assert question.is_open


def test_a_member_acts(question: Question, subtests: pytest.Subtests) -> None:
    script = Script(member(question, Role.MEMBER))
    for name in addresses():
        with subtests.test(name), undone():
            told(call(name, question, script), LINES[name].member, question)


def test_a_maintainer_manages(question: Question, subtests: pytest.Subtests) -> None:
    maintainer = Script(member(question, Role.MAINTAINER))
    names = [name for name, line in LINES.items() if line.maintainer and name != "remove_project"]
    for name in [*names, "remove_project"]:  # last: the repository goes from the disk for good
        with subtests.test(name), undone():
            told(call(name, question, maintainer), LINES[name].maintainer or 0, question)


def test_a_token_without_the_scope_is_refused_even_to_an_admin(
    question: Question, subtests: pytest.Subtests
) -> None:
    admin = UserFactory.create(is_superuser=True)
    for name, line in LINES.items():
        with subtests.test(name), undone():
            script = Script(admin, *(scope for scope in Scope if scope is not line.scope))
            told(answer := call(name, question, script), 403, question)
            assert "lacks the scope" in answer.json()["detail"]
            question.refresh_from_db()
            assert question.is_open


def test_a_token_for_another_project_sees_as_little_as_an_outsider(
    question: Question, subtests: pytest.Subtests
) -> None:
    admin = UserFactory.create(is_superuser=True)
    script = Script(admin, projects=[MembershipFactory.create(user=admin).project])
    for name in addresses():
        with subtests.test(name), undone():
            told(
                answer := call(name, question, script),
                LINES[name].restricted or LINES[name].outsider,
                question,
            )
            assert "hidden" not in text_of(answer)
            question.refresh_from_db()
            assert question.is_open
