"""The pages of the installation: people with their roles and budgets, settings; and help."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from tasks_app.core.environment import Environment
from tasks_app.models import Action, AuditEntry, User
from tasks_app.web.help import documents
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.markup import tidy

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, username="root")


def test_people_are_listed_with_their_roles_and_budgets(admin: User) -> None:
    member = MembershipFactory.create(user__username="ann", user__monthly_budget_usd=40).user
    client = signed_in(admin)
    page = tidy(client.get(reverse("people")).text)
    assert member.memberships.get().project.name in page and "$0.00 of $40.00" in page
    assert "<strong>ann</strong>" not in client.get(reverse("people"), {"q": "root"}).text
    assert signed_in(member).get(reverse("people")).status_code == 403
    assert reverse("people") not in signed_in(member).get(reverse("tasks")).text


def test_a_budget_and_access_are_changed_and_audited(admin: User) -> None:
    ann = UserFactory.create(username="ann")
    session, client = signed_in(ann), signed_in(admin)
    client.post(reverse("people"), {"user": ann.pk, "budget": "12.50"})
    ann.refresh_from_db()
    assert ann.monthly_budget_usd == 12.5
    client.post(reverse("people"), {"user": ann.pk, "budget": ""})
    client.post(reverse("people"), {"user": ann.pk, "active": "no"})
    ann.refresh_from_db()
    assert ann.monthly_budget_usd is None
    assert not ann.is_active
    assert session.get(reverse("tasks")).status_code == 302, "the session has ended"
    assert AuditEntry.objects.filter(action=Action.ACCOUNT_CHANGED, subject="ann").count() == 3
    assert signed_in(UserFactory.create()).post(reverse("people"), {"user": ann.pk}).status_code == 403


@pytest.mark.parametrize("given", [{"budget": "-1"}, {"budget": "much"}, {"active": "no"}])
def test_what_cannot_be_changed_is_said(admin: User, given: dict[str, str]) -> None:
    page = signed_in(admin).post(reverse("people"), {"user": admin.pk, **given}, follow=True)
    admin.refresh_from_db()
    assert (admin.monthly_budget_usd, admin.is_active) == (None, True)
    assert "message-error" in page.text


def test_settings_are_listed_without_secrets(admin: User, settings: Any) -> None:
    values = {
        "CATHERDER_DATA_DIR": str(settings.DATA_DIR),
        "CATHERDER_ADMIN_PASSWORD": "hidden-1",
        "CATHERDER_SECRET_KEY": "hidden-2" * 8,
        "CATHERDER_METRICS_TOKEN": "hidden-3" * 8,
        "DATABASE_URL": "postgresql://ann:hidden-4@db.example.org/herder",
        "REDIS_URL": "redis://:hidden-5@cache.example.org/0",
        "ANTHROPIC_API_KEY": "hidden-6",
        "ANTHROPIC_BASE_URL": "https://ann:hidden-7@model.example.org",
        "CLAUDE_CODE_OAUTH_TOKEN": "hidden-8",
        "CATHERDER_EMAIL_URL": "smtp+tls://ann:hidden-9@mail.example.org:587",
        "CATHERDER_EMAIL_FROM": "herder@example.org",
    }
    settings.ENVIRONMENT = Environment.model_validate(values)
    page = signed_in(admin).get(reverse("installation_settings")).text
    assert not re.search(r"hidden-\d", page)
    for shown in ("CATHERDER_DATA_DIR", "mail.example.org:587", "https://…@model.example.org"):
        assert shown in page
    assert signed_in(UserFactory.create()).get(reverse("installation_settings")).status_code == 403
    assert signed_in(UserFactory.create()).get(reverse("installation")).status_code == 200


def test_each_link_of_a_document_leads_to_an_anchor_that_exists() -> None:
    client = signed_in(UserFactory.create())
    page = client.get(reverse("help_page", args=["asking-and-thresholds"])).text
    assert 'id="the-inbox"' in page and f'href="{reverse("help_page", args=["approvals"])}"' in page
    assert client.get(reverse("help_page", args=["nowhere"])).status_code == 404
    for document in documents().values():
        assert document.title != document.name, "it has a heading"
        assert "<script" not in document.html


def test_help_is_searched_by_all_words() -> None:
    client = signed_in(UserFactory.create())
    index = client.get(reverse("help")).text
    assert all(reverse("help_page", args=[name]) in index for name in documents())
    found = client.get(reverse("help"), {"q": "waiting amber"}).text
    assert f"{reverse('help_page', args=['asking-and-thresholds'])}#the-inbox" in found
    assert reverse("help_page", args=["glossary"]) not in client.get(reverse("help"), {"q": "qqq"}).text


def test_links_beside_terms_lead_to_what_the_help_says_of_them() -> None:
    """In all templates: a heading that was renamed is found here."""
    links = [
        found
        for path in Path(settings.BASE_DIR, "templates").rglob("*.html")
        for found in re.findall(r'help_link "([^"]+)" "([^"]*)"', path.read_text())
    ]
    assert links
    for page, anchor in links:
        assert f'id="{anchor}"' in documents()[page].html, (page, anchor)
