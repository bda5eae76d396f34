"""The way in (W1): names and addresses, throttling, a forgotten password, the second factor, the trail."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from django.core import mail
from django.test import Client
from django.urls import NoReverseMatch, reverse

from tasks_app.models import Action, AuditEntry, BrowserSession, User
from tests.browser import signed_in

pytestmark = pytest.mark.django_db

RIGHT = {"username": "ann", "password": "correct horse"}


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", "correct horse")


@pytest.fixture
def mails(settings: Any) -> list[Any]:
    settings.SENDS_EMAIL = True
    return mail.outbox


def is_in(client: Client) -> bool:
    return client.get("/inbox/").status_code == 200


def told(action: Action) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=action))


@pytest.mark.parametrize("name", ["ann", "ANN", "ann@example.org", " Ann@Example.org "])
def test_name_and_address_both_log_in(ann: User, client: Client, name: str) -> None:
    assert client.post("/login/", {**RIGHT, "username": name})["Location"] == "/tasks/"
    assert is_in(client)
    (entry,) = told(Action.LOGGED_IN)
    assert (entry.actor, entry.ip_address) == (ann, "127.0.0.1")


def test_the_login_mentions_the_page_that_was_asked_for(client: Client) -> None:
    words = "Log in to open the page"
    assert words in client.get("/tasks/1/", follow=True).text
    assert words not in client.get("/", follow=True).text


def test_the_login_says_that_a_session_ended_and_that_somebody_logged_out(ann: User, client: Client) -> None:
    client.post("/login/", RIGHT)
    BrowserSession.objects.all().delete()
    page = client.get("/tasks/1/?step=2", follow=True)
    assert "session has ended" in page.text and 'name="next" value="/tasks/1/?step=2"' in page.text
    client.post("/login/", RIGHT)
    assert "You are logged out" in client.post("/logout/", follow=True).text
    assert "session has ended" not in client.get("/tasks/1/", follow=True).text


class TestAFormThatIsSentAfterTheLoginEnded:
    def sent(self, client: Client, came_from: str) -> Any:
        return client.post("/tasks/1/cancel/", headers={"Referer": came_from} if came_from else {})

    @pytest.mark.parametrize(
        ("came_from", "back"),
        [
            ("http://testserver/tasks/1/?step=2", "/tasks/1/?step=2"),
            ("http://testserver", "/"),
            ("http://elsewhere.example/tasks/1/", "/"),
            ("http://testserver:81/tasks/1/", "/"),
            ("//testserver/tasks/1/", "/tasks/1/"),
            ("", "/"),
        ],
    )
    def test_it_leads_back_to_its_page_and_not_to_an_address_for_forms(
        self, ann: User, client: Client, came_from: str, back: str
    ) -> None:
        login = self.sent(client, came_from)["Location"]
        page = client.get(login)
        assert "what you sent was not saved" in page.text
        given = {**RIGHT, "next": page.context["redirect_field_value"]}
        assert client.post(login, given)["Location"] == back

    def test_it_is_shown_after_a_wrong_password_too(self, client: Client) -> None:
        login = self.sent(client, "http://testserver/tasks/1/")["Location"]
        page = client.post(login, {"username": "ann", "password": "hunter2", "next": "/tasks/1/"})
        assert "what you sent was not saved" in page.text


@pytest.mark.parametrize("name", ["ann", "ann@example.org", "nobody"])
def test_a_wrong_password_says_the_same_for_everybody(ann: User, client: Client, name: str) -> None:
    page = client.post("/login/", {"username": name, "password": "hunter2"})
    assert "Wrong user name or password" in page.text and f'value="{name}"' in page.text
    assert "hunter2" not in page.text and not is_in(client)
    (entry,) = told(Action.LOGIN_FAILED)
    assert entry.subject == name and "hunter2" not in str(vars(entry))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 255, "' OR 1=1 --"])
def test_an_odd_name_is_refused_in_words(ann: User, client: Client, name: str) -> None:
    page = client.post("/login/", {"username": name, "password": "correct horse"})
    assert page.status_code == 200 and 'role="alert"' in page.text


def test_a_login_that_is_switched_off_says_so(ann: User, client: Client) -> None:
    User.objects.update(is_active=False)
    page = client.post("/login/", RIGHT, follow=True)
    assert "deactivated" in page.text and not is_in(client)


def test_nobody_can_sign_up() -> None:
    with pytest.raises(NoReverseMatch):
        reverse("account_signup")


class TestThrottling:
    def fail(self, client: Client, times: int, name: str = "ann", **where: str) -> Any:
        for _ in range(times):
            page = client.post("/login/", {"username": name, "password": "wrong"}, **where)  # type: ignore[arg-type]
        return page

    def test_after_five_failures_even_the_right_password_has_to_wait(self, ann: User, client: Client) -> None:
        assert self.fail(client, 5).status_code == 200
        page = client.post("/login/", RIGHT)
        assert (
            page.status_code == 429 and "Too many failed logins" in page.text and "five minutes" in page.text
        )
        assert not is_in(client)

    def test_somebody_else_at_the_same_address_is_not_locked_out(self, ann: User, client: Client) -> None:
        User.objects.create_user("ben", password="correct horse")
        self.fail(client, 30)
        client.post("/login/", {**RIGHT, "username": "ben"})
        assert is_in(client)

    def test_an_attacker_elsewhere_does_not_lock_out_the_person(self, ann: User, client: Client) -> None:
        assert self.fail(Client(), 6, REMOTE_ADDR="192.0.2.7").status_code == 429
        client.post("/login/", RIGHT)
        assert is_in(client)

    def test_who_changes_addresses_is_stopped_as_well(self, client: Client) -> None:
        """An agent on this machine can say that it comes from anywhere."""
        for number in range(100):
            self.fail(client, 1, REMOTE_ADDR=f"192.0.2.{number}")
        page = client.post("/login/", RIGHT)
        assert page.status_code == 429 and "Wait an hour" in page.text

    def test_logins_that_succeed_do_not_count(self, ann: User) -> None:
        for _ in range(8):
            client = Client()
            client.post("/login/", RIGHT)
            assert is_in(client)

    def test_an_ip_address_that_tries_all_names_has_to_wait(self, client: Client) -> None:
        for number in range(120):
            client.post("/login/", {"username": f"name{number}"})
        page = client.post("/login/", {"username": "another"})
        assert page.status_code == 429 and "Too many requests" in page.text

    def test_the_admin_pages_have_the_same_login(self, client: Client) -> None:
        User.objects.create_superuser("root", password="correct horse")
        page = client.post("/admin/login/?next=/admin/", {"username": "root", "password": "correct horse"})
        assert page["Location"] == "/login/?next=%2Fadmin%2F" and not is_in(client)
        assert client.get("/admin/")["Location"].startswith("/admin/login/")
        client.post("/login/", {"username": "root", "password": "correct horse"})
        assert client.get("/admin/").status_code == 200
        assert client.get("/admin/password_change/")["Location"] == reverse("account_change_password")


class TestAForgottenPassword:
    def test_without_e_mail_the_page_says_whom_to_ask(self, client: Client) -> None:
        page = client.get("/password/reset/").text
        assert "sends no e-mail" in page and "site admin" in page and "<form" not in page
        assert client.post("/password/reset/", {"email": "ann@example.org"}).status_code == 200
        assert not mail.outbox

    def test_the_link_sets_a_new_one_once_and_ends_every_session(
        self, ann: User, client: Client, mails: list[Any]
    ) -> None:
        elsewhere = Client()
        elsewhere.post("/login/", RIGHT)
        assert (
            "a link was sent to it"
            in client.post("/password/reset/", {"email": "ANN@example.org"}, follow=True).text
        )
        (letter,) = mails
        assert letter.to == ["ann@example.org"] and "Your user name is ann" in letter.body
        link = re.search(r"http://127.0.0.1:\d+(\S+)", str(letter.body))[1]  # type: ignore[index]
        form = client.get(link, follow=True)
        where = form.redirect_chain[-1][0]
        assert "Repeat the new password" in form.text and "placeholder" not in form.text
        new = {"password1": "battery staple", "password2": "battery staple"}
        assert "Password changed" in client.post(where, new, follow=True).text
        assert not is_in(client) and not is_in(elsewhere)
        client.post("/login/", {**RIGHT, "password": "battery staple"})
        assert is_in(client)
        assert "This link does not work" in Client().get(link).text
        (entry,) = told(Action.PASSWORD_CHANGED)
        assert (entry.actor, entry.detail) == (ann, {"through": "e-mail"})

    def test_an_unknown_address_gets_nothing_and_the_page_says_the_same(
        self, ann: User, client: Client, mails: list[Any]
    ) -> None:
        pages = [
            client.post("/password/reset/", {"email": address}, follow=True).text
            for address in ("ann@example.org", "nobody@example.org")
        ]
        assert len({re.sub(r'data-now="[^"]*"', "", page) for page in pages}) == 1 and len(mails) == 1

    def test_a_mail_server_that_is_away_breaks_nothing(
        self, ann: User, client: Client, mails: list[Any], settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
        page = client.post("/password/reset/", {"email": "ann@example.org"}, follow=True)
        assert page.status_code == 200 and "could not be sent" in caplog.text

    @pytest.mark.parametrize("key", ["1-x", "zzzzzzzzzzzzz-x", "0-%00", "1-set-password", "1-" + "a" * 5000])
    def test_a_made_up_link_says_so(self, client: Client, key: str) -> None:
        page = client.get(f"/password/reset/{key}/")
        assert page.status_code == 200 and "This link does not work" in page.text


class TestCookies:
    @pytest.mark.parametrize("value", ["a\0b", "\\000", "x", "é" * 40, "a" * 5000, "'; --", " "])
    def test_any_session_cookie_is_a_strangers(self, value: str) -> None:
        """A NUL was a 500 on PostgreSQL, which takes none in a text."""
        client = Client(raise_request_exception=False)
        for name in ("sessionid", "csrftoken", "messages"):
            client.cookies[name] = value
        assert client.get("/inbox/")["Location"] == "/login/?next=/inbox/&ended=session"
        assert client.get("/login/").status_code == 200

    def test_the_database_does_not_have_what_the_browser_holds(self, ann: User, client: Client) -> None:
        client.post("/login/", RIGHT)
        held = client.cookies["sessionid"].value
        (session,) = BrowserSession.objects.filter(user=ann)
        assert held not in session.pk
        thief = Client()
        thief.cookies["sessionid"] = session.pk
        assert not is_in(thief)

    def test_logging_out_leaves_nothing_behind(self, ann: User, client: Client) -> None:
        client.post("/login/", RIGHT)
        assert client.get("/logout/").status_code == 405 and is_in(client)
        assert client.post("/logout/")["Location"] == "/login/?ended=logout"
        assert not is_in(client) and not BrowserSession.objects.filter(user=ann).exists()
        assert [entry.actor for entry in told(Action.LOGGED_OUT)] == [ann]


def code_of(user: User, *, later: int = 0) -> str:
    """What the app of the person shows; one that is `later` is another code that counts as well."""
    totp = Authenticator.objects.get(user=user, type="totp").wrap()
    from allauth.mfa.utils import decrypt

    counters = list(yield_hotp_counters_from_time())
    return str(format_hotp_value(hotp_value(decrypt(totp.instance.data["secret"]), counters[1 + later])))


def confirm(client: Client, page: str) -> Any:
    """Open a page that asks for the password first."""
    asked = client.get(page, follow=True)
    if "Confirm your password" not in asked.text:
        return asked
    where, _ = asked.redirect_chain[-1]
    return client.post(where, {"password": "correct horse", "next": page}, follow=True)


class TestTheSecondFactor:
    @pytest.fixture
    def inside(self, ann: User, client: Client) -> Client:
        client.post("/login/", RIGHT)
        return client

    @pytest.fixture
    def armed(self, ann: User, inside: Client, django_capture_on_commit_callbacks: Any) -> Client:
        """Ann has switched it on; this client is logged in."""
        page = confirm(inside, "/me/second-factor/").text
        secret = re.search(r'class="totp-key">(\w+)<', page)[1]  # type: ignore[index]
        time.sleep(max(0.0, time.time() % 30 - 20))  # a code of the period before must still count
        counter = next(iter(yield_hotp_counters_from_time()))
        self.first_code = format_hotp_value(hotp_value(secret, counter))
        given = {"code": self.first_code}
        with django_capture_on_commit_callbacks(execute=True):
            done = inside.post("/me/second-factor/", given, follow=True)
        self.codes = re.findall(r"<li>(\d{8})</li>", done.text)
        return inside

    def test_switching_it_on_asks_for_the_password_and_gives_codes(self, ann: User, armed: Client) -> None:
        assert len(self.codes) == 10
        assert self.codes[0] in armed.get("/me/second-factor/codes.txt").text
        assert "recovery codes left" in armed.get("/me/security/").text
        assert [entry.actor for entry in told(Action.SECOND_FACTOR_ON)] == [ann]

    def test_the_code_that_switched_it_on_does_not_count_again(self, ann: User, armed: Client) -> None:
        """Whoever looked over the shoulder then, or has the password as well, has only that code."""
        client = Client()
        client.post("/login/", RIGHT)
        page = client.post("/login/second-factor/", {"code": self.first_code})
        assert "Wrong code" in page.text and not is_in(client)
        spaced = f"{self.first_code[:3]} {self.first_code[3:]}"
        page = client.post("/login/second-factor/", {"code": spaced})
        assert not is_in(client)
        assert client.post("/login/second-factor/", {"code": code_of(ann, later=1)}).status_code == 302

    def test_a_code_does_not_count_again_as_long_as_it_would_count(
        self, ann: User, armed: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It counts for three periods of 30 seconds; it must not be forgotten after one."""
        code = code_of(ann, later=1)
        client = Client()
        client.post("/login/", RIGHT)
        assert client.post("/login/second-factor/", {"code": code}).status_code == 302
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 45)
        late = Client()
        late.post("/login/", RIGHT)
        late.post("/login/second-factor/", {"code": code})
        assert not is_in(late)

    def test_its_secret_is_not_in_the_table(self, ann: User, inside: Client) -> None:
        page = confirm(inside, "/me/second-factor/").text
        secret = re.search(r'class="totp-key">(\w+)<', page)[1]  # type: ignore[index]
        counter = list(yield_hotp_counters_from_time())[1]
        inside.post("/me/second-factor/", {"code": format_hotp_value(hotp_value(secret, counter))})
        assert all(secret not in str(row.data) for row in Authenticator.objects.filter(user=ann))

    def test_a_wrong_code_switches_nothing_on(self, ann: User, inside: Client) -> None:
        confirm(inside, "/me/second-factor/")
        page = inside.post("/me/second-factor/", {"code": "x"})
        assert "Wrong code" in page.text and not Authenticator.objects.exists()

    def test_the_password_alone_opens_nothing(self, ann: User, armed: Client) -> None:
        client = Client()
        page = client.post("/login/", {**RIGHT, "next": "/usage/"}, follow=True)
        assert "Second factor" in page.text and not is_in(client)
        assert client.get("/admin/", follow=True).status_code == 200 and not is_in(client)
        wrong = client.post("/login/second-factor/", {"code": "000000x"})
        assert "Wrong code" in wrong.text and not is_in(client)
        assert told(Action.LOGIN_FAILED)[0].detail == {"why": "second factor"}
        assert client.post("/login/second-factor/", {"code": code_of(ann, later=1)})["Location"] == "/usage/"
        assert is_in(client)

    def test_a_code_counts_once(self, ann: User, armed: Client) -> None:
        code = code_of(ann)
        outcomes = []
        for _ in range(2):
            client = Client()
            client.post("/login/", RIGHT)
            client.post("/login/second-factor/", {"code": code})
            outcomes.append(is_in(client))
        assert outcomes == [True, False]

    def test_a_recovery_code_counts_once(self, ann: User, armed: Client) -> None:
        outcomes = []
        for _ in range(2):
            client = Client()
            client.post("/login/", RIGHT)
            client.post("/login/second-factor/", {"code": self.codes[3]})
            outcomes.append(is_in(client))
        assert outcomes == [True, False]

    def test_guessing_codes_is_throttled(self, ann: User, armed: Client) -> None:
        client = Client()
        client.post("/login/", RIGHT)
        for _ in range(5):
            client.post("/login/second-factor/", {"code": "123"})
        page = client.post("/login/second-factor/", {"code": code_of(ann)})
        assert "Too many failed logins" in page.text and not is_in(client)

    def test_one_can_begin_again_as_somebody_else(self, ann: User, armed: Client) -> None:
        client = Client()
        client.post("/login/", RIGHT)
        client.post("/logout/")
        assert "Second factor" not in client.get("/login/", follow=True).text

    def test_it_can_be_switched_off_again(self, ann: User, armed: Client) -> None:
        page = confirm(armed, "/me/second-factor/off/")
        assert "password alone" in page.text
        armed.post("/me/second-factor/off/")
        assert not Authenticator.objects.filter(user=ann).exists()
        assert [entry.actor for entry in told(Action.SECOND_FACTOR_OFF)] == [ann]
        client = Client()
        client.post("/login/", RIGHT)
        assert is_in(client)

    def test_a_site_admin_takes_it_off_for_who_lost_the_phone(self, ann: User, armed: Client) -> None:
        root = signed_in(User.objects.create_superuser("root"))
        chosen = list(Authenticator.objects.values_list("pk", flat=True))
        posted = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
        page = root.get(reverse("admin:mfa_authenticator_change", args=chosen[:1])).text
        assert "secret" not in page and "seed" not in page
        root.post(reverse("admin:mfa_authenticator_changelist"), posted)
        (entry,) = told(Action.SECOND_FACTOR_OFF)
        assert (entry.actor_name, entry.subject) == ("root", "ann")
