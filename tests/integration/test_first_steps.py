"""The checklist of a new installation, and the time zone of the profile (W2, W7)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from tasks_app.core.phases import Phase
from tasks_app.models import Question, QuestionState, User
from tasks_app.web.tasks.first_steps import first_steps
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db

#: The steps that rows of the database say; the others are settings of the machine.
ROWS = ("Run the sample task", "Add your own repository", "Invite somebody")


@pytest.fixture
def admin() -> User:
    user: User = UserFactory.create(is_superuser=True)
    return user


def done(user: User) -> dict[str, bool]:
    return {step.title: step.done for step in first_steps(user)}


def test_each_step_is_ticked_when_it_is_done(admin: User) -> None:
    sample = TaskFactory.create(project=ProjectFactory.create(name="sample"), phase=Phase.PENDING)
    User.objects.exclude(pk=admin.pk).update(is_active=False)
    before = done(admin)
    assert not (
        before["Run the sample task"] or before["Add your own repository"] or before["Invite somebody"]
    )
    sample.phase = Phase.DONE
    sample.save()
    MembershipFactory.create(project=ProjectFactory.create(name="shop"))
    after = done(admin)
    assert all(after[title] for title in ROWS)
    assert all(step.url for step in first_steps(admin)), "each leads to where it is done"
    page = signed_in(admin).get("/tasks/").text
    assert f'First steps <span class="number">{sum(after.values())} of {len(after)}</span>' in page


def test_it_is_for_site_admins_until_they_dismiss_it(admin: User) -> None:
    client = signed_in(admin)
    assert "First steps" in client.get("/tasks/").content.decode()
    client.post("/first-steps/dismiss/")
    client.post("/first-steps/dismiss/")
    assert "First steps" not in client.get("/tasks/").content.decode()
    member = MembershipFactory.create().user
    assert "First steps" not in signed_in(member).get("/tasks/").content.decode()


def test_it_goes_away_when_all_is_done(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks_app.web.tasks.first_steps._steps", lambda user: [])
    assert first_steps(admin) == []


class TestTimeZoneOfTheProfile:
    @pytest.fixture
    def question(self) -> Question:
        at = datetime(2026, 1, 31, 20, 15, 30, tzinfo=UTC)
        question: Question = QuestionFactory.create(
            state=QuestionState.ANSWERED, asked_at=at, answered_at=at,
            answered_by=UserFactory.create(), answered_via="web",
        )  # fmt: skip
        return question

    def shown(self, client: Client, question: Question) -> str:
        return client.get(f"/questions/{question.pk}/").content.decode()

    def test_it_counts_if_the_browser_says_none(self, admin: User, question: Question) -> None:
        client = signed_in(admin)
        saved = client.post("/me/", {"name": "", "email": "", "theme": "auto", "time_zone": "Asia/Tokyo"})
        assert saved.status_code == 302
        assert "2026-02-01 05:15" in self.shown(client, question)
        client.cookies["time_zone"] = "Europe/Berlin"
        assert "2026-01-31 21:15" in self.shown(client, question)

    def test_an_unknown_one_is_refused(self, admin: User) -> None:
        form = {"name": "", "email": "", "theme": "auto", "time_zone": "Moon/Crater"}
        assert signed_in(admin).post("/me/", form).status_code == 400
