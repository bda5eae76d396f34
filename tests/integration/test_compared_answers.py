"""What an answer means for the decisions that hold: compared, by item, where they hold, taken back (D6)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Decision,
    DecisionState,
    Project,
    Question,
    ReviewReason,
    User,
)
from tasks_app.services.decisions.answering import DecisionInput, Remember, StanceChoice
from tasks_app.services.decisions.applying import find_match
from tasks_app.services.decisions.changes import confirm, mark_reviewed, retire, revise
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer
from tests.factories import ROUNDING, MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory
from tests.people import acting
from tests.racing import ROUNDS, race
from tests.similar_questions import DIFFERENT_TEXTS

pytestmark = pytest.mark.django_db

ASKED = str(ROUNDING["question"])
COLUMNS = {
    "question": "Which columns?",
    "options": [{"label": "Name"}, {"label": "City, country"}, {"label": "E-mail"}],
    "multiSelect": True,
}
NAME = {"question": "What file name?", "options": []}


@pytest.fixture(autouse=True)
def answers_can_be_taken_back(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})


@pytest.fixture
def project() -> Project:
    return ProjectFactory.create(overrides={"apply_decisions": True})


@pytest.fixture
def ada(project: Project) -> User:
    return MembershipFactory.create(project=project).user


@pytest.fixture
def bob(project: Project) -> User:
    return MembershipFactory.create(project=project).user


def asked(project: Project, *items: dict[str, Any], body: str = "") -> Question:
    task = TaskFactory.create(project=project, phase="waiting_for_input", body=body)
    return QuestionFactory.create(task=task, items=list(items or (ROUNDING,)))


def answer(question: Question, by: User, *texts: str, **given: Any) -> list[Decision]:
    """Answer each item, and return the decisions that this made."""
    before = set(Decision.objects.values_list("pk", flat=True))
    answers = {str(item["question"]): text for item, text in zip(question.items, texts, strict=True)}
    reply = Reply(answers, decision_input=DecisionInput(**given))
    answer_question(question, reply, by=acting(by), via=Channel.WEB)
    return list(Decision.objects.exclude(pk__in=before).order_by("number"))


def remembered(question: Question, by: User, *texts: str, **given: Any) -> Decision:
    (made,) = answer(question, by, *texts, remember=Remember("project"), **given)
    return made


def kinds(decision: Decision) -> list[str]:
    return list(decision.events.order_by("pk").values_list("kind", flat=True))


def state_of(decision: Decision) -> str:
    decision.refresh_from_db()
    return decision.state


def refused(question: Question, by: User, *texts: str, **given: Any) -> str:
    with pytest.raises(BadInput) as error:
        answer(question, by, *texts, **given)
    return str(error.value)


class TestRevised:
    """A decision with a new statement must not give the old answer in its name."""

    @pytest.fixture
    def revised(self, project: Project, ada: User, bob: User) -> Decision:
        first = remembered(asked(project), ada, "Half up")
        new = revise(first, DecisionContent("Half cents are rounded to even."), by=acting(ada))
        return confirm(new, by=acting(bob))

    def test_d5_it_is_not_applied(self, project: Project, revised: Decision) -> None:
        found = find_match(asked(project))
        assert found is not None and found.decision == revised
        assert found.blocker == "it has no answer to a part of the question"

    def test_d6_an_answer_that_it_states_is_no_contradiction(
        self, project: Project, ada: User, revised: Decision
    ) -> None:
        assert "say what this answer means for D-2" in refused(asked(project), ada, "Half to even")
        answer(asked(project), ada, "Half to even", stances={2: StanceChoice("agree")})
        assert kinds(revised)[-1] == "confirmed"

    def test_with_the_same_statement_it_keeps_its_answer(
        self, project: Project, ada: User, bob: User
    ) -> None:
        first = remembered(asked(project), ada, "Half up")
        revised = revise(first, DecisionContent(first.statement, "The bank."), by=acting(ada))
        confirm(revised, by=acting(bob))
        found = find_match(asked(project))
        assert found is not None and (found.decision, found.blocker) == (revised, "")


class TestComparing:
    @pytest.mark.parametrize("again", ["Half up (Recommended)", "Half  up\n"])
    def test_d6_blanks_and_a_recommendation_make_no_contradiction(
        self, project: Project, ada: User, bob: User, again: str
    ) -> None:
        first = remembered(asked(project), ada, "Half up")
        labels = {"Half up": "Half up (Recommended)"}
        options = [{**one, "label": labels.get(one["label"], one["label"])} for one in ROUNDING["options"]]
        answer(asked(project, {**ROUNDING, "options": options}), bob, again)
        assert kinds(first) == ["decided", "confirmed"]

    def test_d6_several_choices_are_a_set(self, project: Project, ada: User, bob: User) -> None:
        first = remembered(asked(project, COLUMNS), ada, "Name, City, country")
        answer(asked(project, COLUMNS), bob, "City, country, Name")
        assert kinds(first) == ["decided", "confirmed"]
        assert "contradicts D-1" in refused(asked(project, COLUMNS), bob, "Name, E-mail")

    def test_d6_nobody_can_compare_what_a_free_text_means(
        self, project: Project, ada: User, bob: User
    ) -> None:
        first = remembered(asked(project), ada, "Half up")
        question = asked(project)
        assert "say what this answer means for D-1" in refused(question, bob, "Up, as always")
        stances = {1: StanceChoice("agree")}
        assert "does not confirm it" in refused(question, bob, "Up, as always", stances=stances)
        answer(question, bob, "Up, as always", stances={1: StanceChoice("unaffected")})
        assert kinds(first) == ["decided"]

    @pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXTS)
    def test_d5_a_different_answer_is_no_confirmation(
        self, project: Project, ada: User, bob: User, one: str, other: str
    ) -> None:
        options = [{"label": text, "description": ""} for text in (one, other)]
        item = {**ROUNDING, "options": options}
        first = remembered(asked(project, item), ada, one)
        assert "contradicts D-1" in refused(asked(project, item), bob, other)
        stances = {1: StanceChoice("agree")}
        assert "does not confirm it" in refused(asked(project, item), bob, other, stances=stances)
        assert kinds(first) == ["decided"]
        answer(asked(project, item), bob, one)
        assert kinds(first) == ["decided", "confirmed"]

    @pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXTS)
    def test_d5_a_question_that_differs_in_a_character_is_not_answered_by_a_decision(
        self, project: Project, ada: User, bob: User, one: str, other: str
    ) -> None:
        for changed in ({"question": f"Is it {{}}? {ASKED}"}, {"header": "{}"}, {"options": "{}"}):
            ((name, text),) = changed.items()
            mine, theirs = (
                {**ROUNDING, name: text.format(value)}
                if name != "options"
                else {**ROUNDING, "options": [{"label": value, "description": ""}, ROUNDING["options"][0]]}
                for value in (one, other)
            )
            answer(asked(project, mine), ada, "Half up", remember=Remember("project"))
            answer(asked(project, mine), bob, "Half up")
            found = find_match(asked(project, mine))
            assert found is not None and found.blocker == "", name
            assert find_match(asked(project, theirs)) is None, name
            Decision.objects.all().delete()


class TestElsewhere:
    """A decision that does not hold here demands nothing, and is not confirmed either."""

    @pytest.mark.parametrize("again", ["Half up", "Half to even"])
    @pytest.mark.parametrize("body", ["", "Change docs/a.md."])
    def test_d6_one_for_other_paths(self, project: Project, ada: User, again: str, body: str) -> None:
        answer(asked(project), ada, "Half up", remember=Remember("paths", ["src/**"]))
        assert not answer(asked(project, body=body), ada, again)
        assert kinds(Decision.objects.get()) == ["decided"]

    def test_d6_one_for_the_file_in_question(self, project: Project, ada: User) -> None:
        answer(asked(project), ada, "Half up", remember=Remember("paths", ["src/**"]))
        question = asked(project, body="Change src/money.py.")
        assert "contradicts D-1" in refused(question, ada, "Half to even")

    def test_d6_one_for_another_step(self, project: Project, ada: User) -> None:
        answer(asked(project), ada, "Half up", remember=Remember("step", step="review"))
        assert not answer(asked(project), ada, "Half to even")
        here = asked(project).step.name
        Decision.objects.update(step=here)
        assert "contradicts D-1" in refused(asked(project), ada, "Half to even")

    def test_an_answer_for_all_of_the_project_stands_beside_it(self, project: Project, ada: User) -> None:
        answer(asked(project), ada, "Half up", remember=Remember("paths", ["src/**"]))
        remembered(asked(project), ada, "Half to even")
        assert Decision.objects.active().count() == 2


class TestItems:
    """Each item of a card is a question of its own."""

    ITEMS: tuple[dict[str, Any], ...] = (ROUNDING, COLUMNS, NAME)
    TEXTS = ("Half up", "Name, E-mail", "a.csv")

    def test_d1_each_becomes_a_decision_of_its_own(self, project: Project, ada: User) -> None:
        question = asked(project, *self.ITEMS)
        made = answer(question, ada, *self.TEXTS, remember=Remember("project"))
        assert [one.statement for one in made] == [
            "Rounding: Half up: As at school.",
            f"{COLUMNS['question']} Name; E-mail",
            f"{NAME['question']} a.csv",
        ]
        assert [one.answers for one in made] == [
            {str(item["question"]): text} for item, text in zip(self.ITEMS, self.TEXTS, strict=True)
        ]
        assert {one.question for one in made} == {question}

    def test_d2_only_those_that_are_named(self, project: Project, ada: User) -> None:
        given = {ASKED: Remember("project", statement="Round up."), "What file name?": Remember("step")}
        made = answer(asked(project, *self.ITEMS), ada, *self.TEXTS, by_item=given)
        assert [(one.statement, one.scope) for one in made] == [
            ("Round up.", "project"),
            (f"{NAME['question']} a.csv", "step"),
        ]

    def test_d2_a_statement_needs_its_question(self, project: Project, ada: User) -> None:
        question = asked(project, *self.ITEMS)
        one = Remember("project", statement="Round up.")
        assert refused(question, ada, *self.TEXTS, remember=one).startswith("remember.statement: ")
        unknown = refused(question, ada, *self.TEXTS, by_item={"Which?": one})
        assert unknown.startswith("remember.statements: ") and "does not ask “Which?”" in unknown

    def test_d6_what_one_card_decided_is_the_same_question_on_another(
        self, project: Project, ada: User, bob: User
    ) -> None:
        rounding, columns, _ = answer(
            asked(project, *self.ITEMS), ada, *self.TEXTS, remember=Remember("project")
        )
        answer(asked(project), bob, "Half up")
        assert kinds(rounding) == ["decided", "confirmed"]
        question = asked(project, NAME | {"question": "And the folder?"}, COLUMNS)
        (related,) = related_decisions(question)
        assert (related.decision, related.items) == (columns, [COLUMNS])
        assert "contradicts D-2" in refused(question, bob, "out", "Name")
        (new,) = answer(question, bob, "out", "Name", stances={2: StanceChoice("supersede")})
        assert (new.replaces, new.statement) == (columns, "Which columns? Name")

    def test_d5_a_card_of_several_items_is_for_a_human(self, project: Project, ada: User, bob: User) -> None:
        for one in answer(asked(project, *self.ITEMS), ada, *self.TEXTS, remember=Remember("project")):
            confirm(one, by=acting(bob))
        assert find_match(asked(project, *self.ITEMS)) is None
        found = find_match(asked(project, ROUNDING, {**NAME, "question": "And the folder?"}))
        assert found and found.blocker == "it has no answer to a part of the question"
        found = find_match(asked(project))
        assert found and found.blocker == ""

    def test_d2_taking_back_takes_all_of_them_back(self, project: Project, ada: User) -> None:
        question = asked(project, *self.ITEMS)
        made = answer(question, ada, *self.TEXTS, remember=Remember("project"))
        undo_answer(question, by=acting(ada))
        assert [state_of(one) for one in made] == ["retired"] * 3


class TestTakingBack:
    @pytest.fixture
    def first(self, project: Project, ada: User) -> Decision:
        return remembered(asked(project), ada, "Half up")

    def test_d6_a_restored_decision_is_still_to_be_reviewed(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        Decision.objects.update(review_reason=ReviewReason.UNFIT, review_note="Not for yen.")
        question = asked(project)
        answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        first.refresh_from_db()
        assert first.why_review == ""
        undo_answer(question, by=acting(ada))
        first.refresh_from_db()
        assert first.is_active and first.why_review.endswith("Not for yen.")

    def test_what_others_have_made_of_it_since_stays(
        self, project: Project, ada: User, bob: User, first: Decision
    ) -> None:
        question = asked(project)
        (made,) = answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        theirs = revise(made, DecisionContent("Half cents are never rounded."), by=acting(bob))
        undo_answer(question, by=acting(ada))
        assert [state_of(one) for one in (first, made, theirs)] == ["superseded", "superseded", "active"]

    def test_what_others_retired_since_stays_and_the_first_one_holds_again(
        self, project: Project, ada: User, bob: User, first: Decision
    ) -> None:
        question = asked(project)
        (made,) = answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        retire(made, by=acting(bob), reason="Wrong.")
        undo_answer(question, by=acting(ada))
        assert [state_of(one) for one in (first, made)] == ["active", "retired"]
        assert kinds(made).count("retired") == 1

    def test_a_decision_that_was_narrowed_by_hand_stays_so(
        self, project: Project, ada: User, bob: User
    ) -> None:
        """Its replacement is about the same question, but did not come from its answer."""
        question = asked(project)
        made = remembered(question, ada, "Half up")
        narrowed = revise(
            made, DecisionContent(made.statement, scope="paths", paths=["src/**"]), by=acting(bob)
        )
        undo_answer(question, by=acting(ada))
        assert [state_of(one) for one in (made, narrowed)] == ["superseded", "active"]

    def test_a_second_answer_is_taken_back_without_what_the_first_one_made(
        self, project: Project, ada: User, bob: User, first: Decision
    ) -> None:
        question = asked(project)
        (made,) = answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        undo_answer(question, by=acting(ada))
        Decision.objects.filter(pk=made.pk).update(state=DecisionState.ACTIVE)  # somebody restored it
        answer(question, ada, "Half up", stances={made.number: StanceChoice("exception")})
        undo_answer(question, by=acting(ada))
        assert [state_of(one) for one in (first, made)] == ["active", "active"]


@pytest.mark.django_db(transaction=True)
def test_taking_an_answer_back_and_revising_its_decision_have_one_winner(
    project: Project, ada: User, bob: User
) -> None:
    for number in range(ROUNDS):
        question = asked(project)
        made = remembered(question, ada, "Half up")
        change = partial(revise, made, DecisionContent(f"Half cents, {number}."), by=acting(bob))
        outcomes = race(number, partial(undo_answer, question, by=acting(ada)), change)
        assert not outcomes[0].refused and outcomes[1].refused in ("", "DecisionChanged"), outcomes
        revised = not outcomes[1].refused
        assert state_of(made) == ("superseded" if revised else "retired")
        assert Decision.objects.active().count() == int(revised)
        Decision.objects.all().delete()


class TestAuditLog:
    def said(self) -> list[tuple[str, str]]:
        rows = AuditEntry.objects.exclude(action=Action.ANSWERED).order_by("pk")
        return [(one.action, one.subject.partition(":")[0]) for one in rows]

    def test_w4_it_names_the_decision_that_was_replaced(self, project: Project, ada: User) -> None:
        remembered(asked(project), ada, "Half up")
        answer(asked(project), ada, "Half to even", stances={1: StanceChoice("supersede")})
        assert self.said() == [
            ("decision_made", "D-1"),
            ("decision_made", "D-2"),
            ("decision_superseded", "D-1"),
        ]
        assert AuditEntry.objects.get(action=Action.DECISION_SUPERSEDED).detail["replaced_by"] == 2

    def test_w4_kept_is_not_confirmed(self, project: Project, ada: User) -> None:
        mark_reviewed(remembered(asked(project), ada, "Half up"), by=acting(ada))
        assert self.said()[-1] == ("decision_kept", "D-1")
        assert "kept the decision D-1" in str(AuditEntry.objects.latest("pk"))

    def test_w4_it_says_what_taking_back_changes(self, project: Project, ada: User) -> None:
        remembered(asked(project), ada, "Half up")
        question = asked(project)
        answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        undo_answer(question, by=acting(ada))
        changed = [("decision_retired", "D-2"), ("decision_changed", "D-1"), ("answer_taken_back", ASKED)]
        assert self.said()[-3:] == changed
