"""Who leaves is out for good, and who stays gets in although strangers try (W1, W4, R4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from catherder_site.settings import ENVIRONMENT
from tasks_app.core.phases import Phase
from tasks_app.models import Action, ApiToken, AuditEntry, BrowserSession, PushSubscription, User
from tasks_app.models.account import hash_session_key
from tasks_app.services.accounts import end_all_access
from tasks_app.web.live.consumers import look_up_visibility
from tests.api import PROBLEM, Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def nothing_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", PASSWORD)


def log_in(client: Client, password: str = PASSWORD) -> int:
    return int(client.post("/login/", {"username": "ann", "password": password}).status_code)


def key_of(client: Client) -> str:
    return client.cookies["sessionid"].value


def deactivate(admin: Client, user: User) -> Any:
    """As a site admin does it on the page of the user."""
    page = reverse("admin:tasks_app_user_change", args=[user.pk])
    form = admin.get(page).context["adminform"].form
    given = {name: value for name, value in form.initial.items() if value not in (None, False, [], "")}
    joined = given.pop("date_joined")
    given |= {"date_joined_0": joined.date().isoformat(), "date_joined_1": joined.time().isoformat("seconds")}
    for name in ("is_active", "last_login", "password"):
        given.pop(name, None)
    return admin.post(page, given, follow=True)


def test_a_deactivated_account_keeps_nothing_also_when_it_comes_back(ann: User) -> None:
    client, script = signed_in(ann), Script(ann)
    PushSubscription.objects.create(user=ann, endpoint_digest="d", encrypted="", host="push.example.org")
    task = TaskFactory.create(created_by=ann, phase=Phase.RUNNING)
    admin = signed_in(UserFactory.create(is_superuser=True, is_staff=True))
    shown = deactivate(admin, ann)
    ann.refresh_from_db()
    assert not ann.is_active
    assert "1 of their tasks work or wait" in shown.text
    User.objects.filter(pk=ann.pk).update(is_active=True)
    assert client.get("/inbox/").status_code == 302
    assert script.get("/me").status_code == 401
    assert not PushSubscription.objects.exists()
    assert look_up_visibility([key_of(client)]) == {}
    assert AuditEntry.objects.filter(action=Action.TOKEN_REVOKED).count() == 1
    chosen = {"action": "cancel_tasks", "_selected_action": [ann.pk]}
    admin.post(reverse("admin:tasks_app_user_changelist"), chosen)
    task.refresh_from_db()
    assert task.phase == Phase.CANCELLED


def test_access_can_be_ended_without_deactivating(ann: User) -> None:
    script = Script(ann)
    end_all_access(ann, by=ann)
    assert script.get("/me").status_code == 401 and not ann.sessions.exists()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_new_password_revokes_the_tokens_if_that_is_wanted(ann: User, wanted: bool) -> None:
    client, script = Client(), Script(ann)
    log_in(client)
    assert 'name="revoke_tokens"' in client.get("/me/password/").text
    given = {"oldpassword": PASSWORD, "password1": "another horse", "password2": "another horse"}
    client.post("/me/password/", given | ({"revoke_tokens": "on"} if wanted else {}))
    ann.refresh_from_db()
    assert ann.check_password("another horse")
    assert script.get("/me").status_code == (401 if wanted else 200)
    assert ApiToken.objects.filter(revoked_at=None).exists() is not wanted


@pytest.mark.parametrize("password", ["iloveyou1", "Password123", "qwertyuiop", "1q2w3e4r5t"])
def test_a_password_known_from_breaches_is_refused(ann: User, password: str) -> None:
    """Django ships the 20,000 that are most frequent in published breaches."""
    client = Client()
    log_in(client)
    given = {"oldpassword": PASSWORD, "password1": password, "password2": password}
    assert "too common" in client.post("/me/password/", given).text
    ann.refresh_from_db()
    assert ann.check_password(PASSWORD)


class TestIdleSessions:
    @pytest.fixture
    def session(self, ann: User) -> Client:
        client = signed_in(ann)
        BrowserSession.objects.update(seen_at=timezone.now() - timedelta(hours=169))
        return client

    def test_an_unused_login_ends_with_its_sockets(self, session: Client) -> None:
        assert look_up_visibility([key_of(session)]) == {}
        assert session.get("/inbox/").status_code == 302

    def test_the_time_is_a_setting(self, session: Client, settings: Any) -> None:
        settings.ENVIRONMENT = ENVIRONMENT.model_copy(update={"session_idle_hours": 0})
        assert session.get("/inbox/").status_code == 200

    def test_a_page_that_refreshes_itself_is_no_use_of_it(self, ann: User) -> None:
        client, before = signed_in(ann), timezone.now() - timedelta(hours=1)
        BrowserSession.objects.update(seen_at=before)
        row = BrowserSession.objects.filter(pk=hash_session_key(key_of(client)))
        client.get("/navigation/", headers={"HX-Request": "true"})
        assert row.get().seen_at == before
        client.get("/inbox/")
        assert row.get().seen_at > before


class TestRequiredSecondFactor:
    @pytest.fixture(autouse=True)
    def required(self, settings: Any) -> None:
        settings.ENVIRONMENT = ENVIRONMENT.model_copy(update={"second_factor": "required"})

    def test_without_one_there_is_only_the_page_that_sets_it_up(self, ann: User) -> None:
        client = signed_in(ann)
        page = client.get("/inbox/")
        assert (page.status_code, page["Location"]) == (302, reverse("mfa_activate_totp"))
        assert client.get("/navigation/", headers={"HX-Request": "true"}).status_code == 403
        refused = client.get("/api/v1/me")
        assert (refused.status_code, refused["Content-Type"]) == (403, PROBLEM)
        assert client.post(reverse("first_steps_dismiss")).status_code == 403
        assert look_up_visibility([key_of(client)]) == {}
        assert client.post("/logout/").status_code == 302

    def test_the_page_that_sets_it_up_can_be_used(self, ann: User) -> None:
        client = Client()
        log_in(client)
        page = client.get("/inbox/", follow=True)
        assert page.status_code == 200 and page.redirect_chain[0][0] == reverse("mfa_activate_totp")

    def test_with_one_the_portal_is_open(self, ann: User) -> None:
        Authenticator.objects.create(user=ann, type="totp", data={"secret": "x"})
        client = signed_in(ann)
        assert client.get("/inbox/").status_code == 200
        assert key_of(client) in look_up_visibility([key_of(client)])


class TestLockedOutByStrangers:
    @pytest.fixture(autouse=True)
    def exhausted(self, settings: Any) -> None:
        limits = {**settings.ACCOUNT_RATE_LIMITS, "login_failed_anywhere": "3/h/key"}
        settings.ACCOUNT_RATE_LIMITS = limits

    def exhaust(self) -> None:
        for number in range(4):
            stranger = Client(REMOTE_ADDR=f"192.0.2.{number}")
            stranger.post("/login/", {"username": "ann", "password": "guess"})

    def test_a_known_browser_gets_in(self, ann: User) -> None:
        known = Client(REMOTE_ADDR="198.51.100.1")
        assert log_in(known) == 302
        known.post("/logout/")
        self.exhaust()
        assert log_in(Client(REMOTE_ADDR="198.51.100.2")) == 429
        assert log_in(known) == 302

    def test_the_cookie_of_somebody_else_does_not_help(self, ann: User) -> None:
        User.objects.create_user("ben", "ben@example.org", PASSWORD)
        other = Client(REMOTE_ADDR="198.51.100.1")
        other.post("/login/", {"username": "ben", "password": PASSWORD})
        other.post("/logout/")
        self.exhaust()
        assert log_in(other) == 429
        for _ in range(25):  # more than a known browser may fail
            assert log_in(other) == 429
        other.cookies["known_browser"] = "1:forged"
        assert log_in(other) == 429

    def test_nobody_else_can_use_up_the_tries_of_a_known_browser(self, ann: User) -> None:
        known = Client(REMOTE_ADDR="198.51.100.1")
        log_in(known)
        known.post("/logout/")
        User.objects.create_user("ben", "ben@example.org", PASSWORD)
        other = Client(REMOTE_ADDR="198.51.100.2")
        other.post("/login/", {"username": "ben", "password": PASSWORD})
        other.post("/logout/")
        self.exhaust()
        for number in range(25):
            other.post("/login/", {"username": "ann", "password": "guess"}, REMOTE_ADDR=f"203.0.113.{number}")
        assert log_in(known) == 302

    def test_with_a_second_factor_the_password_leads_to_the_code(self, ann: User) -> None:
        Authenticator.objects.create(user=ann, type="totp", data={"secret": "x"})
        self.exhaust()
        client = Client(REMOTE_ADDR="198.51.100.2")
        page = client.post("/login/", {"username": "ann", "password": PASSWORD}, follow=True)
        assert "Second factor" in page.text

    @pytest.mark.parametrize("name", ["ann", "ANN@example.org", "nobody"])
    def test_a_stranger_does_not_learn_who_has_a_second_factor(
        self, ann: User, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Neither by the answer nor by its time: a password is hashed, whoever was named."""
        hashed: list[str] = []
        encode = MD5PasswordHasher.encode

        def noted(hasher: Any, password: str, salt: str) -> str:
            hashed.append(password)
            return str(encode(hasher, password, salt))

        monkeypatch.setattr(MD5PasswordHasher, "encode", noted)
        seen = set()
        for has_one in (False, True):
            cache.clear()
            if has_one:
                Authenticator.objects.create(user=ann, type="totp", data={"secret": "x"})
            for number in range(4):
                stranger = Client(REMOTE_ADDR=f"192.0.2.{number}")
                stranger.post("/login/", {"username": name, "password": "guess"})
            hashed.clear()
            page = Client(REMOTE_ADDR="203.0.113.1").post("/login/", {"username": name, "password": "guess"})
            seen.add((page.status_code, str(page.context["form"].errors), tuple(hashed)))
        ((status, _, hashes),) = seen
        assert status == 429 and hashes == ("guess",)


class TestAudit:
    def entries(self, action: Action) -> list[str]:
        found = AuditEntry.objects.filter(action=action).order_by("pk")
        return list(found.values_list("subject", flat=True))

    @pytest.mark.parametrize("way", ["page", "api"])
    def test_who_asks_for_a_row_of_another_project_is_recorded_once_an_hour(
        self, ann: User, way: str
    ) -> None:
        task, other = TaskFactory.create(), TaskFactory.create()
        client: Any = signed_in(ann) if way == "page" else Script(ann)
        where = "/tasks/{}/" if way == "page" else "/tasks/{}"
        for number in (task.pk, task.pk, other.pk, 10**6):
            assert client.get(where.format(number)).status_code == 404
        assert self.entries(Action.REFUSED) == [f"task {task.pk}", f"task {other.pk}"]
        found = AuditEntry.objects.filter(action=Action.REFUSED, actor=ann, project=task.project)
        assert found.count() == 1

    def test_unusable_tokens_are_recorded_and_then_counted(self, ann: User) -> None:
        script = Script(ann)
        ApiToken.objects.update(name="ci", revoked_at=timezone.now())
        assert script.get("/me").status_code == 401
        client = Client()
        for number in range(30):
            header = {"Authorization": f"Bearer cath_guess-{number}"}
            assert client.get("/api/v1/me", headers=header).status_code == 401
        found = self.entries(Action.TOKEN_REFUSED)
        assert found[:2] == ["“ci” of ann", "an unknown one"] and len(found) < 30
        last = AuditEntry.objects.filter(action=Action.TOKEN_REFUSED).latest("pk")
        assert last.detail["names"] == {"an unknown one": last.detail["count"]}

    def test_names_of_many_failed_logins_stay_known(self, ann: User) -> None:
        for number in range(40):
            name = "ann" if number % 2 else f"nobody-{number}"
            Client().post("/login/", {"username": name, "password": "guess"})
        last = AuditEntry.objects.filter(action=Action.LOGIN_FAILED).latest("pk")
        assert last.detail["count"] > 1 and len(last.detail["names"]) <= 20
        assert any(name.startswith("nobody-") for name in last.detail["names"])

    def test_a_downloaded_log_is_recorded_once(self, ann: User) -> None:
        task = TaskFactory.create()
        MembershipFactory.create(user=ann, project=task.project)
        client, script = signed_in(ann), Script(ann)
        for _ in range(2):
            assert client.get(f"/tasks/{task.pk}/steps/1/output.log").status_code == 200
            assert script.get(f"/tasks/{task.pk}/steps/1/logs/output").status_code == 200
        assert self.entries(Action.DOWNLOADED) == [f"task-{task.pk}-step-1-output.log"]
