"""What is typed at the prompt about decisions: how far an answer holds, what it means for others (D2, D6)."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from tasks_app.cli.questions import Prompt
from tasks_app.cli.terminal import Keyboard, Screen
from tasks_app.models import Decision, Question
from tasks_app.services.decisions.answering import Remember, StanceChoice
from tasks_app.services.questions.answers import Reply
from tasks_app.services.questions.earlier_answers import question_key
from tests.factories import ROUNDING, DecisionFactory, QuestionFactory, UserFactory
from tests.integration.conftest import Manage

pytestmark = pytest.mark.django_db

NAME = {"question": "Which npm scope?", "options": []}


def asked(*items: dict[str, Any]) -> Question:
    return QuestionFactory.create(items=list(items or (ROUNDING,)))


def decided_before(question: Question) -> Decision:
    return DecisionFactory.create(
        project=question.task.project, statement="Half cents are rounded up.",
        question_key=question_key(question), answers={ROUNDING["question"]: "Half up"},
    )  # fmt: skip


def typed(question: Question, *lines: str) -> tuple[Reply, str]:
    """Type the lines, and return the reply with what was shown."""
    reading, writing = os.pipe()
    os.write(writing, "".join(f"{line}\n" for line in lines).encode())
    os.close(writing)
    shown = io.StringIO()
    try:
        reply = Prompt(Screen(shown), Keyboard(reading), check_interrupt=lambda: None).reply_to(question)
    finally:
        os.close(reading)
    return reply, " ".join(shown.getvalue().split())


class TestRemembering:
    def test_d2_it_says_what_is_remembered_and_takes_another_statement(self) -> None:
        reply, shown = typed(asked(), "2 @project", "Half cents are rounded up.")
        assert reply.answers == {ROUNDING["question"]: "Half up"}
        assert reply.decision_input.remember == Remember("project", statement="Half cents are rounded up.")
        assert "What agents of later tasks read for the whole project: Half up: As at school." in shown

    @pytest.mark.parametrize("lines", [("",), ()])
    def test_d2_enter_keeps_the_prepared_statement(self, lines: tuple[str, ...]) -> None:
        reply, shown = typed(asked(), "2 @paths src/**", *lines)
        statement = "Half up: As at school."
        assert reply.decision_input.remember == Remember("paths", ["src/**"], statement)
        assert "read for src/**" in shown

    def test_d2_a_free_text_may_end_like_a_mark(self) -> None:
        reply, shown = typed(asked(NAME), "use npm scope @project", "what?", "n")
        assert reply.answers == {"Which npm scope?": "use npm scope @project"}
        assert not reply.decision_input.remember.makes_decision
        assert "Remember “use npm scope” for the whole project? Type y, or n if “@project” belongs" in shown
        reply, _ = typed(asked(NAME), "acme @project", "y")
        assert reply.answers == {"Which npm scope?": "acme"}
        assert reply.decision_input.remember.statement == "acme"

    def test_d2_nothing_is_cut_off_if_nobody_can_be_asked(self) -> None:
        with pytest.raises(EOFError):
            typed(asked(NAME), "use npm scope @project")

    def test_d2_each_item_holds_as_far_as_its_answer_says(self) -> None:
        question = asked(ROUNDING, NAME, {"question": "What name?", "options": []})
        reply, _ = typed(question, "2 @project", "acme", "a.csv @paths src/**", "y", "Up.")
        assert reply.decision_input.by_item == {
            ROUNDING["question"]: Remember("project", statement="Up."),
            "What name?": Remember("paths", ["src/**"], "a.csv"),
        }


class TestStances:
    @pytest.mark.parametrize(
        ("line", "stance"),
        [
            ("1", StanceChoice("supersede")),
            ("2", StanceChoice("exception")),
            ("3 src/**, docs/**", StanceChoice("narrow", ("src/**", "docs/**"))),
        ],
    )
    def test_d6_a_contradiction_asks_what_holds(self, line: str, stance: StanceChoice) -> None:
        question = asked()
        decided_before(question)
        reply, shown = typed(question, "1", line)
        assert reply.decision_input.stances == {1: stance}
        assert "Your answer contradicts D-1: Half cents are rounded up." in shown

    @pytest.mark.parametrize("line", ["3", "y", "src/**", "4", "5", "1 src/**", "", "none"])
    def test_d6_what_is_no_choice_is_asked_again_and_narrows_nothing(self, line: str) -> None:
        question = asked()
        decided_before(question)
        reply, shown = typed(question, "1", line, "2")
        assert reply.decision_input.stances == {1: StanceChoice("exception")}
        assert shown.count("Type 1: your answer replaces it") == 2

    @pytest.mark.parametrize(("line", "stance"), [("4\n5", "unaffected"), ("2", "exception")])
    def test_d6_so_does_a_decision_that_the_agent_names(self, line: str, stance: str) -> None:
        question = asked({"question": "D-1 is half up. Which currency?", "options": []})
        decided_before(question)
        reply, shown = typed(question, "Euros", *line.split("\n"))
        assert reply.decision_input.stances == {1: StanceChoice(stance)}
        assert "D-1 is right" not in shown, "another answer to its question does not confirm it"
        assert "5: your answer does not affect it" in shown

    def test_d6_without_a_line_for_it_nothing_is_answered(self) -> None:
        question = asked({"question": "D-1 is half up. Which currency?", "options": []})
        decided_before(question)
        with pytest.raises(EOFError):
            typed(question, "Euros")

    def test_d6_the_same_answer_needs_nothing_more(self) -> None:
        question = asked()
        decided_before(question)
        reply, _ = typed(question, "2")
        assert reply.decision_input.is_empty

    def test_d2_what_holds_instead_has_a_statement_to_edit(self) -> None:
        question = asked()
        decided_before(question)
        reply, _ = typed(question, "1", "1", "Half cents are rounded to even.")
        assert reply.decision_input.remember == Remember(statement="Half cents are rounded to even.")


class TestCommands:
    def test_d2_statements_of_several_items(self, manage: Manage) -> None:
        UserFactory.create(username="ann", is_superuser=True)
        question = asked(ROUNDING, NAME)
        said = ["--as", "ann", question.pk, "--item", "1=2", "--item", "2=acme", "--remember", "project"]
        assert "N from 1 to 2" in manage("answer", *said, "--statement", "Round up.")[2]
        assert manage("answer", *said, "--statement", "1=Round up.")[0] == 0
        assert [one.statement for one in Decision.objects.all()] == ["Round up."]

    @pytest.mark.parametrize("way", [["--dismiss"], ["--deny", "No."]])
    def test_d2_only_an_answer_is_remembered(self, manage: Manage, way: list[str]) -> None:
        UserFactory.create(username="ann", is_superuser=True)
        question = asked()
        code, _, err = manage("answer", "--as", "ann", question.pk, *way, "--remember", "project")
        assert code == 2 and "--remember: goes with an answer" in err
        question.refresh_from_db()
        assert question.is_open

    def test_d4_take_gives_each_item_its_earlier_answer(self, manage: Manage) -> None:
        UserFactory.create(username="ann", is_superuser=True)
        earlier = asked(ROUNDING)
        manage("answer", "--as", "ann", earlier.pk, "2")
        question = QuestionFactory.create(task__project=earlier.task.project, items=[ROUNDING, NAME])
        code, _, err = manage("answer", "--as", "ann", question.pk, "--take")
        assert code == 2 and "“Which npm scope?” was not asked before in the same words" in err
        name = QuestionFactory.create(task__project=earlier.task.project, items=[NAME])
        manage("answer", "--as", "ann", name.pk, "acme")
        assert manage("answer", "--as", "ann", question.pk, "--take")[0] == 0
        question.refresh_from_db()
        assert list(question.answers.values()) == ["Half up", "acme"]
