"""My settings (W2): the name that others see, the address, and the look of the pages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from tasks_app.models import Action, AuditEntry, User

pytestmark = pytest.mark.django_db

GIVEN = {"name": "", "email": "ann@example.org", "theme": "auto"}


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", "correct horse")


@pytest.fixture
def inside(ann: User) -> Client:
    client = Client()
    client.post("/login/", {"username": "ann", "password": "correct horse"})
    return client


def save(client: Client, **given: str) -> Any:
    """Save the form; the password is given if it is asked for, and then the form comes by itself."""
    page = client.post("/me/", {**GIVEN, **given}, follow=True)
    if "Confirm your password" in page.text:
        where = page.redirect_chain[-1][0]
        page = client.post(where, {"password": "correct horse", "next": "/me/"}, follow=True)
    return page


def test_the_name_is_what_others_see(ann: User, inside: Client) -> None:
    assert "Saved." in save(inside, name="  Ann   Example ").text
    ann.refresh_from_db()
    assert ann.shown_name == "Ann Example"
    entry = AuditEntry.objects.get(action=Action.ACCOUNT_CHANGED)
    assert entry.detail == {"changed": {"name": ["ann", "Ann Example"]}}


def test_a_name_of_two_parts_stays_whole(ann: User, inside: Client) -> None:
    User.objects.update(first_name="Ann", last_name="Example")
    save(inside, name="Ann Example", theme="dark")
    assert not AuditEntry.objects.filter(action=Action.ACCOUNT_CHANGED).exists()
    assert User.objects.get().get_full_name() == "Ann Example"


def test_saving_unchanged_values_is_not_audited(ann: User, inside: Client) -> None:
    save(inside)
    assert not AuditEntry.objects.filter(action=Action.ACCOUNT_CHANGED).exists()


def test_without_e_mail_a_new_address_counts_after_the_password(ann: User, inside: Client) -> None:
    assert (
        "Confirm your password"
        in inside.post("/me/", {**GIVEN, "email": "new@example.org"}, follow=True).text
    )
    assert User.objects.get().email == "ann@example.org"
    save(inside, email="New@Example.org")
    assert User.objects.get().email == "new@example.org"
    assert AuditEntry.objects.filter(action=Action.ACCOUNT_CHANGED).count() == 1
    other = Client()
    other.post("/login/", {"username": "new@example.org", "password": "correct horse"})
    assert other.get("/inbox/").status_code == 200


def test_with_e_mail_a_new_address_counts_when_it_is_confirmed(
    ann: User, inside: Client, settings: Any
) -> None:
    settings.SENDS_EMAIL = True
    assert "A link was sent to new@example.org" in save(inside, email="new@example.org").text
    assert User.objects.get().email == "ann@example.org"
    assert "Follow the link that was sent to" in inside.get("/me/").text
    (letter,) = mail.outbox
    assert letter.to == ["new@example.org"]
    link = re.search(r"http://127.0.0.1:\d+(\S+)", str(letter.body))[1]  # type: ignore[index]
    assert "Confirm your e-mail address" in inside.get(link).text
    assert User.objects.get().email == "ann@example.org"
    inside.post(link)
    assert User.objects.get().email == "new@example.org"
    assert AuditEntry.objects.filter(action=Action.ACCOUNT_CHANGED).count() == 1
    assert "This link does not work" in Client().get("/email/confirm/made:up:link/").text


def test_the_address_of_somebody_else_is_refused(ann: User, inside: Client) -> None:
    User.objects.create_user("ben", "ben@example.org")
    page = save(inside, email="Ben@example.org", name="Annie")
    assert page.status_code == 400 and "Another user has this e-mail address" in page.text
    assert 'value="Annie"' in page.text and User.objects.get(pk=ann.pk).shown_name == "ann"


@pytest.mark.parametrize(
    "given",
    [{"email": "x"}, {"email": "a\0@b.example"}, {"name": "\0"}, {"name": "x" * 151}, {"theme": "pink"}],
)
def test_unusable_values_are_reported(ann: User, inside: Client, given: dict[str, str]) -> None:
    page = save(inside, **given)
    assert (page.status_code == 400 and 'role="alert"' in page.text) or "theme" in given
    assert User.objects.get().email == "ann@example.org"


class TestTheLook:
    def test_the_switch_of_the_menu_counts_on_every_page_and_leads_back(
        self, ann: User, inside: Client
    ) -> None:
        assert "data-theme" not in inside.get("/inbox/").text
        page = inside.post("/me/theme/", {"theme": "dark", "back": "/inbox/?state=answered"})
        assert page["Location"] == "/inbox/?state=answered"
        for address in ("/inbox/", "/nowhere/", "/me/"):
            assert re.search('<html lang="en"[^>]* data-theme="dark"[^>]*>', inside.get(address).text)
        inside.post("/me/theme/", {"theme": "auto"})
        assert "data-theme" not in inside.get("/inbox/").text

    @pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
    def test_it_leads_to_no_other_site(self, inside: Client, back: str) -> None:
        assert inside.post("/me/theme/", {"theme": "dark", "back": back})["Location"] == "/tasks/"

    @pytest.mark.parametrize("theme", ["", "pink", "dark\0", '"><script>'])
    def test_any_other_word_changes_nothing(self, ann: User, inside: Client, theme: str) -> None:
        inside.post("/me/theme/", {"theme": theme})
        assert User.objects.get().theme == "auto"

    def test_an_anonymous_visitor_gets_the_theme_of_the_system(self) -> None:
        assert "data-theme" not in Client().get("/login/").text
