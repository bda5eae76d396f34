"""No answer, approvals and plans in the browser (H5): each status, as a page and as part of a page."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from tasks_app.cli.questions import show_question
from tasks_app.cli.terminal import Screen
from tasks_app.core.types import ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.models import Question, QuestionKind, QuestionState, Role, User, Verdict
from tasks_app.services.tasks import cancel_task
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, RunFactory, UserFactory
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
COMMAND = {"kind": "command", "title": "Bash", "text": "make deploy <now>"}
#: How each is done: the address, what a good form has, the field that a refusal must keep.
WAYS = {
    "question_dismiss": (QuestionKind.CLARIFICATION, {"notes": "Nobody knows."}, "Skipped by"),
    "question_decide": (QuestionKind.APPROVAL, {"verdict": "denied", "notes": "Not today."}, "Denied by"),
}


def asked(kind: QuestionKind) -> Question:
    if kind == QuestionKind.CLARIFICATION:
        return QuestionFactory.create()
    item = {"question": "Allow this call?", "header": "Bash"}
    return QuestionFactory.create(kind=kind, items=[item], evidence=[COMMAND])


def member_of(question: Question, role: Role = Role.MEMBER) -> User:
    return MembershipFactory.create(project=question.task.project, role=role, user__first_name="Ada").user


def send(user: User, name: str, question: Question, data: Any, **options: Any) -> Any:
    return signed_in(user).post(reverse(name, args=[question.pk]), data, **options)


def fresh(question: Question) -> Question:
    return Question.objects.get(pk=question.pk)


def test_a_command_stands_on_its_card_once() -> None:
    """In lists, notices and histories, where it does not stand beside it, the headline names it."""
    item = {"question": f"{ALLOW_COMMAND}\n\n`make deploy`", "header": "Approval"}
    question = QuestionFactory.create(kind=QuestionKind.APPROVAL, items=[item], evidence=[COMMAND])
    client = signed_in(member_of(question))
    card = client.get(reverse("question", args=[question.pk]), headers={"HX-Request": "true"}).text
    assert f"{ALLOW_COMMAND}</h2>" in card
    assert card.count("make deploy") == 1 and "make deploy &lt;now&gt;" in card
    assert f"{ALLOW_COMMAND} make deploy" in client.get("/tasks/all/?kind=questions").text
    send(member_of(question), "question_decide", question, {"verdict": "approved"})
    after = tidy(client.get(reverse("question", args=[question.pk]), headers={"HX-Request": "true"}).text)
    assert f'{ALLOW_COMMAND} <span class="title-context"><code>make deploy</code></span>' in after


def test_h5_a_revised_plan_shows_the_comments_and_what_has_changed() -> None:
    item = {"question": REVIEW_PLAN, "header": "Plan", "options": []}
    plans = [[{"kind": "markdown", "title": "Plan", "text": text}] for text in ("One\nTwo", "One\nThree")]
    first = QuestionFactory.create(kind=QuestionKind.PLAN, items=[item], evidence=plans[0])
    client = signed_in(member_of(first))
    assert "sent back" not in client.get(reverse("question", args=[first.pk])).text
    send(member_of(first), "question_decide", first, {"verdict": "sent_back", "notes": "Name `three`."})
    run = RunFactory.create(step=first.step, number=2, task=first.task)
    second = QuestionFactory.create(
        task=first.task, run=run, number=2, kind=QuestionKind.PLAN, items=[item], evidence=plans[1]
    )
    page = client.get(reverse("question", args=[second.pk])).text
    assert "Name <code>three</code>." in page and f"plan {first.pk}</a>" in page
    changed = page[page.index(f"Changed since plan {first.pk}") : page.index("evidence-markdown")]
    assert re.findall('class="dl dl-(add|del)"', changed) == ["del", "add"]
    terminal = io.StringIO()
    show_question(Screen(terminal), second)
    difference = terminal.getvalue().partition(f"Changed since plan {first.pk}")[2].split("│ Two")[0]
    assert "│  One" in difference and "│ -Two" in difference and "│ +Three" in difference
    said = "The agent has changed the plan since."
    assert said not in page and said not in terminal.getvalue(), "the comments say why it is asked again"


def test_h5_a_plan_after_an_approved_one_says_why_it_is_asked_about() -> None:
    plans = [[{"kind": "markdown", "title": "Plan", "text": text}] for text in ("One", "Two")]
    item = {"question": REVIEW_PLAN, "header": "Plan", "options": []}
    first = QuestionFactory.create(kind=QuestionKind.PLAN, items=[item], evidence=plans[0])
    user = member_of(first)
    send(user, "question_decide", first, {"verdict": "approved"})
    run = RunFactory.create(step=first.step, number=2, task=first.task)
    second = QuestionFactory.create(
        task=first.task, run=run, number=2, kind=QuestionKind.PLAN, items=[item], evidence=plans[1]
    )
    terminal = io.StringIO()
    show_question(Screen(terminal), second)
    for told in (signed_in(user).get(reverse("question", args=[second.pk])).text, terminal.getvalue()):
        assert "The agent has changed the plan since." in told


def test_h5_a_question_without_options_has_one_field() -> None:
    free = {"question": "What name?", "header": "Name", "options": []}
    question = QuestionFactory.create(items=[free])
    client = signed_in(member_of(question))
    page = client.get(reverse("question", args=[question.pk])).text
    assert (
        '<div class="notes notes-instead">' in page
        and "choose" not in page[page.index('class="keys') :][:200]
    )
    Question.objects.update(items=[free, {**free, "question": "What place?"}])
    assert "notes-instead" not in client.get(reverse("question", args=[question.pk])).text


def test_no_answer_never_looks_like_one() -> None:
    question = asked(QuestionKind.CLARIFICATION)
    page = send(member_of(question), "question_dismiss", question, {"notes": "Nobody knows."})
    assert page.status_code == 200
    assert "Skipped by <strong>Ada</strong>" in page.text and "Nobody knows." in page.text
    assert "Answered by" not in page.text and "The agent decides by itself" in page.text
    done = fresh(question)
    assert (done.state, done.answers, done.notes) == (QuestionState.DISMISSED, {}, "Nobody knows.")


@pytest.mark.parametrize(
    ("kind", "verdict", "words"),
    [
        (QuestionKind.APPROVAL, "approved", "Approved by"),
        (QuestionKind.APPROVAL, "denied", "Denied by"),
        (QuestionKind.PLAN, "approved", "Approved by"),
        (QuestionKind.PLAN, "sent_back", "Sent back by"),
    ],
)
def test_a_decision_is_stored_and_the_card_says_whose_it_is(
    kind: QuestionKind, verdict: str, words: str
) -> None:
    question = asked(kind)
    page = send(member_of(question), "question_decide", question, {"verdict": verdict, "notes": "Because."})
    assert page.status_code == 200
    assert f"{words} <strong>Ada</strong>" in page.text and "Because." in page.text
    assert "make deploy &lt;now&gt;" in page.text
    assert (fresh(question).verdict, fresh(question).notes) == (verdict, "Because.")


def test_an_approval_needs_no_words_and_takes_notes() -> None:
    question = asked(QuestionKind.APPROVAL)
    send(member_of(question), "question_decide", question, {"verdict": "approved", "notes": "Carefully."})
    assert (fresh(question).verdict, fresh(question).notes) == (Verdict.APPROVED, "Carefully.")


@pytest.mark.parametrize(
    ("kind", "verdict", "words"),
    [
        (QuestionKind.APPROVAL, "denied", "Enter a reason"),
        (QuestionKind.PLAN, "sent_back", "Enter your comments"),
        (QuestionKind.APPROVAL, "sent_back", "approve or deny it"),
        (QuestionKind.PLAN, "", "approve it or send it back"),
        (QuestionKind.CLARIFICATION, "approved", "answer or dismiss it"),
    ],
)
def test_a_decision_that_is_none_is_400_and_says_why(kind: QuestionKind, verdict: str, words: str) -> None:
    question = asked(kind)
    user = member_of(question)
    page = send(user, "question_decide", question, {"verdict": verdict, "notes": " "})
    assert page.status_code == 400 and words in page.text
    part = send(user, "question_decide", question, {"verdict": verdict}, headers=HTMX)
    assert part.status_code == 400 and words in part.text and "<form" not in part.text
    place = f"question-{question.pk}-refusal" + "-notes" * words.startswith("Enter")
    assert part["HX-Retarget"] == f"#{place}"
    assert re.search(rf'id="{place}" role="alert"><p class="refusal">[^<]*{words}', tidy(page.text))
    assert fresh(question).is_open


@pytest.mark.parametrize("kind", QuestionKind)
def test_a_card_has_one_text_field_for_notes_reason_and_remark(kind: QuestionKind) -> None:
    question = asked(kind)
    card = signed_in(member_of(question)).get(reverse("question", args=[question.pk])).text
    fields = set(re.findall(r'<textarea[^>]* name="([^"]+)"', card))
    assert fields - {"item-0-other", "statement"} == {"notes"}  # the statement is that of a decision
    assert card.count('name="notes"') == 1


@pytest.mark.parametrize("kind", QuestionKind)
def test_a_viewer_is_nowhere_asked_for_an_answer(kind: QuestionKind, subtests: pytest.Subtests) -> None:
    question = asked(kind)
    client = signed_in(member_of(question, Role.VIEWER))
    question_page, task_page = (
        reverse("question", args=[question.pk]),
        reverse("task", args=[question.task_id]),
    )
    for where in (question_page, task_page, "/tasks/", "/inbox/", "/tasks/queue/", "/tasks/all/"):
        with subtests.test(where):
            # The list of keys is the same for everybody.
            page = re.sub(r'<dialog id="keys".*?</dialog>', "", client.get(where).text, flags=re.DOTALL)
            assert not re.search(r"needs your|needs you|Answer and|Approve|Deny|Skip…", page, re.IGNORECASE)
            assert 'name="notes"' not in page and 'name="item-0' not in page
            assert 'data-open="0"' in page and not re.search(r"<title>\s*\(", page)
    assert question.headline_by_evidence in client.get(task_page).text
    if kind == QuestionKind.CLARIFICATION:
        assert "Half up" in client.get(question_page).text


def test_an_approval_is_neither_answered_nor_dismissed() -> None:
    question = asked(QuestionKind.APPROVAL)
    user = member_of(question)
    assert send(user, "question_answer", question, {"item-0-other": "Yes"}).status_code == 400
    assert send(user, "question_dismiss", question, {}).status_code == 400
    assert fresh(question).is_open


@pytest.mark.parametrize("name", WAYS)
class TestEachWay:
    def test_too_late_is_409_says_what_was_decided_and_gives_the_words_back(self, name: str) -> None:
        kind, good, words = WAYS[name]
        question = asked(kind)
        send(member_of(question), name, question, good)
        late = {**good, "notes": "My own words."}
        page = send(UserFactory.create(is_superuser=True), name, question, late)
        assert page.status_code == 409
        assert f"{words} <strong>Ada</strong>" in page.text and "was not accepted" in page.text
        assert "My own words.</textarea>" in page.text

    def test_the_same_again_is_200_and_changes_nothing(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        user = member_of(question)
        send(user, name, question, good)
        first = fresh(question).answered_at
        again = send(user, name, question, good)
        assert (again.status_code, fresh(question).answered_at) == (200, first)

    def test_a_withdrawn_question_is_409(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        user = member_of(question)
        cancel_task(question.task, by=acting(user))
        page = send(user, name, question, good)
        assert page.status_code == 409 and "Withdrawn" in page.text

    def test_too_long_is_413_and_keeps_the_words(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        text = "x" * (settings.ENVIRONMENT.answer_limit + 1)
        page = send(member_of(question), name, question, {**good, "notes": text})
        assert page.status_code == 413 and f"{text}</textarea>" in page.text
        assert fresh(question).is_open

    def test_a_nul_character_is_400(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        page = send(member_of(question), name, question, {**good, "notes": "a\x00"})
        assert page.status_code == 400 and "NUL" in page.text

    def test_a_viewer_gets_403_and_an_outsider_404(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        viewer = member_of(question, Role.VIEWER)
        assert send(viewer, name, question, good).status_code == 403
        shown = signed_in(viewer).get(reverse("question", args=[question.pk])).text
        assert "does not allow you to answer" in shown and 'class="card-buttons"' not in shown
        assert send(UserFactory.create(), name, question, good).status_code == 404
        assert fresh(question).is_open

    def test_without_its_token_it_is_refused(self, name: str) -> None:
        kind, good, _ = WAYS[name]
        question = asked(kind)
        client = signed_in(member_of(question), enforce_csrf_checks=True)
        assert client.post(reverse(name, args=[question.pk]), good).status_code == 403


def test_evidence_stands_before_the_buttons_and_hostile_text_is_text() -> None:
    question = asked(QuestionKind.PLAN)
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- taken\n+++ added\n same"
    question.evidence = [
        {"kind": "diff", "title": "<x>", "text": diff},
        {"kind": "markdown", "title": "Plan", "text": "# Do <script>alert(1)</script>"},
        {"kind": "unknown", "title": "", "text": "\x1b[31m<b>"},
    ]
    question.save()
    page = signed_in(member_of(question)).get(reverse("question", args=[question.pk])).text
    assert page.index("evidence-markdown") < page.index('class="card-buttons"')
    assert "<script>alert" not in page and "<b>" not in page and "&lt;x&gt;" in page
    assert page.count('class="dl dl-del"') == page.count('class="dl dl-add"') == 1
    assert "a/x" not in page


def test_the_first_paragraph_is_the_headline_and_the_rest_is_markdown() -> None:
    question = QuestionFactory.create(items=[{"question": "Which one?\n\nThere are **two**.", "options": []}])
    page = signed_in(member_of(question)).get(reverse("question", args=[question.pk])).text
    assert ">Which one?</span>" in page and "<strong>two</strong>" in page
