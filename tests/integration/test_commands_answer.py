"""`cat-herder answer`, on rows (H5, H6, P12, R5)."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.models import Channel, Question, User
from tasks_app.services.questions.answers import Reply, answer_question
from tests.factories import COLUMNS, FILE_NAME, ROUNDING, MembershipFactory, QuestionFactory, UserFactory
from tests.integration.conftest import Manage
from tests.people import acting

pytestmark = pytest.mark.django_db

Outcome = tuple[int, str, str]


@pytest.fixture
def ann() -> User:
    return UserFactory.create(username="ann", first_name="Ann", is_superuser=True)


@pytest.fixture
def answer(ann: User, manage: Manage) -> Callable[..., Outcome]:
    """Exit code, stdout and stderr of the command."""

    def run(question: Question | int, *words: str, who: str = "ann") -> Outcome:
        number = question if isinstance(question, int) else question.pk
        return manage("answer", "--as", who, number, *words)

    return run


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (("2",), "Half up"),
        (("half to EVEN",), "Half to even"),
        (('@/etc/passwd "; rm -rf\n☃',), '@/etc/passwd "; rm -rf\n☃'),
        (("/clear",), "/clear"),
        (("--", "-1"), "-1"),
        (("x" * 100_000,), "x" * 100_000),
    ],
)
def test_an_answer_is_stored_as_the_person_meant_it(
    answer: Callable[..., Outcome], words: tuple[str, ...], stored: str
) -> None:
    question = QuestionFactory.create()
    code, out, _ = answer(question, "--notes", "And be quick.", *words)
    question.refresh_from_db()
    assert code == 0
    assert question.answers == {ROUNDING["question"]: stored}
    assert (question.answered_via, question.notes) == (Channel.TERMINAL, "And be quick.")
    assert f"Question {question.pk} is answered" in out


def test_a_dash_reads_the_answer_from_stdin(
    answer: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = QuestionFactory.create()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Two lines,\none ☃\n".encode())))
    assert answer(question, "-")[0] == 0
    question.refresh_from_db()
    assert question.answer_text == "Two lines,\none ☃"


def test_several_items_are_answered_one_by_one(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create(items=[ROUNDING, COLUMNS, FILE_NAME])
    words = ("--item", "3=2", "--item", "1=2", "--item", "2=1, e-mail")
    assert answer(question, *words)[0] == 0
    question.refresh_from_db()
    assert list(question.answers_in_order.values()) == ["Half up", "Name, E-mail", "2"]


def test_several_items_are_answered_by_json(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create(items=[ROUNDING, FILE_NAME])
    given = {FILE_NAME["question"]: "a=b", ROUNDING["question"]: "1"}
    assert answer(question, json.dumps(given))[0] == 0
    question.refresh_from_db()
    assert list(question.answers_in_order.values()) == ["Half to even", "a=b"]


def test_the_same_answer_again_changes_nothing_and_is_no_fault(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create()
    answer(question, "Half up")
    code, out, _ = answer(question, "2", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["repeated"], facts["by"], facts["via"]) == (True, "ann", "terminal")
    assert facts["answers"] == {ROUNDING["question"]: "Half up"}


def test_who_comes_too_late_learns_by_whom_when_and_what(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create()
    bob = MembershipFactory.create(project=question.task.project, user__username="bob", role="member").user
    answer_question(question, Reply.to(question, "Half up"), by=acting(bob), via=Channel.WEB)
    code, out, err = answer(question, "Half to even")
    assert (code, out) == (1, "")
    assert err.startswith("error: Answered by bob at 20")
    assert err.endswith(": Half up\n")
    question.refresh_from_db()
    assert question.answers == {ROUNDING["question"]: "Half up"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("",), "Choose an option or type an answer"),
        ((" \n ",), "Choose an option or type an answer"),
        ((), "TEXT, - for stdin, or --item"),
        (("x" * 200_001,), "takes up to 200,000"),
        (("a\0b",), "NUL character"),
        (("yes", "--item", "1=no"), "not both"),
        (("--item", "2=no"), "N from 1 to 1"),
        (("--item", "no"), "“no” must be N=TEXT"),
        (("--item", "1=a", "--item", "1=b"), "answered twice"),
    ],
)
def test_an_answer_that_cannot_be_taken_is_refused_and_nothing_is_lost(
    answer: Callable[..., Outcome], words: tuple[str, ...], told: str
) -> None:
    """R5."""
    question = QuestionFactory.create()
    code, out, err = answer(question, *words)
    assert (code, out) == (2, "")
    assert told in err
    question.refresh_from_db()
    assert question.is_open


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Half up", "has 2 items: use --item"),
        ("[1, 2]", "a JSON object of questions with texts"),
        ('{"Why?": "Because"}', "The question does not ask “Why?”"),
        ('{"Which columns?": "Name"}', "“How should half cents be rounded?” has no answer yet"),
    ],
)
def test_several_items_need_their_answers_each(answer: Callable[..., Outcome], text: str, told: str) -> None:
    question = QuestionFactory.create(items=[ROUNDING, COLUMNS])
    code, _, err = answer(question, text)
    assert code == 2
    assert told in err


def test_an_error_is_json_too_where_json_is_wanted(answer: Callable[..., Outcome]) -> None:
    code, out, err = answer(4711, "yes", "--json")
    assert code == 2
    assert json.loads(out) == {"error": err.strip().removeprefix("error: "), "exit_code": 2}
    assert "There is no question 4711" in err


def test_what_a_person_may_not_see_does_not_exist_for_them(answer: Callable[..., Outcome]) -> None:
    """W1."""
    question = QuestionFactory.create()
    UserFactory.create(username="eve")
    code, _, err = answer(question, "yes", who="eve")
    assert (code, err) == (
        2,
        f"error: There is no question {question.pk}. `cat-herder status` lists the open ones.\n",
    )


def test_who_may_only_look_cannot_answer(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create()
    MembershipFactory.create(project=question.task.project, user__username="vic", role="viewer")
    code, _, err = answer(question, "yes", who="vic")
    assert code == 2
    assert "does not allow this" in err


PUSH = {
    "question": "Allow this command?\n\n`git push`",
    "options": [{"label": "Approve", "description": ""}, {"label": "Deny", "description": ""}],
}


def wanting(kind: str) -> Question:
    evidence = [{"kind": "command", "title": "Command", "text": "git push"}]
    question: Question = QuestionFactory.create(kind=kind, items=[PUSH], evidence=evidence)
    return question


@pytest.mark.parametrize(
    ("kind", "words", "verdict", "notes", "said"),
    [
        ("approval", ("--approve",), "approved", "", "is approved."),
        ("approval", ("--deny", "Not now."), "denied", "Not now.", "is denied: Not now."),
        ("plan", ("--approve", "--notes", "Good."), "approved", "Good.", "is approved: Good."),
        ("plan", ("--send-back", "Tests first."), "sent_back", "Tests first.", "is sent back: Tests first."),
    ],
)
def test_tool_calls_and_plans_are_decided(
    answer: Callable[..., Outcome], kind: str, words: tuple[str, ...], verdict: str, notes: str, said: str
) -> None:
    question = wanting(kind)
    code, out, _ = answer(question, *words)
    question.refresh_from_db()
    assert (code, question.verdict, question.notes) == (0, verdict, notes)
    assert said in out
    assert answer(question, *words)[:2] == (
        0,
        out.replace(
            said, said.replace(verdict.replace("_", " "), f"{verdict.replace('_', ' ')} (it was already)")
        ),
    )


def test_equal_calls_are_approved_together(answer: Callable[..., Outcome]) -> None:
    first = wanting("approval")
    facts = {"kind": "approval", "items": [PUSH], "task": first.task, "step": first.step, "run": first.run}
    facts["evidence"] = first.evidence
    equal = QuestionFactory.create(number=2, **facts)
    other = QuestionFactory.create(number=3, tool_input={"command": "git push --force"}, **facts)
    code, out, _ = answer(first, "--approve", "--rest", "--json")
    assert (code, json.loads(out)["approved_too"]) == (0, [equal.pk])
    assert [*Question.objects.open()] == [other]


def test_a_question_is_dismissed(answer: Callable[..., Outcome]) -> None:
    question = QuestionFactory.create()
    code, out, _ = answer(question, "--dismiss", "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["answers"]) == (0, "dismissed", {})
    code, _, err = answer(question, "Half up")
    assert code == 1 and "Dismissed by Ann" in err


@pytest.mark.parametrize(
    ("kind", "words", "why"),
    [
        ("approval", ("Approve",), "--approve"),
        ("approval", (), "--approve"),
        ("approval", ("--dismiss",), "approve or deny it"),
        ("approval", ("--send-back", "x"), "approve or deny it"),
        ("approval", ("--deny", " "), "Enter a reason"),
        ("approval", ("--approve", "--deny", "x"), "one of"),
        ("approval", ("--deny", "x", "--rest"), "--approve"),
        ("plan", ("--deny", "x"), "approve it or send it back"),
        ("clarification", ("--approve",), "answer or dismiss it"),
        ("clarification", ("--dismiss", "Yes"), "one of"),
    ],
)
def test_what_does_not_fit_the_question_changes_nothing(
    answer: Callable[..., Outcome], kind: str, words: tuple[str, ...], why: str
) -> None:
    question = QuestionFactory.create() if kind == "clarification" else wanting(kind)
    code, _, err = answer(question, *words)
    question.refresh_from_db()
    assert code == 2 and why in err
    assert question.is_open


def test_what_undo_offers_depends_on_whether_the_agent_waits_for_others(
    answer: Callable[..., Outcome], settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    first = QuestionFactory.create()
    second = QuestionFactory.create(task=first.task, step=first.step, run=first.run, number=2)
    assert "The task waits for 1 more answer. For 60 s --undo takes this one back." in answer(first, "2")[1]
    assert "The agent resumes in 60 s. Until then --undo takes it back." in answer(second, "2")[1]
