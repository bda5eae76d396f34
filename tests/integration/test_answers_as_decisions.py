"""The card's form and `cat-herder answer` make decisions, and say what an answer means for them (D2, D6)."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from tasks_app.models import Decision, DecisionState, Question, User
from tasks_app.services.questions.earlier_answers import question_key
from tests.factories import ROUNDING, DecisionFactory, QuestionFactory, TaskFactory
from tests.markup import tidy

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


@pytest.fixture
def undo(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})


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

    def test_undo_gives_back_what_was_entered(self, client: Client, question: Question, undo: None) -> None:
        """Also what was to be remembered, and what the answer meant for a decision."""
        decided = decided_before(question)
        entered = {"remember": "paths", "remember-paths": 'src/**, "my docs/**"', "statement": "Round down."}
        send(client, question, **{"item-0": "Half down", f"stance-{decided.number}": "supersede", **entered})
        card = client.post(f"/questions/{question.pk}/undo/", headers={"HX-Request": "true"}).text
        assert 'name="remember" value="paths" checked' in card
        assert 'value="src/**, &quot;my docs/**&quot;"' in card and ">Round down.</textarea>" in card
        assert re.search(rf'name="stance-{decided.number}" value="supersede"[^>]* checked', card)

    def test_an_answered_card_names_no_decision_of_an_answer_that_was_taken_back(
        self, client: Client, question: Question, undo: None
    ) -> None:
        fields = {"item-0": "Half up", "remember": "project"}
        send(client, question, **fields)
        client.post(f"/questions/{question.pk}/undo/", headers={"HX-Request": "true"})
        card = send(client, question, **fields).content.decode()
        assert 'decisions/2/"' in card and 'decisions/1/"' not in card

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

    def test_d6_each_choice_says_what_it_does_and_a_refusal_speaks_of_them(
        self, client: Client, question: Question
    ) -> None:
        old = decided_before(question)
        page = tidy(client.get(f"/questions/{question.pk}/").text)
        labels = re.findall(r'<label><input type="radio" name="stance-.*?</label>', page, re.DOTALL)
        assert len(labels) == 5 and all('<span class="quiet">' in one for one in labels)
        refused = send(client, question, **{"item-0": "Half to even"}).content.decode()
        assert old.label in refused
        assert not re.search("supersede|narrow|unaffected|agree", re.sub("<[^>]*>", "", refused))

    def test_d6_the_same_answer_is_no_exception(self, client: Client, question: Question) -> None:
        old = decided_before(question)
        sent = {"item-0": "Half up", f"stance-{old.number}": "exception"}
        assert send(client, question, **sent).status_code == 400
        question.refresh_from_db()
        assert question.is_open and not old.events.exists()

    @pytest.mark.parametrize("name", ["stance-x", "stance-", "stance-99999999999", "stance--1"])
    def test_fields_that_nobody_shows_change_nothing(
        self, client: Client, question: Question, name: str
    ) -> None:
        assert send(client, question, **{"item-0": "Half up", name: "agree"}).status_code == 200


class TestCardOfSeveralQuestions:
    ITEMS = (ROUNDING, {"question": "What file name?", "header": "Name", "options": []})
    SENT: dict[str, str] = {"item-0": "Half up", "item-1-other": "a.csv", "remember": "project"}
    SENT_AGAIN = ("--item", "1=Half up", "--item", "2=a.csv")

    @pytest.fixture
    def question(self) -> Question:
        return QuestionFactory.create(items=list(self.ITEMS))

    def test_d2_each_question_has_a_statement_of_its_own(self, client: Client, question: Question) -> None:
        page = client.get(f"/questions/{question.pk}/").content.decode()
        for name in ("remember-item-0", "remember-item-1", "statement-0", "statement-1"):
            assert page.count(f'name="{name}"') == 1
        assert 'name="statement"' not in page and not re.search('name="remember-item-[01]" checked', page)

    def test_d2_the_chosen_ones_become_decisions(self, client: Client, question: Question) -> None:
        said = {"remember-item-0": "on", "remember-item-1": "on", "statement-0": "Round up."}
        assert send(client, question, **self.SENT, **said).status_code == 200
        statements = list(Decision.objects.order_by("number").values_list("statement", flat=True))
        assert statements == ["Round up.", "What file name? a.csv"]

    def test_undo_gives_back_the_ticks_and_statements(
        self, client: Client, question: Question, undo: None
    ) -> None:
        send(client, question, **self.SENT, **{"remember-item-1": "on", "statement-1": "Exports are CSV."})
        card = client.post(f"/questions/{question.pk}/undo/", headers={"HX-Request": "true"}).text
        assert 'name="remember-item-1" checked' in card and 'name="remember-item-0" checked' not in card
        assert ">Exports are CSV.</textarea>" in card

    def test_d2_the_others_are_for_this_task(self, client: Client, question: Question) -> None:
        assert send(client, question, **self.SENT, **{"remember-item-1": "on"}).status_code == 200
        assert Decision.objects.get().statement == "What file name? a.csv"

    def test_d2_d6_one_that_is_not_remembered_can_replace_a_decision_with_its_own_statement(
        self, client: Client, question: Question
    ) -> None:
        old = decided_before(
            QuestionFactory.create(task=TaskFactory.create(project=question.task.project), items=[ROUNDING])
        )
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert '<fieldset class="related-decision" data-item="0"' in page
        sent = {**self.SENT, "item-0": "Half to even", f"stance-{old.number}": "supersede"}
        said = {"remember": "task", "statement-0": "As banks do it."}
        assert send(client, question, **{**sent, **said}).status_code == 200
        new = Decision.objects.get(state="active")
        assert (new.statement, new.replaces, new.scope) == ("As banks do it.", old, old.scope)

    def test_d2_the_card_says_afterwards_what_was_decided(self, client: Client, question: Question) -> None:
        card = send(client, question, **self.SENT, **{"remember-item-1": "on"}).content.decode()
        made = Decision.objects.get()
        assert made.label in card and made.statement in card and f"/decisions/{made.number}/" in card
        assert made.label in client.get(f"/questions/{question.pk}/").content.decode()

    def test_d2_each_decision_stands_with_its_own_answer(self, client: Client, question: Question) -> None:
        """On the card, on the task's questions and in the terminal; both stood behind the last answer."""
        said = {"remember-item-0": "on", "statement-0": "Round up.", "remember-item-1": "on"}
        card = send(client, question, **self.SENT, **said).content.decode()
        tab = client.get(f"/tasks/{question.task_id}/questions/").content.decode()
        out = StringIO()
        call_command("answer", str(question.pk), *self.SENT_AGAIN, username="root", stdout=out)
        for text in (card, tab, out.getvalue()):
            assert text.index("Decided as") < text.index("D-1") < text.index("What file name?")
            assert text.index("a.csv") < text.index("D-2")

    def test_d2_none_is_refused_and_nothing_is_lost(self, client: Client, question: Question) -> None:
        refused = send(client, question, htmx=False, **self.SENT, **{"statement-1": "My sentence."})
        page = refused.content.decode()
        assert refused.status_code == 400 and "Choose at least one answer that holds" in page
        assert "My sentence." in page and 'name="remember-item-1" checked' not in page
        question.refresh_from_db()
        assert question.is_open

    def test_d4_an_earlier_answer_fills_in_its_question(
        self, client: Client, admin: User, question: Question
    ) -> None:
        earlier = QuestionFactory.create(task__project=question.task.project, items=[self.ITEMS[1]])
        send(client, earlier, **{"item-0-other": "b.csv"})
        page = client.get(f"/questions/{question.pk}/?use={earlier.pk}").content.decode()
        assert page.count("Asked before") == 1
        assert page.index("Asked before") > page.index("What file name?")
        assert "b.csv</textarea>" in page and 'value="Half up" checked' not in page
        sent = {"item-0": "Half up", "item-1-other": "b.csv", "taken_from": str(earlier.pk)}
        assert "As in task" in send(client, question, **sent).content.decode()


class TestConcerned:
    def test_d6_a_decision_that_the_agent_names_must_be_judged(
        self, client: Client, question: Question
    ) -> None:
        DecisionFactory.create(project=question.task.project)
        question.items = [{"question": "D-1 says so. And refunds?", "options": []}]
        question.save()
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert "The agent names" in page and "Say what your answer means for it (required):" in page
        refused = send(client, question, **{"item-0-other": "Yes"})
        assert refused["HX-Retarget"] == f"#question-{question.pk}-refusal-decisions"
        assert "Say what this answer means for D-1" in refused.content.decode()
        done = send(client, question, **{"item-0-other": "Yes", "stance-1": "unaffected"})
        assert done.status_code == 200 and Decision.objects.get().is_active

    def test_d6_one_that_does_not_hold_here_need_not(self, client: Client, question: Question) -> None:
        old = decided_before(question)
        Decision.objects.filter(pk=old.pk).update(scope="paths", paths=["docs/**"])
        page = client.get(f"/questions/{question.pk}/").content.decode()
        assert "It does not seem to apply here." in page
        assert send(client, question, **{"item-0": "Half to even"}).status_code == 200


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
        self.answer(question, "1", "--decision", "D-1=limit:src/**,lib/**")
        old.refresh_from_db()
        assert old.state == DecisionState.SUPERSEDED
        assert Decision.objects.active().get().paths == ["src/**", "lib/**"]

    def test_a_contradiction_names_the_option(self, admin: User, question: Question, capsys: Any) -> None:
        decided_before(question)
        with pytest.raises(SystemExit):
            self.answer(question, "1")
        said = capsys.readouterr().err
        assert said.startswith("error: --decision: this answer contradicts D-1.")
        assert "For example: D-1=replace." in said

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--path", "src/**"), "--path: goes with --remember paths"),
            (("--statement", "x"), "--remember: say how far"),
            (("--decision", "supersede"), "must be like D-17=replace"),
            (("--decision", "D-1=drop"), "must be like D-17=replace"),
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
