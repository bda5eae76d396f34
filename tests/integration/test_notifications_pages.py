"""W6: choosing what one is told, a project's webhooks and chats, and the notices in the page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.encryption import decrypt
from tasks_app.models import (
    Action,
    AuditEntry,
    Delivery,
    DeliveryState,
    EventType,
    Notice,
    Preferences,
    Project,
    Role,
    Target,
    Transition,
    User,
)
from tasks_app.notifications import chat
from tasks_app.notifications.notices import create_notifications
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory
from tests.integration.test_notifications import answered, asked, hook, member

pytestmark = pytest.mark.django_db

SECRET_ADDRESS = "https://hook.example/services/T0P53CR37"


def maintainer(project: Project) -> Client:
    return signed_in(MembershipFactory.create(project=project, role=Role.MAINTAINER).user)


def list_of(project: Project) -> str:
    return reverse("project_notifications", args=[project.pk])


def chosen(**changed: Any) -> dict[str, Any]:
    subscriptions = {
        f"subscription-{one}-{medium}": "off"
        for one in ("question", "failed", "done", "cancelled", "unanswered", "reviewed", "not_published")
        for medium in ("page", "email", "chat")
    }
    return {
        **subscriptions,
        "project_selection": "all",
        "time_zone": "Europe/Berlin",
        "digest": "at_once",
        **changed,
    }


# ---- my settings ----


def test_what_is_chosen_is_kept_and_recorded() -> None:
    user = MembershipFactory.create().user
    project = user.memberships.get().project
    given = chosen(**{
        "subscription-question-email": "all", "project_selection": "chosen", "projects": [project.pk],
        "quiet_from": "22:00",
        "quiet_until": "07:30", "digest": "daily", "digest_at": "09:15",
    })  # fmt: skip
    assert signed_in(user).post(reverse("me_notifications"), given).status_code == 302
    kept = Preferences.objects.get(user=user)
    assert kept.selected_tasks("question", "email") == "all" and kept.selected_tasks("done", "page") == "off"
    assert list(kept.projects.all()) == [project]
    assert (str(kept.quiet_until), kept.digest, str(kept.digest_at)) == ("07:30:00", "daily", "09:15:00")
    entry = AuditEntry.objects.get(action=Action.NOTIFICATIONS_CHANGED)
    assert entry.actor == user and entry.detail["digest"] == "daily"
    assert 'value="07:30"' in signed_in(user).get(reverse("me_notifications")).text


def test_a_user_has_one_time_zone() -> None:
    """That of the profile is that of quiet hours and digests, wherever it was chosen."""
    user = UserFactory.create(username="ann")
    client = signed_in(user)
    assert client.post(reverse("me_notifications"), chosen(time_zone="Asia/Tokyo")).status_code == 302
    assert User.objects.get().time_zone == Preferences.objects.get().time_zone == "Asia/Tokyo"
    profile = {"name": "", "email": "", "theme": "auto", "time_zone": "Asia/Kolkata"}
    assert client.post(reverse("me"), profile).status_code == 302
    page = client.get(reverse("me_notifications")).text
    assert '<option value="Asia/Kolkata" selected>' in page and "data-browser-time-zone" not in page
    assert Preferences.objects.get().time_zone == "Asia/Kolkata"
    client.post(reverse("me_notifications"), chosen(time_zone="UTC"))
    assert (User.objects.get().time_zone, Preferences.objects.get().time_zone) == ("", "UTC")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quiet_from": "22:00"}, "both a beginning and an end"),
        ({"digest": "daily"}, "Enter a time"),
        ({"time_zone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"subscription-question-page": "loudly"}, "loudly"),
        ({"quiet_from": "99:99", "quiet_until": "nul\x00l"}, "valid time"),
    ],
)
def test_an_invalid_choice_is_reported_and_nothing_changes(wrong: dict[str, str], message: str) -> None:
    user = UserFactory.create()
    page = signed_in(user).post(reverse("me_notifications"), chosen(**wrong))
    assert page.status_code == 400 and message in page.text
    assert not Preferences.objects.exists()


def test_nobody_chooses_a_project_that_they_do_not_see() -> None:
    other = ProjectFactory.create()
    client = signed_in(UserFactory.create())
    page = client.post(reverse("me_notifications"), chosen(project_selection="chosen", projects=[other.pk]))
    assert page.status_code == 400 and other.name not in page.text


def test_the_own_chat_is_shown_masked_tried_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "check", lambda address: None)
    user = UserFactory.create()
    client = signed_in(user)
    client.post(reverse("me_notifications"), chosen(chat="discord://123/T0P53CR37"))
    target = Target.objects.get(user=user)
    assert decrypt(target.encrypted_url) == "discord://123/T0P53CR37" and "T0P53" not in target.shown
    assert "T0P53" not in client.get(reverse("me_notifications")).text
    assert client.post(reverse("me_notifications_test")).status_code == 302
    assert Delivery.objects.get().event_type == "test"
    client.post(reverse("me_notifications"), chosen(forget_chat="on"))
    assert not Target.objects.exists()
    assert "T0P53" not in json.dumps(list(AuditEntry.objects.values("detail", "subject")))


# ---- a project's targets ----


def test_a_webhook_is_added_with_a_secret_that_is_shown_once() -> None:
    project = ProjectFactory.create()
    client = maintainer(project)
    given = {"medium": "webhook", "name": "CI", "url": SECRET_ADDRESS, "event_types": ["question", "done"]}
    page = client.post(list_of(project), given)
    target = Target.objects.get()
    secret = decrypt(target.encrypted_secret)
    assert secret in page.text and len(secret) > 30
    assert decrypt(target.encrypted_url) == SECRET_ADDRESS and target.event_types == ["question", "done"]
    again = client.get(list_of(project)).text
    assert secret not in again and "T0P53" not in again and "hook.example" in again
    told = json.dumps(list(AuditEntry.objects.values("detail", "subject")))
    assert "CI" in told and secret not in told and "T0P53" not in told
    row = Target.objects.values().get()
    assert not [value for value in row.values() if secret in str(value) or SECRET_ADDRESS in str(value)]


def test_a_new_secret_takes_the_place_of_the_old_one_and_is_shown_once() -> None:
    task = TaskFactory.create()
    project = task.project
    client, target = maintainer(project), hook(task)
    old = decrypt(target.encrypted_secret)
    address = reverse("target_secret", args=[project.pk, target.pk])
    assert "Create new secret" in client.get(list_of(project)).text
    page = client.post(address).text
    target.refresh_from_db()
    new = decrypt(target.encrypted_secret)
    assert new != old and len(new) > 30
    assert new in page
    assert new not in client.get(list_of(project)).text
    entry = AuditEntry.objects.get(action=Action.NOTIFICATIONS_CHANGED)
    assert entry.detail["new_secret"]["name"] == target.name and new not in json.dumps(entry.detail)


def test_a_chat_has_no_secret_to_renew() -> None:
    task = TaskFactory.create()
    project = task.project
    chat_target = hook(task)
    Target.objects.update(medium="chat", encrypted_secret="")
    client = maintainer(project)
    assert "Create new secret" not in client.get(list_of(project)).text
    said = client.post(reverse("target_secret", args=[project.pk, chat_target.pk]), follow=True).text
    assert "Only webhooks have a secret." in said
    assert Target.objects.get().encrypted_secret == ""


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://example.org/", "https:// or http:// URL"),
        ("https://user:pass@example.org/", "not contain a user or password"),
        ("https://exämple.org/", "ASCII characters"),
        ("https://example.org:99999/", "https:// or http:// URL"),
        ("https://example.org/a b", "ASCII characters"),
        ("http://[::1", "https:// or http:// URL"),
        ("x" * 2000, "at most 1000"),
        ("", "required"),
    ],
)
def test_an_invalid_url_is_reported_and_the_input_stays(address: str, message: str) -> None:
    project = ProjectFactory.create()
    given = {"medium": "webhook", "name": "My hook", "url": address, "event_types": ["done"]}
    page = maintainer(project).post(list_of(project), given)
    assert page.status_code == 400 and message in page.text and "My hook" in page.text
    assert not Target.objects.exists()


def test_a_target_is_changed_tried_out_and_removed() -> None:
    question = asked()
    project, target = question.task.project, hook(question.task)
    client = maintainer(project)
    here = {"project_id": project.pk, "target_id": target.pk}
    client.post(reverse("target_test", kwargs=here))
    assert Delivery.objects.get().event_type == "test"
    client.post(reverse("target_change", kwargs=here), {"name": "New", "event_types": ["failed"]})
    target.refresh_from_db()
    assert (target.name, target.event_types, target.active) == ("New", ["failed"], False)
    page = client.post(reverse("target_test", kwargs=here), follow=True)
    assert "switched off" in page.text and Delivery.objects.count() == 1
    page = client.post(reverse("target_change", kwargs=here), {"name": ""}, follow=True)
    assert "was not changed" in page.text
    client.post(reverse("target_remove", kwargs=here))
    assert not Target.objects.exists()
    assert AuditEntry.objects.filter(action=Action.NOTIFICATIONS_CHANGED, project=project).count() == 2


def test_a_change_that_cannot_be_saved_keeps_what_was_typed() -> None:
    question = asked()
    project, target = question.task.project, hook(question.task, "done")
    other = hook(question.task, "failed")
    change = reverse("target_change", kwargs={"project_id": project.pk, "target_id": target.pk})
    page = maintainer(project).post(change, {"name": "Nightly builds"})
    assert page.status_code == 400
    assert "was not changed" in page.text and "Select at least one." in page.text
    forms = dict(page.context["rows"])
    assert (forms[target]["name"].value(), forms[target]["active"].value()) == ("Nightly builds", False)
    assert (forms[other]["name"].value(), forms[other]["event_types"].value()) == ("hook", ["failed"])
    assert page.text.count('<details class="target-edit" open>') == 1
    target.refresh_from_db()
    assert (target.name, target.event_types) == ("hook", ["done"])


def test_what_was_given_up_is_sent_again_and_what_was_sent_is_not() -> None:
    question = asked()
    target = hook(question.task)
    project = question.task.project
    delivery = Delivery.objects.create(
        target=target, event_type="test", medium="webhook", due_at=timezone.now(), state="failed", attempts=8
    )
    client = maintainer(project)
    again = reverse("delivery_retry", kwargs={"project_id": project.pk, "delivery_id": delivery.pk})
    assert "Send now" in client.get(list_of(project)).text
    client.post(again)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (DeliveryState.WAITING, 0)
    Delivery.objects.update(state=DeliveryState.SENT)
    assert "was already sent" in client.post(again, follow=True).text


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_only_maintainers_change_a_project_s_targets(role: str) -> None:
    question = asked()
    project, target = question.task.project, hook(question.task)
    client = signed_in(member(question.task, role=role))
    here = {"project_id": project.pk, "target_id": target.pk}
    given = {"medium": "webhook", "name": "x", "url": "https://example.org/", "event_types": ["done"]}
    assert client.get(list_of(project)).status_code == 200
    assert client.post(list_of(project), given).status_code == 403
    for name in ("target_change", "target_secret", "target_remove", "target_test"):
        assert client.post(reverse(name, kwargs=here), given).status_code == 403
    assert Target.objects.count() == 1 and not Delivery.objects.exists()


def test_a_target_of_another_project_is_404() -> None:
    other = hook(asked().task)
    project = ProjectFactory.create()
    here = {"project_id": project.pk, "target_id": other.pk}
    assert maintainer(project).post(reverse("target_remove", kwargs=here)).status_code == 404


def test_the_log_costs_no_more_queries_when_it_is_longer() -> None:
    question = asked()
    project = question.task.project
    client = maintainer(project)

    def queries() -> int:
        hook(question.task)
        Delivery.objects.bulk_create(
            Delivery(
                target=target, transition=question.task.transitions.first() if fresh else None,
                event_type="question", medium="webhook", due_at=timezone.now(),
            )
            for target in Target.objects.all() for fresh in (not target.deliveries.exists(),)
        )  # fmt: skip
        with CaptureQueriesContext(connection) as captured:
            client.get(list_of(project))
        return len(captured)

    queries()
    few = queries()
    for _ in range(4):
        last = queries()
    assert last == few


# ---- notices ----


def test_what_the_bell_counts_is_on_the_first_page_of_the_list() -> None:
    """However many newer ones are read already, and without those that an answer settled."""
    task = TaskFactory.create(phase=Phase.RUNNING)
    user = member(task)
    client = signed_in(user)
    for number in range(60):
        made = Transition.objects.create(task=task, source=Phase.RUNNING, target=Phase.DONE)
        read: dict[str, Any] = {"event_type": "question" if number == 1 else "cancelled"}
        read |= {"read_at": timezone.now()} if number > 1 else {}
        Notice.objects.create(user=user, task=task, transition=made, **read)
    page = client.get(reverse("notices")).text
    assert "Notifications, 1 unread" in page and page.count("notice-unread") == 1
    part = client.get(reverse("notices"), headers={"HX-Request": "true"}).text
    assert "<html" not in part and part.count("notice-unread") == 1


def test_the_bell_counts_what_is_unread_and_the_list_marks_it_read() -> None:
    first, second = asked(), asked()
    user = member(first.task)
    MembershipFactory.create(project=second.task.project, user=user)
    create_notifications()
    client = signed_in(user)
    assert "Notifications, " not in client.get("/tasks/").text, "the inbox shows open questions"
    Notice.objects.update(event_type="cancelled")
    page = client.get(reverse("notices")).text
    assert "Notifications, 2 unread" in page and first.headline in page and first.task.project.name in page
    client.post(reverse("notices_read"), {"notice": Notice.objects.get(task=first.task).pk})
    assert "Notifications, 1 unread" in client.get("/tasks/").text
    client.post(reverse("notices_read"))
    assert "unread" not in client.get(reverse("notices")).text


def test_a_site_admin_who_is_a_member_of_nothing_sees_all_their_notices() -> None:
    admin = UserFactory.create(is_superuser=True)
    task = TaskFactory.create(phase=Phase.CANCELLED)
    made = Transition.objects.create(task=task, source=Phase.RUNNING, target=Phase.CANCELLED)
    Notice.objects.create(user=admin, task=task, transition=made, event_type="cancelled")
    assert "Notifications, 1 unread" in signed_in(admin).get(reverse("notices")).text


def test_a_task_that_failed_and_is_done_by_now_leads_to_itself() -> None:
    """The page was an error: a task outside of a sequence has no sequence to lead to."""
    task = TaskFactory.create(phase=Phase.DONE)
    user = member(task)
    failed = Transition.objects.create(task=task, source=Phase.RUNNING, target=Phase.FAILED)
    Notice.objects.create(user=user, task=task, transition=failed, event_type=EventType.FAILED)
    page = signed_in(user).get(reverse("notices"))
    assert page.status_code == 200 and f'href="{reverse("task", args=[task.pk])}"' in page.text


def test_nobody_reads_for_somebody_else() -> None:
    question = asked()
    member(question.task)
    create_notifications()
    client = signed_in(UserFactory.create(is_superuser=True))
    client.post(reverse("notices_read"), {"notice": Notice.objects.get(user__is_superuser=False).pk})
    client.post(reverse("notices_read"), {"notice": "nonsense\x00"})
    assert Notice.objects.get(user__is_superuser=False).read_at is None


def test_news_bring_the_questions_that_came_since_as_toasts() -> None:
    question = asked()
    user = member(question.task)
    client = signed_in(user)
    assert 'name="after" value="0"' in client.get("/tasks/").text
    create_notifications()
    news = client.get(reverse("navigation"), {"after": "0"}).text
    assert "hx-swap-oob" in news and "toast" in news and question.headline in news
    known = Notice.objects.get().pk
    assert "toast" not in client.get(reverse("navigation"), {"after": known}).text
    answered(question)
    assert "toast" not in client.get(reverse("navigation"), {"after": "0"}).text


@pytest.mark.parametrize("after", ["", "x", "-1", "9" * 400, "²", "\x00"])
def test_nonsense_for_what_a_page_knows_is_no_error(after: str) -> None:
    assert signed_in(UserFactory.create()).get(reverse("navigation"), {"after": after}).status_code == 200


def test_the_list_of_notices_costs_no_more_queries_when_it_is_longer() -> None:
    question = asked()
    user = member(question.task)
    client = signed_in(user)

    def queries() -> int:
        create_notifications()
        with CaptureQueriesContext(connection) as captured:
            client.get(reverse("notices"))
        return len(captured)

    queries()
    few = queries()
    for _ in range(5):
        MembershipFactory.create(project=asked().task.project, user=user)
    assert queries() == few and Notice.objects.filter(user=user).count() == 6
