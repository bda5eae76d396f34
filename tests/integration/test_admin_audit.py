"""The admin pages: every row can be found, history cannot be changed (W4)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    AnswerDraft,
    ApiToken,
    Asked,
    AuditEntry,
    BrowserSession,
    Calendar,
    Change,
    ChangedDay,
    ChangeKind,
    DayFigures,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    Delivery,
    Event,
    EventBlock,
    EventKind,
    EventType,
    IdempotencyKey,
    IndexedAnswer,
    Installation,
    Invitation,
    Medium,
    MemberGroup,
    Membership,
    ModelUsage,
    Notice,
    PersonUsage,
    Preferences,
    Project,
    Publication,
    PublishCredential,
    PullRequest,
    PushSubscription,
    Question,
    Reason,
    Review,
    ReviewThread,
    Run,
    Rung,
    SentSpan,
    Sequence,
    SequenceTransition,
    SessionEntry,
    Setup,
    Step,
    SummedDay,
    Target,
    Task,
    ThreadComment,
    Transition,
    User,
    ViewedFile,
    WorkerBeat,
    WorkerToken,
    WorkingHours,
)
from tasks_app.web.admin_site import GROUPS
from tests.databases import undone
from tests.factories import (
    AskedFactory,
    DecisionFactory,
    MemberGroupFactory,
    ThreadFactory,
    WorkerBeatFactory,
)

pytestmark = pytest.mark.django_db

REGISTERED = sorted(admin.site._registry, key=lambda model: model.__name__)
HISTORY: list[type[Model]] = [
    Run,
    Setup,
    SentSpan,
    Sequence,
    Event,
    EventBlock,
    Question,
    AnswerDraft,
    Asked,
    Calendar,
    MemberGroup,
    Rung,
    IndexedAnswer,
    Transition,
    SequenceTransition,
    Change,
    SessionEntry,
    Step,
    LogEntry,
    AuditEntry,
    WorkerBeat,
    WorkerToken,
    ApiToken,
    IdempotencyKey,
    Invitation,
    Preferences,
    WorkingHours,
    Notice,
    Delivery,
    Publication,
    Review,
    ReviewThread,
    ThreadComment,
    ViewedFile,
    PushSubscription,
    Decision,
    DecisionEvent,
    ModelUsage,
    PersonUsage,
    DayFigures,
    SummedDay,
    ChangedDay,
]


def test_the_index_groups_every_model_by_area() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    groups = {group["name"]: group["models"] for group in client.get("/admin/").context["app_list"]}
    assert list(groups) == list(GROUPS)
    shown = [model["model"] for models in groups.values() for model in models]
    assert sorted(shown, key=lambda model: model.__name__) == REGISTERED
    assert {model["model"] for model in groups["Reviews"]} == {
        Review,
        ReviewThread,
        ThreadComment,
        ViewedFile,
    }
    page = client.get("/admin/").content.decode()
    assert "People and login" in page and 'href=""' not in page
    assert client.get("/admin/tasks_app/").status_code == 200


def make(name: str) -> Task:
    """A task with one row of everything around it."""
    user = User.objects.create_user(name)
    project = Project.objects.create(name=name, source=f"/srv/{name}", branch="main")
    Membership.objects.create(user=user, project=project)
    sequence = Sequence.objects.create(project=project, slug=name, folder=name, branch=name)
    task = Task.objects.create(
        sequence=sequence,
        file="01.md",
        project=project,
        slug=name,
        title=f"Task {name}",
        pipeline="feature",
        created_by=user,
    )
    step = Step.objects.create(task=task, position=1, name="plan", config={})
    run = Run.objects.create(step=step, number=1, reason=Reason.FIRST, session_id=uuid.uuid4())
    SentSpan.objects.create(span_id=name)
    Setup.objects.create(task=task, number=1, current=f"install {name}")
    Event.objects.create(run=run, seq=0, kind=EventKind.TEXT, at=timezone.now(), payload={"text": name})
    numbers = {"first_seq": 1, "last_seq": 1, "first_id": 7, "last_id": 7, "failures": 0}
    EventBlock.objects.create(run=run, kinds={"text": 1}, content=b"", **numbers)
    question = Question.objects.create(
        task=task,
        step=step,
        run=run,
        number=1,
        way="command",
        tool_use_id=name,
        items=[{"question": f"{name}?"}],
        asked_at=timezone.now(),
    )
    AskedFactory.create(question=question, user=user)
    MemberGroupFactory.create(project=project, name=name)
    AnswerDraft.objects.create(question=question, user=user, answers={})
    Rung.objects.create(question=question, position=1, action="remind", due=timezone.now())
    IndexedAnswer.objects.create(question=question, project=project, question_key=name, words=name)
    moved = Transition.objects.create(
        task=task, step=step, source=Phase.PENDING, target=Phase.RUNNING, actor=user
    )
    SequenceTransition.objects.create(
        sequence=sequence, source=Phase.PENDING, target=Phase.RUNNING, actor=user
    )
    _tell(user, moved)
    Change.objects.create(task=task, kind=ChangeKind.TASK)
    Publication.objects.create(task=task, commit="c", url="u", branch=name)
    ThreadFactory.create(task=task)
    decision = DecisionFactory.create(project=project, statement=name, decided_by=user)
    DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.DECIDED, user=user, note=name)
    ViewedFile.objects.create(task=task, user=user, path="a.py", blob="b", key=name)
    PublishCredential.objects.create(
        project=project, kind="token", url="u", shown="user", encrypted_secret="x"
    )
    PullRequest.objects.create(
        project=project, task=task, kind="github", url="u", number=1, title=name, base="main",
        next_look_at=timezone.now(),
    )  # fmt: skip
    record(Action.TASK_CREATED, by=user, task=task)
    ApiToken.objects.create(user=user, name=name, digest=name)
    IdempotencyKey.objects.create(user=user, key=name, fingerprint=name)
    day = timezone.now().date()
    ModelUsage.objects.create(model=name, project=project, day=day)
    PersonUsage.objects.create(user=user, project=project, day=day)
    DayFigures.objects.create(project=project, day=day)
    SummedDay.objects.get_or_create(day=day)
    ChangedDay.objects.create(day=day)
    SessionEntry.objects.create(project_key=name, session_id=name, entry={})
    Group.objects.create(name=name)
    WorkerBeatFactory.create(host=name)
    WorkerToken.objects.create(name=name, digest=name)
    Installation.objects.get_or_create()
    BrowserSession.objects.create(session_key=name, user=user, expire_date=timezone.now() + timedelta(days=1))
    Invitation.objects.create(project=project, email=f"{name}@example.org", token_hash=name, invited_by=user)
    Authenticator.objects.create(user=user, type="totp", data={"secret": "hidden"})
    SocialAccount.objects.create(user=user, provider="github", uid=name)
    EmailAddress.objects.create(user=user, email=f"{name}@example.org")
    LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(Task),
        object_id=str(task.pk),
        object_repr=name,
        action_flag=CHANGE,
    )
    return task


def _tell(user: User, moved: Transition) -> None:
    """One row of everything that has to do with being told."""
    Preferences.objects.create(user=user)
    Calendar.objects.create(user=user, encrypted_url="x")
    WorkingHours.objects.create(user=user, week=[None] * 7)
    PushSubscription.objects.create(
        user=user, endpoint_digest=user.username, encrypted="x", host="push.example"
    )
    Notice.objects.create(user=user, task=moved.task, transition=moved, event_type=EventType.DONE)
    target = Target.objects.create(
        project=moved.task.project, medium=Medium.WEBHOOK, name=user.username, encrypted_url="x", shown="y"
    )
    Delivery.objects.create(
        transition=moved,
        event_type=EventType.DONE,
        medium=Medium.WEBHOOK,
        target=target,
        due_at=timezone.now(),
    )


@pytest.fixture
def task() -> Task:
    return make("first")


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def address(page: str, model: type[Model], *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def one(model: type[Model]) -> Model:
    return model._default_manager.all()[0]


def test_every_model_of_the_portal_is_registered() -> None:
    assert set(apps.get_app_config("tasks_app").get_models()) <= set(REGISTERED)


def test_an_admin_sees_the_list_the_search_and_the_row(
    root: Client, task: Task, subtests: pytest.Subtests
) -> None:
    for model in REGISTERED:
        with subtests.test(model.__name__):
            assert root.get(address("changelist", model)).status_code == 200
            assert root.get(address("changelist", model), {"q": "first"}).status_code == 200
            assert root.get(address("change", model, one(model).pk)).status_code == 200


def test_the_search_finds_and_passes_over(root: Client, task: Task, subtests: pytest.Subtests) -> None:
    day = timezone.now().date().isoformat()
    names: dict[type[Model], str] = {SummedDay: day, ChangedDay: day}
    names[Installation] = str(Installation.objects.get().identity)[:8]
    for model in REGISTERED:
        with subtests.test(model.__name__):
            name = names.get(model, "first")
            found = root.get(address("changelist", model), {"q": name}).context["cl"]
            passed = root.get(address("changelist", model), {"q": "no such thing"}).context["cl"]
            assert (len(found.result_list), len(passed.result_list)) == (1, 0)


@pytest.mark.parametrize("name", ["", "member", "staff"])
def test_nobody_else_gets_in(name: str, client: Client, task: Task, subtests: pytest.Subtests) -> None:
    rows = {model: one(model).pk for model in REGISTERED}
    if name:
        client.force_login(User.objects.create_user(name, is_staff=name == "staff"))
    for model, pk in rows.items():
        with subtests.test(model.__name__):
            for page, args in (("changelist", []), ("change", [pk]), ("delete", [pk])):
                assert client.get(address(page, model, *args)).status_code in (302, 403)


def test_history_takes_no_change(root: Client, task: Task, subtests: pytest.Subtests) -> None:
    for model in HISTORY:
        with subtests.test(model.__name__), undone():
            row = one(model)
            before = list(model._default_manager.values())
            assert root.post(address("add", model), {}).status_code == 403
            assert root.post(address("change", model, row.pk), {"kind": "note"}).status_code == 403
            assert root.post(address("delete", model, row.pk), {"post": "yes"}).status_code == 403
            selected = {"action": "delete_selected", "_selected_action": [row.pk]}
            root.post(address("changelist", model), selected)
            assert list(model._default_manager.values()) == before


def test_a_longer_list_costs_no_more_queries(root: Client, task: Task, subtests: pytest.Subtests) -> None:
    def queries(model: type[Model]) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert root.get(address("changelist", model)).status_code == 200
        return len(captured)

    make("second")
    for model in REGISTERED:
        queries(model)  # fills the cache of content types
    few = {model: queries(model) for model in REGISTERED}
    for number in range(10):
        make(f"more-{number}")
    for model in REGISTERED:
        with subtests.test(model.__name__):
            assert queries(model) == few[model]


def test_a_task_can_be_put_right_but_its_phase_cannot(root: Client, task: Task) -> None:
    root.post(
        address("change", Task, task.pk),
        {"title": "Better", "threshold": 3, "model": "", "phase": "done", "lease_epoch": 9},
    )

    task.refresh_from_db()
    assert (task.title, task.threshold, task.phase, task.lease_epoch) == ("Better", 3, "pending", 0)


def test_an_edited_task_keeps_the_phase_that_it_got_meanwhile(root: Client, task: Task) -> None:
    """R3: the form's row was read before the worker moved it."""
    form = root.get(address("change", Task, task.pk)).context["adminform"].form
    stale = Task.objects.get(pk=task.pk)
    Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING)
    form.changed_data = ["title"]
    stale.title = "Better"

    admin.site._registry[Task].save_model(None, stale, form, change=True)  # type: ignore[arg-type]

    task.refresh_from_db()
    assert (task.title, task.phase) == ("Better", Phase.RUNNING)


def test_an_edited_task_is_announced_to_open_pages(root: Client, task: Task) -> None:
    before = task.changes.count()

    root.post(address("change", Task, task.pk), {"title": "Better", "threshold": 3, "model": ""})

    assert task.changes.count() == before + 1


@pytest.mark.parametrize("way", ["one", "selected"])
def test_a_project_with_tasks_is_kept_and_the_page_says_why(root: Client, task: Task, way: str) -> None:
    if way == "one":
        page = root.post(address("delete", Project, task.project_id), {"post": "yes"})
    else:
        selected = {"action": "delete_selected", "_selected_action": [task.project_id], "post": "yes"}
        page = root.post(address("changelist", Project), selected)

    assert "first has 1 task, whose history" in page.content.decode()
    assert Project.objects.filter(pk=task.project_id).exists()


def test_an_empty_project_can_be_deleted_with_its_memberships(root: Client) -> None:
    project = Project.objects.create(name="empty", source="/srv/empty", branch="main")
    Membership.objects.create(user=User.objects.create_user("member"), project=project)

    root.post(address("delete", Project, project.pk), {"post": "yes"})

    assert not Project.objects.exists()


def test_who_made_history_cannot_be_deleted_and_the_page_says_what_to_do(root: Client, task: Task) -> None:
    page = root.post(address("delete", User, task.created_by_id), {"post": "yes"})

    assert "Clear “Active” instead" in page.content.decode()
    assert User.objects.filter(username="first").exists()


def test_people_and_roles_can_be_edited(root: Client, task: Task) -> None:
    membership = Membership.objects.get()

    root.post(
        address("change", Membership, membership.pk),
        {"user": membership.user_id, "project": membership.project_id, "role": "viewer"},
    )
    root.post(
        address("add", User),
        {
            "username": "new",
            "password1": "long enough 1",
            "password2": "long enough 1",
            "usable_password": "true",
        },
    )

    assert Membership.objects.get().role == "viewer"
    assert User.objects.filter(username="new").exists()
