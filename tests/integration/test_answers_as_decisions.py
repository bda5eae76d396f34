"""The card's form and `manage.py answer` make decisions, and say what an answer means for them (D2, D6)."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from tasks_app.models import Decision, DecisionState, Question, User
from tasks_app.services.answer_index import question_key
from tests.factories import ROUNDING, DecisionFactory, QuestionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def question() -> Question:
    return QuestionFactory.create()


def decided_before(question: Question) -> Decision:
    return DecisionFactory.create(
        project=question.task.project, statement="Half cents are rounded up.",
        question_key=question_key(question), answers={ROUNDING["question"]: "Half up"},
    )  # fmt: skip


def send(client: Client, question: Question, *, htmx: Any = True, **fields: str) -> Any:
    headers = {"HX-Request": "true"} if htmx else {}
    return client.post(f"/questions/{question.pk}/answer/", fields, headers=headers)


class TestCard:
    def test_it_offers_how_far_the_answer_holds_and_changes_nothing_by_itself(
        self, client: Client, question: Question
    ) -> None:
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert 'name="remember" value="task" checked' in page
        assert send(client, question, **{"item-0": "Half up", "remember": "task"}).status_code == 200
        assert not Decision.objects.exists()

    def test_the_whole_project(self, client: Client, question: Question) -> None:
        send(client, question, **{"item-0": "Half up", "remember": "project", "statement": "Round up."})
        made = Decision.objects.get()
        assert (made.scope, made.statement, made.question) == ("project", "Round up.", question)

    def test_paths_are_separated_by_commas_or_blanks(self, client: Client, question: Question) -> None:
        fields = {"item-0": "Half up", "remember": "paths", "remember-paths": "src/**, docs/*.md  a.py"}
        send(client, question, **fields)
        assert Decision.objects.get().paths == ["src/**", "docs/*.md", "a.py"]

    @pytest.mark.parametrize("htmx", [True, False])
    def test_what_is_missing_is_said_at_its_field_and_nothing_is_lost(
        self, client: Client, question: Question, htmx: bool
    ) -> None:
        fields = {"item-0": "Half up", "remember": "paths", "statement": "My sentence."}
        refused = send(client, question, htmx=htmx, **fields)
        page = refused.content.decode()
        assert refused.status_code == 400
        assert "Name at least one path" in page
        if htmx:
            assert refused["HX-Retarget"] == f"#question-{question.pk}-refusal-remember"
        else:
            assert "My sentence." in page and 'value="paths" checked' in page
        question.refresh_from_db()
        assert question.is_open

    def test_a_contradiction_is_shown_with_the_decision_and_must_say_what_holds(
        self, client: Client, question: Question
    ) -> None:
        old = decided_before(question)
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert "Half cents are rounded up." in page and 'name="stance-1"' in page
        refused = send(client, question, **{"item-0": "Half to even"})
        assert refused.status_code == 400 and "This answer contradicts D-1." in refused.content.decode()
        done = send(client, question, **{"item-0": "Half to even", "stance-1": "supersede"})
        assert done.status_code == 200
        old.refresh_from_db()
        assert old.state == DecisionState.SUPERSEDED
        assert Decision.objects.active().get().replaces == old

    def test_hostile_statements_are_escaped(self, client: Client, question: Question) -> None:
        old = decided_before(question)
        Decision.objects.filter(pk=old.pk).update(statement="<script>alert(1)</script>")
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page

    @pytest.mark.parametrize("name", ["stance-x", "stance-", "stance-99999999999", "stance--1"])
    def test_fields_that_nobody_shows_change_nothing(
        self, client: Client, question: Question, name: str
    ) -> None:
        assert send(client, question, **{"item-0": "Half up", name: "agree"}).status_code == 200


class TestCommand:
    def answer(self, question: Question, *words: str) -> str:
        out = StringIO()
        call_command("answer", str(question.pk), *words, username="root", stdout=out)
        return out.getvalue()

    def test_remember(self, admin: User, question: Question) -> None:
        self.answer(question, "1", "--remember", "paths", "--path", "src/**", "--reason", "The bank.")
        made = Decision.objects.get()
        assert (made.paths, made.reason, made.answers) == (
            ["src/**"], "The bank.", {ROUNDING["question"]: "Half to even"},
        )  # fmt: skip

    def test_a_stance(self, admin: User, question: Question) -> None:
        old = decided_before(question)
        self.answer(question, "1", "--decision", "D-1=narrow:src/**,lib/**")
        old.refresh_from_db()
        assert old.state == DecisionState.SUPERSEDED
        assert Decision.objects.active().get().paths == ["src/**", "lib/**"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--path", "src/**"), "--path: goes with --remember paths"),
            (("--statement", "x"), "--remember: say how far"),
            (("--decision", "supersede"), "must be like D-17=supersede"),
            (("--decision", "D-1=drop"), "must be like D-17=supersede"),
            (("--decision", "D-1=agree"), "does not concern D-1"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, admin: User, question: Question, words: tuple[str, ...], message: str, capsys: Any
    ) -> None:
        with pytest.raises(SystemExit):
            self.answer(question, "1", *words)
        assert message in capsys.readouterr().err
        question.refresh_from_db()
        assert question.is_open
