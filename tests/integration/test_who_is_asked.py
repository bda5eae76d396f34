"""Q1: open questions are put to people, with the reason, once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from tasks_app.config.validation import Report
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.models import (
    Action,
    Asked,
    AskedBy,
    AuditEntry,
    Change,
    MemberGroup,
    Membership,
    Project,
    Question,
    Role,
    Task,
    User,
    WorkingHours,
)
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.projects.members import remove_member
from tasks_app.services.questions import routing
from tasks_app.services.questions.routing import put_to, route_due_questions
from tasks_app.services.tasks import cancel_task, create_task, resume_task
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MemberGroupFactory, MembershipFactory, QuestionFactory, TaskFactory, UserFactory
from tests.fake_script import Turn, ask, say, write
from tests.people import acting
from tests.racing import ROUNDS, race
from tests.runner import ONE_STEP, Runner

CONFIG = """
ask:
  - kind: [plan, approval]
    people: ["@leads"]
  - step: do
    paths: payments/
    people: cat
pipelines:
  only:
    - name: do
      command: implement
"""
ASKS = (ask("Red?"),)


def member(project: Project, name: str, **fields: Any) -> User:
    user: User = UserFactory.create(username=name, email=f"{name}@example.org", **fields)
    MembershipFactory.create(project=project, user=user)
    return user


def asked(question: Question) -> dict[str, tuple[str, str]]:
    return {one.user.username: (one.asked_by, one.group) for one in question.asked.current()}


@pytest.mark.django_db
class TestRows:
    @pytest.fixture
    def question(self) -> Question:
        ann: User = UserFactory.create(username="ann")
        question: Question = QuestionFactory.create(task__created_by=ann)
        MembershipFactory.create(project=question.task.project, user=ann)
        return question

    def test_who_started_the_task_is_asked(self, question: Question) -> None:
        """Q1"""
        assert route_due_questions() == 1
        assert asked(question) == {"ann": (AskedBy.STARTER, "")}
        question.refresh_from_db()
        assert question.routed_at is not None
        assert route_due_questions() == 0

    @pytest.mark.parametrize("why", ["viewer", "no member", "deactivated"])
    def test_who_may_not_answer_is_never_asked(self, question: Question, why: str) -> None:
        """Q1"""
        if why == "viewer":
            Membership.objects.update(role=Role.VIEWER)
        elif why == "no member":
            Membership.objects.all().delete()
        else:
            User.objects.update(is_active=False)
        route_due_questions()
        assert asked(question) == {}
        question.refresh_from_db()
        assert question.routed_at is not None

    def test_the_task_may_name_people_and_groups(self, question: Question) -> None:
        """Q1"""
        project = question.task.project
        bob, cat = member(project, "bob"), member(project, "cat")
        MemberGroupFactory.create(project=project, name="leads", members=(cat, UserFactory.create()))
        Task.objects.update(ask=["bob@example.org", "leads", "nobody"])
        route_due_questions()
        assert asked(question) == {
            bob.username: (AskedBy.TASK, ""),
            cat.username: (AskedBy.TASK, "leads"),
        }

    def test_while_a_worker_holds_the_task_it_waits(self, question: Question) -> None:
        """Q1: what the agent has changed is recorded only then, and a decision may answer."""
        Task.objects.update(lease_expires=timezone.now() + timedelta(seconds=10))
        assert route_due_questions() == 0
        Task.objects.update(lease_expires=None)
        assert route_due_questions() == 1

    def test_an_error_leaves_it_to_all(
        self, question: Question, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Q1"""
        Task.objects.update(base_commit="0" * 40)
        assert route_due_questions() == 1
        assert asked(question) == {}
        assert "asked of all" in caplog.text
        assert route_due_questions() == 0

    def test_a_question_that_was_answered_meanwhile_is_left_alone(self, question: Question) -> None:
        people = routing.people_for(question)
        Question.objects.update(state="withdrawn")
        assert not put_to(question, people, timezone.now())
        assert not Asked.objects.exists()

    def test_a_crash_leaves_nothing_or_all(self, question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
        """Q1"""

        def killed(**_: Any) -> None:
            raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(Change.objects, "create", killed)
            with pytest.raises(SystemExit):
                route_due_questions()
        assert not Asked.objects.exists()
        assert route_due_questions() == 1
        assert Asked.objects.count() == 1

    def test_it_is_routed_before_it_is_announced(self, question: Question) -> None:
        """Q1"""
        create_notifications()
        assert asked(question) == {"ann": (AskedBy.STARTER, "")}

    def test_a_question_that_is_asked_again_keeps_its_people(self, question: Question) -> None:
        """Q1"""
        bob = member(question.task.project, "bob")
        Asked.objects.create(
            question=question, user=bob, asked_by=AskedBy.HAND_OVER, why="knows it", at=timezone.now()
        )
        Question.objects.update(state="withdrawn")
        again = QuestionFactory.create(task=question.task, run=question.run, number=2, reopens=question)
        route_due_questions()
        assert asked(again) == {"bob": (AskedBy.HAND_OVER, "")}
        assert asked(question) == {"bob": (AskedBy.HAND_OVER, "")}


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_puts_it_to_people() -> None:
    """Q1"""
    for number in range(ROUNDS):
        ann: User = UserFactory.create()
        question: Question = QuestionFactory.create(
            task=TaskFactory.create(created_by=ann, phase=Phase.WAITING_FOR_INPUT)
        )
        MembershipFactory.create(project=question.task.project, user=ann)
        results = race(number, route_due_questions, route_due_questions)
        assert sorted(one.said for one in results) == ["0", "1"]
        assert question.asked.count() == 1


@pytest.mark.django_db(transaction=True)
class TestRepository:
    def run(self, runner: Runner, play: list[Turn], *, text: str = "# Paint it\n", **files: str) -> Question:
        project = runner.project(CONFIG, **files)
        for name in ("bob", "cat", "dan"):
            member(project, name)
        MemberGroupFactory.create(
            project=project, name="payments", members=User.objects.filter(username="dan")
        )
        task = runner.advance(runner.task(play, project=project, text=text))
        assert task.phase == Phase.WAITING_FOR_INPUT
        route_due_questions()
        return task.questions.get()

    def test_a_rule_of_the_file_about_what_the_task_has_changed(self, runner: Runner) -> None:
        """Q1"""
        question = self.run(
            runner, [Turn("", (write("payments/x.py", "2"),)), Turn("I ask.", ASKS)], **{"payments/x.py": "1"}
        )
        assert asked(question) == {"cat": (AskedBy.RULE, "")}

    def test_the_owners_of_what_the_question_names(self, runner: Runner) -> None:
        """Q1"""
        question = self.run(
            runner,
            [Turn("I ask.", (ask("Is `web/a.py` right?"),))],
            **{"web/a.py": "1", ".github/CODEOWNERS": "* @bob\n/web/ @acme/payments\n"},
        )
        assert asked(question) == {"dan": (AskedBy.OWNER, "payments")}
        assert "web/" in question.asked.get().why

    def test_the_front_matter_comes_first(self, runner: Runner) -> None:
        """Q1"""
        question = self.run(runner, [Turn("I ask.", ASKS)], text="---\nask: [bob]\n---\n# Paint it\n")
        assert asked(question) == {"bob": (AskedBy.TASK, "")}

    def test_an_override_of_the_project_replaces_the_rules_of_the_file(self, runner: Runner) -> None:
        """Q1"""
        project = runner.project(CONFIG)
        member(project, "bob")
        Project.objects.update(overrides={"ask": "- people: bob\n  kind: clarification"})
        task = runner.advance(runner.task([Turn("I ask.", ASKS)], project=project))
        route_due_questions()
        assert asked(task.questions.get()) == {"bob": (AskedBy.RULE, "")}

    def test_a_resumed_task_asks_the_same_people(self, runner: Runner) -> None:
        """Q1"""
        question = self.run(runner, [Turn("I ask.", ASKS), say("Done.")])
        before = asked(question)
        cancel_task(question.task, by=acting(runner.user))
        resume_task(Task.objects.get(), by=acting(runner.user))
        route_due_questions()
        assert asked(Question.objects.get(state="open")) == before


@pytest.mark.django_db
class TestGroups:
    @pytest.fixture
    def boss(self, project: Project) -> User:
        boss: User = MembershipFactory.create(
            project=project, role=Role.MAINTAINER, user__username="boss"
        ).user
        return boss

    def post(self, user: User, project: Project, **fields: str) -> int:
        return signed_in(user).post(reverse("project_groups", args=[project.pk]), fields).status_code

    def members_of(self, name: str) -> list[str]:
        group = MemberGroup.objects.get(name=name)
        return sorted(group.members.values_list("username", flat=True))

    def test_a_maintainer_creates_changes_and_removes_a_group(self, project: Project, boss: User) -> None:
        """Q1"""
        member(project, "ann")
        assert self.post(boss, project, name="leads", members="ann, boss") == 302
        assert self.members_of("leads") == ["ann", "boss"]
        assert 'data-group="leads"' in signed_in(boss).get(reverse("project_members", args=[project.pk])).text
        self.post(boss, project, name="leads", members="boss")
        assert self.members_of("leads") == ["boss"]
        self.post(boss, project, name="leads", remove="yes")
        assert not MemberGroup.objects.exists()
        entries = AuditEntry.objects.filter(action=Action.SETTINGS_CHANGED).order_by("pk")
        assert [entry.detail["changed"]["group leads"] for entry in entries] == [
            ["", "ann, boss"],
            ["ann, boss", "boss"],
            ["boss", ""],
        ]

    @pytest.mark.parametrize(("name", "members"), [("a/b", "boss"), ("", "boss"), ("leads", "stranger")])
    def test_what_is_no_group_is_refused(self, project: Project, boss: User, name: str, members: str) -> None:
        """Q1"""
        UserFactory.create(username="stranger")
        self.post(boss, project, name=name, members=members)
        assert not MemberGroup.objects.exists()

    def test_others_may_not(self, project: Project, boss: User) -> None:
        """Q1"""
        ann = member(project, "ann")
        assert self.post(ann, project, name="leads", members="ann") == 403
        assert self.post(UserFactory.create(), project, name="leads", members="ann") == 404
        assert not MemberGroup.objects.exists()

    def test_who_leaves_the_project_leaves_its_groups(self, project: Project, boss: User) -> None:
        """Q1"""
        ann = member(project, "ann")
        MemberGroupFactory.create(project=project, name="leads", members=(ann, boss))
        remove_member(project.memberships.get(user=ann), by=acting(boss))
        assert self.members_of("leads") == ["boss"]

    def test_the_api_has_groups(self, project: Project, boss: User) -> None:
        """Q1"""
        script = Script(boss)
        path = f"/projects/{project.name}/groups"
        assert script.send("put", f"{path}/leads", {"members": ["boss"]}).status_code == 200
        (group,) = script.get(path).json()["items"]
        assert group["name"] == "leads" and [one["username"] for one in group["members"]] == ["boss"]
        assert script.send("put", f"{path}/leads", {"members": ["nobody"]}).status_code in (400, 422)
        assert script.send("delete", f"{path}/leads").status_code == 204
        assert script.get(path).json()["items"] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.django_db(transaction=True)
def test_an_owner_who_is_away_is_passed_over_and_the_reason_says_so(runner: Runner) -> None:
    """Q1, Q4: her deputy is asked instead; who is there of several is asked alone."""
    config = "ask: [{step: do, people: [olga]}, {people: [dave, eve]}]\n" + ONE_STEP
    project = runner.project(config)
    olga, _, eve = (member(project, name, first_name=name.title()) for name in ("olga", "dave", "eve"))
    today = f"{timezone.now():%Y-%m-%d}"
    for one in (olga, eve):
        WorkingHours.objects.create(
            user=one, week=[{"begin": "09:00", "end": "18:00"}] * 7,
            absences=[{"first": today, "last": today, "word": "holiday"}],
        )  # fmt: skip
    task = runner.advance(runner.task([Turn(calls=ASKS), say("Done.")], project=project))
    route_due_questions()
    question = task.questions.get()
    assert asked(question) == {"dave": (AskedBy.RULE, "")}
    assert "Olga is away" in question.asked.get().why
    preview = signed_in(runner.user).get(reverse("project_asked", args=[project.pk]), {"step": "do"})
    assert "Olga is away" in preview.text


@pytest.mark.django_db(transaction=True)
def test_a_name_that_means_nobody_is_refused_where_a_person_enters_it(runner: Runner) -> None:
    """Q1: in the form of a task, by the API and by the command; what is entered is kept."""
    project = runner.project()
    member(project, "dave")
    text = {"project": project.pk, "text": "# Paint it", "ask": "ghost, dave"}
    page = signed_in(runner.user).post(reverse("task_new"), text)
    assert page.status_code == 400 and 'id="ask-error"' in page.text and "ghost, dave" in page.text
    refused = Script(runner.user).post(
        "/tasks", {"project": project.name, "text": "# Paint it", "ask": ["dave", "ghost"]}
    )
    assert (refused.status_code, refused.json()["errors"][0]["where"]) == (400, "ask")
    with pytest.raises(BadInput) as error:
        create_task(project, "# Paint it", by=acting(runner.user), where="t", ask=("ghost",))
    assert error.value.where == "ask" and "ghost" in error.value.message
    assert not Task.objects.exists()
    text["ask"] = "dave"
    assert signed_in(runner.user).post(reverse("task_new"), text).status_code == 302
    assert Task.objects.get().ask == ["dave"]


@pytest.mark.django_db(transaction=True)
def test_rules_that_name_nobody_are_stored_with_a_warning_and_bad_ones_are_shown_where_they_are(
    runner: Runner,
) -> None:
    """Q1, Q3."""
    project, browser = runner.project(), signed_in(runner.user)
    address = reverse("project_settings", args=[project.pk])
    page = browser.post(address, {"ask": "- {people: [ghost]}", "ladder": "- remind after 2h"}, follow=True)
    assert "message-warning" in page.text and "ghost" in page.text
    project.refresh_from_db()
    assert project.overrides["ladder"] == "remind after 2h"
    page = browser.post(address, {"ladder": "remind after soon"})
    assert page.status_code == 400 and "Nothing was saved." in page.text
    assert 'href="#id_ladder"' in page.text and page.text.count("autofocus") == 1


def test_the_preview_and_the_validation_read_the_rules(runner: Runner) -> None:
    """Q1: a rule that names nobody who may answer is a finding, with its line."""
    project = runner.project(CONFIG)
    member(project, "cat")
    page = reverse("project_asked", args=[project.pk])
    seen = signed_in(runner.user).get(page, {"kind": "clarification", "step": "do", "path": "payments/x.py"})
    assert 'data-asked-by="rule"' in seen.text
    assert 'data-asked-by="rule"' not in signed_in(runner.user).get(page, {"step": "do", "path": "x.py"}).text
    report = routing.with_people(Report.of([]), project, CONFIG)
    assert [(one.problem.key, one.problem.line) for one in report.warnings] == [("ask[0].people", 4)]


@pytest.mark.django_db(transaction=True)
def test_owners_of_code_who_mean_nobody_are_one_finding(runner: Runner) -> None:
    """Q1: at the first line that names one of them; nothing is said if all may answer."""
    text = "# Owners\n* @cat\n/a/ @stranger @cat x@example.org\n/b/ @stranger\n"
    project = runner.project(CONFIG, **{".github/CODEOWNERS": text, "docs/CODEOWNERS": "* @other\n"})
    member(project, "cat")
    MemberGroupFactory.create(project=project, name="leads", members=User.objects.filter(username="cat"))
    (found,) = routing.with_people(Report.of([]), project, CONFIG).warnings
    assert (found.file, found.problem.line) == (".github/CODEOWNERS", 3)
    assert "@stranger, x@example.org" in found.problem.message and "@cat" not in found.problem.message
    member(project, "stranger")
    member(project, "x")
    assert routing.with_people(Report.of([]), project, CONFIG).warnings == ()
