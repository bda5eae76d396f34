"""The inbox (W2, H5): what became of questions, filters in the URL, the selected one, who is answering."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.history.transitions import move
from tasks_app.models import (
    CLAIM_LASTS,
    Action,
    AuditEntry,
    Change,
    Channel,
    EventKind,
    Question,
    QuestionKind,
    QuestionState,
    Task,
    User,
)
from tasks_app.permissions import Principal
from tasks_app.services.projects.projects import add_project
from tasks_app.services.questions.approvals import approve_equal_calls
from tasks_app.services.task_groups import FAILED, tasks_in_group
from tasks_app.services.tasks import resume_task
from tasks_app.web import counting, inbox
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, RunFactory, TaskFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.markup import tidy

pytestmark = pytest.mark.django_db


def asked(text: str, **facts: Any) -> Question:
    return QuestionFactory.create(items=[{"question": text}], **facts)


def answered(text: str, by: User, **facts: Any) -> Question:
    done = {"state": QuestionState.ANSWERED, "answered_at": timezone.now(), "answered_via": "web"}
    return asked(text, answered_by=by, answers={text: "Indeed."}, **done, **facts)


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, username="root")


def look(user: User, **query: Any) -> str:
    client = signed_in(user)
    page = client.get(reverse("inbox"), query)
    assert page.status_code == 200
    return tidy(page.text)


def listed(page: str) -> int:
    return page.count('<li class="inbox-row">')


def triggers(page: str) -> dict[str, str]:
    """What makes each part of the page fetch itself again, by the part's address."""
    return dict(re.findall(r'hx-get="([^"]*)"[^>]* hx-trigger="([^"]*)"', tidy(page)))


def test_numbers_beside_a_question_are_fetched_after_it(admin: User) -> None:
    """A new question is on its way alone; tabs and navigation follow."""
    question = asked("Red?")
    late, soon = "catherder:state from:body delay:150ms", "catherder:state from:body,"
    parts = triggers(look(admin))
    (tabs,) = [trigger for address, trigger in parts.items() if address.endswith("part=tabs")]
    (rows,) = [trigger for address, trigger in parts.items() if address.endswith("part=list")]
    assert tabs.startswith(late) and parts[reverse("navigation")].startswith(late)
    assert rows.startswith(soon)
    task = question.task
    parts = triggers(str(signed_in(admin).get(reverse("task", args=[task.pk])).text))
    waiting = {name for name in parts if "delay:150ms" in parts[name]}
    names = ("task_plan", "task_timeline")
    assert waiting == {reverse("navigation"), *(reverse(name, args=[task.pk]) for name in names)}
    (head,) = [trigger for address, trigger in parts.items() if "/header/" in address]
    assert "delay" not in head, "it says what arrives"


def test_what_is_too_much_to_count_has_a_plus_and_the_rest_is_in_the_history(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, F: no page reads a million questions to say how many there are."""
    monkeypatch.setattr(inbox, "PER_PAGE", 2)
    monkeypatch.setattr(counting, "MOST_COUNTED", 2)
    monkeypatch.setattr(counting, "MOST_LISTED", 4)
    for number in range(5):
        answered(f"Number {number}?", admin)
    asked("Still open?")
    first, last = (look(admin, state="answered", page=number) for number in (1, 99))
    assert 'aria-current="page">Answered <span class="number">2+</span>' in first
    assert 'Open <span class="number">1</span>' in first
    assert "Page 1 of 2+" in first and listed(first) == 2 and "Number 4?" in first
    assert "Page 2 of 2+" in last and listed(last) == 2 and "Number 1?" in last
    assert '/tasks/all/?kind=questions">More in all questions</a>' in last


def test_the_steps_to_choose_from_are_those_of_the_newest_questions(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_NEWEST", 1)
    for step, days in (("survey", 9), ("build", 1)):
        question = asked(f"In {step}?", asked_at=timezone.now() - timedelta(days=days))
        question.step.name = step
        question.step.save()
    assert ">build</option>" in look(admin) and ">survey</option>" not in look(admin)
    assert "<option selected>survey</option>" in look(admin, step="survey"), "what was chosen stays"


def test_each_state_has_its_tab_with_a_count(admin: User) -> None:
    asked("Still open?")
    answered("Long answered?", admin)
    asked("Taken back?", state=QuestionState.WITHDRAWN)
    page = look(admin)
    assert "Still open?" in page and "Long answered?" not in page
    assert 'Open <span class="number">1</span>' in page
    done = look(admin, state="answered")
    assert "Long answered?" in done and "Indeed." in done and "Still open?" not in done
    assert "Taken back?" in look(admin, state="withdrawn")


def test_the_filters_are_in_the_address_and_stay_from_tab_to_tab(admin: User) -> None:
    old = asked("Old?", asked_at=timezone.now() - timedelta(days=3), task__created_by=admin)
    asked("New?", kind=QuestionKind.PLAN)
    ways = [{"project": old.task.project.name}, {"age": "1d"}, {"person": "mine"}, {"kind": "clarification"}]
    for query in ways:
        page = look(admin, **query)
        assert listed(page) == 1 and "Old?" in page, query
        name, value = next(iter(query.items()))
        assert f"?state=answered&amp;{name}={value}" in page
    assert listed(look(admin, step="plan")) == 2
    assert listed(look(admin, step="implement")) == 0


def test_what_a_person_answered_can_be_found(admin: User) -> None:
    answered("By root?", admin)
    answered("By another?", UserFactory.create(username="ann"))
    page = look(admin, state="answered", person="ann")
    assert "By another?" in page and "By root?" not in page
    rows = page[page.index('id="inbox-list"') : page.index('id="inbox-question"')]
    assert "Indeed." in rows, "each row says what was decided"
    assert '<option value="ann" selected>answered by ann</option>' in page


@pytest.mark.parametrize("state", QuestionState.values)
def test_an_empty_tab_says_what_would_stand_here(admin: User, state: str) -> None:
    page = look(admin, state=state)
    assert 'class="empty none"' in page and "Clear filters" not in page


def test_where_nothing_matches_the_filters_can_be_cleared(admin: User) -> None:
    asked("Still open?")
    page = look(admin, project="another")
    assert "No matching questions" in page and 'href="?state=open">Clear filters' in page
    assert "<summary>1 filter</summary>" in page


@pytest.mark.parametrize("garbage", ["\x00", "'; --", "x" * 5000, "%F0%9F", "\ud800"])
def test_garbage_in_the_address_is_no_error(admin: User, garbage: str) -> None:
    asked("Still open?")
    garbage = garbage.encode(errors="replace").decode()
    names = ("state", "project", "step", "kind", "age", "person", "page", "question")
    for name in names:
        look(admin, **{name: garbage})
    look(admin, **dict.fromkeys(names, garbage))


def test_names_of_projects_steps_and_people_that_one_may_not_see_are_not_offered() -> None:
    answered("Secret?", UserFactory.create(username="secret-person"), task__project__name="secret-project")
    outsider = MembershipFactory.create().user
    page = look(outsider, state="answered")
    assert "secret-" not in page and listed(page) == 0
    assert listed(look(outsider, state="answered", project="secret-project", person="secret-person")) == 0


def test_it_pages_and_its_queries_do_not_grow(admin: User) -> None:
    client = signed_in(admin)
    counts = []
    for many in (1, 55):
        for number in range(many):
            answered(f"Number {number}?", UserFactory.create())
        QuestionFactory.create_batch(3)
        for state in ("open", "answered"):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(reverse("inbox"), {"state": state})
            counts.append(len(queries))
    assert counts[:2] == counts[2:]
    assert listed(page.text) == 50 and "Page 1 of 2" in page.text


def test_the_first_question_is_shown_beside_the_list_and_any_by_its_number(admin: User) -> None:
    first, second = asked("One?"), asked("Two?")
    run = second.run
    append(run, [NewEvent(EventKind.TEXT, {"text": "I looked at the file."})], seq=run.next_seq())
    page = look(admin)
    assert f'id="question-{first.pk}"' in page and f'id="question-{second.pk}"' not in page
    assert f'question={first.pk}" aria-current="true">' in page
    page = look(admin, question=second.pk)
    assert f'id="question-{second.pk}"' in page and "I looked at the file." in page and "inbox-chosen" in page
    done = answered("Settled?", admin)
    assert f'id="question-{done.pk}"' in look(admin, question=done.pk)  # though the list has only open ones


@pytest.mark.parametrize("number", ["", "0", "-1", "x", "9" * 40])
def test_a_question_that_does_not_exist_gives_the_first(admin: User, number: str) -> None:
    first = asked("One?")
    assert f'id="question-{first.pk}"' in look(admin, question=number)


def test_a_question_that_one_may_not_see_is_not_shown(admin: User) -> None:
    secret = asked("Secret?")
    outsider = MembershipFactory.create().user
    assert "Secret?" not in look(outsider, question=secret.pk)


def test_a_page_in_use_fetches_its_parts(admin: User) -> None:
    first, second = asked("One?"), asked("Two?")
    client = signed_in(admin)

    def part(name: str, **query: Any) -> str:
        return str(client.get(reverse("inbox"), {"part": name, **query}, headers={"HX-Request": "true"}).text)

    assert listed(part("list")) == 2 and "<article" not in part("list")
    pane = part("question", question=second.pk)
    assert "Two?" in pane and "One?" not in pane and "<html" not in pane
    assert "Open" in part("tabs") and str(first) not in part("tabs")


# ---- the content of rows, tasks that need somebody, equal calls ----


def approval(command: str, **facts: Any) -> Question:
    item = {"question": f"{ALLOW_COMMAND}\n\n`{command}`", "header": "Approval"}
    facts.setdefault("tool_input", {"command": command})
    return QuestionFactory.create(kind=QuestionKind.APPROVAL, items=[item], **facts)


def test_a_row_shows_the_command_and_the_first_line_of_the_plan(admin: User) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    approval("make deploy", asked_at=long_ago)
    plan = [{"kind": "markdown", "title": "Plan", "text": "# Plan: keep the rates\n\n1. Read them.\n"}]
    planned = QuestionFactory.create(kind=QuestionKind.PLAN, items=[{"question": REVIEW_PLAN}], evidence=plan)
    planned.task.steps.update(config={"name": "plan", "command": "plan-task"}, plan="")
    details = look_at(admin, reverse("task_plan", args=[planned.task_id]))
    assert "waits for your review" in details and "not written yet" not in details
    page = look(admin)
    rows = page[page.index('id="inbox-list"') : page.index('id="inbox-question"')]
    assert "make deploy" in rows and ALLOW_COMMAND not in rows
    assert "Keep the rates" in rows and REVIEW_PLAN not in rows
    assert rows.count('class="is-late"') == 1, "who waits long is marked"
    assert "Keep the rates" in look_at(admin, reverse("tasks")), f"so do rows of tasks: {planned}"


def look_at(user: User, path: str) -> str:
    return tidy(signed_in(user).get(path).text)


def test_results_and_failures_of_projects_in_which_one_acts_are_tabs(admin: User) -> None:
    result = {"base_commit": "a" * 40, "head_commit": "b" * 40, "ended_at": timezone.now()}
    done = TaskFactory.create(title="Round the totals", phase=Phase.DONE, **result)
    failed = TaskFactory.create(title="It broke", phase=Phase.FAILED, ended_at=timezone.now())
    month = timezone.now() - timedelta(days=30)
    TaskFactory.create(title="Long forgotten", phase=Phase.FAILED, ended_at=month)
    review, failures = look(admin, state="review"), look(admin, state="failed")
    assert done.title in review and failed.title not in review
    assert failed.title in failures and "Long forgotten" not in failures
    assert 'To review <span class="number">1</span>' in failures
    assert 'Failed <span class="number">1</span>' in failures
    viewer = MembershipFactory.create(project=done.project, role="viewer").user
    assert done.title not in look(viewer, state="review")


def test_a_failure_is_dismissed_and_put_back_and_returns_when_the_task_fails_again(admin: User) -> None:
    ended = {"ended_at": timezone.now(), "started_at": timezone.now(), "queued_at": timezone.now()}
    task = TaskFactory.create(title="It broke", phase=Phase.FAILED, **ended)
    path = reverse("task_dismiss", args=[task.pk])
    client = signed_in(admin)

    def listed() -> tuple[bool, bool]:
        failed = tasks_in_group(Task.objects.all(), FAILED, Principal.unrestricted(admin))
        return f"row-{task.pk}-dismiss" in look(admin, state="failed"), task in failed

    assert listed() == (True, True)
    page = tidy(client.post(f"{path}?project={task.project.name}", follow=True).text)
    assert "Dismissed: It broke" in page and "Clear filters" in page and listed() == (False, False)
    assert 'Failed <span class="number">0</span>' in page
    client.post(path, {"undo": "yes"})
    assert listed() == (True, True)
    client.post(path)
    resume_task(task, by=Principal.unrestricted(admin))
    for phase in (Phase.RUNNING, Phase.FAILED):
        move(Task.objects.get(), phase)
    assert listed() == (True, True)
    said = AuditEntry.objects.filter(action=Action.TASK_CHANGED).values_list("detail", flat=True)
    assert [one["failure"][1] for one in said] == ["dismissed", "listed", "dismissed"]
    done = TaskFactory.create(phase=Phase.DONE)
    assert "no failure" in client.post(reverse("task_dismiss", args=[done.pk]), follow=True).text


def test_equal_calls_of_a_task_are_approved_together_each_with_its_own_answer(admin: User) -> None:
    first = approval("make migrate", tool_input={"command": "make migrate", "description": "Once"})
    of_task = {"task": first.task, "run": first.run}
    equal = approval("make migrate", number=2, **of_task)
    longer = {"command": "make migrate", "timeout": 9}
    other = approval("make migrate", number=3, tool_input=longer, **of_task)
    elsewhere = approval("make migrate")
    assert "Approve both" in look(admin)
    assert "Approve both" not in look(admin, question=other.pk)
    client = signed_in(admin)
    card = client.post(reverse("question_decide", args=[first.pk]), {"verdict": "approved_all"}).text
    states = dict(Question.objects.values_list("pk", "verdict"))
    assert states == {first.pk: "approved", equal.pk: "approved", other.pk: "", elsewhere.pk: ""}
    assert AuditEntry.objects.filter(action=Action.APPROVED).count() == 2
    if f'name="too" value="{equal.pk}"' in card:
        client.post(reverse("question_undo", args=[first.pk]), {"too": str(equal.pk)})
        assert Question.objects.open().count() == 4


def test_equal_calls_are_one_row_and_one_card_with_the_others_in_a_fold(admin: User) -> None:
    """W2, W7: also those in other folders, which are not approved with the first."""
    first = approval("make migrate")
    of_task = {"task": first.task, "run": first.run}
    folder = {"kind": "text", "title": "Folder of the shell", "text": "services/mail"}
    equal = approval("make migrate", number=2, **of_task)
    elsewhere = approval("make migrate", number=3, evidence=[folder], **of_task)
    approval("make lint", number=4, **of_task)
    approval("make migrate")
    page = look(admin)
    assert page.count('id="inbox-equal-') == 1 and "3 times" in page and "Approve both" in page
    fold = page.partition(f'id="inbox-equal-{first.pk}"')[2].partition("</details>")[0]
    assert [f"inbox-row-{one.pk}" in fold for one in (first, equal, elsewhere)] == [False, True, True]
    assert fold.count("services/mail") == 2, "which folders, and whose is which"
    page = look_at(admin, reverse("task", args=[first.task_id]))
    before, _, fold = page.partition(f'id="equal-{first.pk}"')
    assert [f'id="question-{one.pk}"' in before for one in (first, equal, elsewhere)] == [True, False, False]
    assert page.count('id="equal-') == 1 and "services/mail" in fold
    approve_equal_calls(first, by=Principal.unrestricted(admin), via=Channel.WEB)
    assert set(first.task.questions.open().values_list("number", flat=True)) == {3, 4}


def test_an_approval_says_where_its_rule_stands(admin: User, tmp_path: Path) -> None:
    settings = 'askBefore: ["Bash(rm*)"]\npipelines:\n  quick:\n    - name: do\n      askBefore:\n'
    settings += '        - "Bash(make*)"\n'
    repository = GitRepository.make(tmp_path / "shop", **{"cat-herder.yaml": settings})
    project = add_project("shop", str(repository.path), by=admin)
    commit = repository.git("rev-parse", "HEAD").strip()
    task = TaskFactory.create(
        project=project, base_commit=commit, pipeline="quick", phase=Phase.WAITING_FOR_INPUT
    )
    for rule, place in (("Bash(make*)", "cat-herder.yaml, line 6"), ("Bash(rm*)", "cat-herder.yaml, line 1")):
        evidence = [{"kind": "rule", "title": "Rule", "text": rule}]
        run = RunFactory.create(task=task, number=len(rule))
        question = approval("make deploy", evidence=evidence, task=task, run=run, number=len(rule))
        page = look(admin, question=question.pk)
        assert f"<code>{rule}</code> in {place}" in page
    project.overrides = {"ask_before": rule}
    project.save()
    assert f"<code>{rule}</code> in the project’s settings" in look(admin, question=question.pk)


# ---- claims ----


def claim(user: User, question: Question, **fields: str) -> Any:
    return signed_in(user).post(reverse("question_claim", args=[question.pk]), fields)


def said(user: User, question: Question) -> str:
    return str(signed_in(user).get(reverse("question_claim", args=[question.pk])).text).strip()


def test_others_see_who_is_answering_and_the_answerer_does_not(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project, user__first_name="Ann").user
    changes = Change.objects.count()
    assert claim(ann, question).status_code == 200
    assert "Ann is answering" in said(admin, question) and "is answering" in look(admin)
    assert "is answering" not in said(ann, question) + look(ann)
    assert Change.objects.count() == changes + 1, "other pages are told"


def test_the_first_claim_holds_and_blocks_no_answer(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project).user
    claim(ann, question)
    claim(admin, question)
    question.refresh_from_db()
    assert question.claimed_by == ann
    answer = {"item-0-other": "Me."}
    done = signed_in(admin).post(reverse("question_answer", args=[question.pk]), answer)
    assert done.status_code == 200
    question.refresh_from_db()
    assert question.answered_by == admin and not question.is_claimed
    assert "is answering" not in look(admin, state="answered")


def test_a_claim_ends_by_itself_and_when_its_user_leaves(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project).user
    claim(ann, question)
    claim(admin, question, release="yes")
    assert "is answering" in said(admin, question), "nobody ends the claim of another"
    claim(ann, question, release="yes")
    assert "is answering" not in said(admin, question)
    claim(ann, question)
    Question.objects.filter(pk=question.pk).update(claimed_at=timezone.now() - CLAIM_LASTS)
    assert "is answering" not in said(admin, question)
    claim(admin, question)
    question.refresh_from_db()
    assert question.claimed_by == admin


def test_a_viewer_claims_nothing() -> None:
    question = asked("Who?")
    viewer = MembershipFactory.create(project=question.task.project, role="viewer").user
    assert claim(viewer, question).status_code == 403
    question.refresh_from_db()
    assert question.claimed_by is None
