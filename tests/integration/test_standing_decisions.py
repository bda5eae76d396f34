"""Answers that become decisions of the project, and what later answers mean for them (D1, D2, D6)."""

from __future__ import annotations

import io
from datetime import date, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.cli.questions import show_related_decisions
from tasks_app.cli.tables import decisions_table
from tasks_app.cli.terminal import Screen
from tasks_app.core.errors import BadInput, DecisionChanged, NotAllowed
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Decision,
    DecisionEventKind,
    DecisionState,
    Membership,
    Project,
    Question,
    Role,
    User,
)
from tasks_app.services.decisions.answering import DecisionInput, Remember, StanceChoice, statement_for
from tasks_app.services.decisions.changes import (
    confirm,
    make_decision,
    mark_reviewed,
    propose,
    restore,
    retire,
    revise,
    store,
)
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.decisions.content import DecisionContent, known_decision
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer
from tests.addresses import text_of
from tests.factories import ROUNDING, ProjectFactory, QuestionFactory, TaskFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

ASKED = ROUNDING["question"]
STATEMENT = "Half up: As at school."


@pytest.fixture
def project() -> Project:
    return ProjectFactory.create()


@pytest.fixture(autouse=True)
def answers_can_be_taken_back(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})


@pytest.fixture
def ada(project: Project) -> User:
    return member(project, "ada")


def member(project: Project, name: str, role: str = Role.MEMBER) -> User:
    user = User.objects.create(username=name)
    Membership.objects.create(project=project, user=user, role=role)
    return user


def asked(project: Project, *items: dict[str, Any]) -> Question:
    task = TaskFactory.create(project=project, phase="waiting_for_input")
    return QuestionFactory.create(task=task, items=list(items or (ROUNDING,)))


def answer(question: Question, by: User, text: str = "Half up", **given: Any) -> Decision | None:
    """Answer the question, and return the decision that this made."""
    remember, stances = given.pop("remember", Remember()), given.pop("stances", {})
    assert not given
    reply = Reply.to(question, text)
    reply = Reply(reply.answers, decision_input=DecisionInput(remember, stances))
    answer_question(question, reply, by=acting(by), via=Channel.WEB)
    return question.decisions.order_by("-number").first()


def remembered(question: Question, by: User, text: str = "Half up", **given: Any) -> Decision:
    made = answer(question, by, text, remember=Remember("project", **given))
    assert made is not None
    return made


def kinds(decision: Decision) -> list[str]:
    return list(decision.events.order_by("pk").values_list("kind", flat=True))


def state_of(decision: Decision) -> str:
    decision.refresh_from_db()
    return decision.state


class TestReviewSettledByAnAnswer:
    """D7: saying that a decision is right is a look at it; taking the answer back opens the review again."""

    @pytest.mark.parametrize(
        "due", [{"review_reason": "unfit", "review_note": "Not for yen."}, {"review_after": date(2026, 1, 2)}]
    )
    def test_an_answer_that_confirms_it_settles_its_review(
        self, project: Project, ada: User, due: dict[str, Any]
    ) -> None:
        made = remembered(asked(project), ada)
        Decision.objects.update(**due)
        why = Decision.objects.get().why_review
        question = asked(project)
        answer(question, ada, stances={made.number: StanceChoice("agree")})
        assert why and Decision.objects.get().why_review == ""
        assert kinds(made) == ["decided", "confirmed", "kept"]
        undo_answer(question, by=acting(ada))
        assert Decision.objects.get().why_review == why and kinds(made) == ["decided"]

    def test_another_answer_leaves_it(self, project: Project, ada: User) -> None:
        made = remembered(asked(project), ada)
        Decision.objects.update(review_reason="unfit")
        answer(asked(project), ada, "Half to even", stances={made.number: StanceChoice("exception")})
        assert Decision.objects.get().why_review

    def test_so_does_the_button(self, project: Project, ada: User) -> None:
        made = remembered(asked(project), ada)
        Decision.objects.update(review_reason="unfit")
        confirm(Decision.objects.get(), by=acting(member(project, "bob")))
        assert Decision.objects.get().why_review == "" and "confirmed" in kinds(made)


class TestDecidingWhileAnswering:
    def test_an_answer_for_this_task_makes_no_decision(self, project: Project, ada: User) -> None:
        """D2."""
        assert answer(asked(project), ada) is None
        assert not Decision.objects.exists()

    def test_an_answer_becomes_a_decision_of_the_project(self, project: Project, ada: User) -> None:
        """D1, D2: with a statement made of the chosen option, and the question as its source."""
        question = asked(project)
        made = remembered(question, ada, reason="The bank does so.")
        assert (made.label, made.state, made.scope, made.statement) == ("D-1", "active", "project", STATEMENT)
        assert made.asked == ASKED
        assert (made.decided_by, made.question, made.answers) == (ada, question, {ASKED: "Half up"})
        assert made.reason == "The bank does so."
        assert kinds(made) == ["decided"]
        entry = AuditEntry.objects.get(action=Action.DECISION_MADE)
        assert (entry.actor, entry.subject, entry.task) == (ada, f"D-1: {STATEMENT}", question.task)

    def test_it_holds_for_the_paths_that_were_entered(self, project: Project, ada: User) -> None:
        remember = Remember(
            "paths", paths=["./src/billing/**", "src/billing/**"], statement=" Round half up. "
        )
        made = answer(asked(project), ada, remember=remember)
        assert made is not None
        assert (made.statement, made.paths, made.scope_in_words) == (
            "Round half up.", ["src/billing/**"], "src/billing/**",
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("remember", "where"),
        [
            (Remember("world"), "remember.scope"),
            (Remember("paths"), "remember.paths"),
            (Remember("paths", paths=["/etc/passwd"]), "remember.paths"),
            (Remember("paths", paths=["../x"]), "remember.paths"),
            (Remember("project", statement="x" * 2001), "remember.statement"),
            (Remember("project", review_after=timezone.localdate()), "remember.review_after"),
        ],
    )
    def test_what_cannot_be_stored_refuses_the_answer_as_well(
        self, project: Project, ada: User, remember: Remember, where: str
    ) -> None:
        """R5: nothing is stored, and the field is named."""
        question = asked(project)
        with pytest.raises(BadInput) as refused:
            answer(question, ada, remember=remember)
        assert refused.value.where == where
        question.refresh_from_db()
        assert question.is_open and not Decision.objects.exists()

    def test_an_answer_sent_twice_makes_one_decision(self, project: Project, ada: User) -> None:
        question = asked(project)
        remembered(question, ada)
        remembered(question, ada)
        assert Decision.objects.count() == 1

    def test_numbers_count_for_each_project(self, project: Project, ada: User) -> None:
        other = ProjectFactory.create()
        labels = [
            remembered(asked(where), member(where, f"u{n}"), statement=f"{n}").label
            for n, where in enumerate([project, other])
        ]
        assert labels == ["D-1", "D-1"]

    def test_taking_the_answer_back_retires_its_decision(self, project: Project, ada: User) -> None:
        question = asked(project)
        made = remembered(question, ada)
        undo_answer(question, by=acting(ada))
        assert state_of(made) == DecisionState.RETIRED
        again = remembered(question, ada, "Half to even")
        assert again.label == "D-2"

    def test_one_whose_answer_was_undone_stands_in_no_list(self, project: Project, ada: User) -> None:
        """Each undo left a retired decision there. What somebody used or retired stays."""
        questions = [asked(project, {**ROUNDING, "question": f"{n}?"}) for n in range(3)]
        undone, used, retired = (remembered(one, ada, statement=one.headline) for one in questions)
        for question in questions[:2]:
            undo_answer(question, by=acting(ada))
        retire(retired, by=acting(ada))
        used.events.create(kind="followed")
        for state in ("all", "retired"):
            listed = set(project.decisions.listed_as(state))
            assert listed == {used, retired} and undone not in listed
        assert kinds(undone) == ["decided", "retired"], "its own page tells what was"

    def test_d2_the_statement_is_what_was_chosen_with_its_description(self) -> None:
        """The question is the decision's source, without its reasons."""
        columns = {"question": "Which columns?\n\nThe file is long.", "options": []}
        assert statement_for(columns, " Name,\nE-mail and age", of_several=False) == "Name, E-mail and age"
        assert statement_for(columns, "", of_several=True) == ""
        described = {
            "multiSelect": True,
            "options": [
                {"label": "Name, in full", "description": "First\nand last."},
                {"label": "E-mail (Recommended)", "description": "Lower case."},
                {"label": "Age"},
            ],
        }
        chosen = "E-mail (Recommended), Name, in full, Age, and the shoe size"
        assert statement_for({**columns, **described}, chosen, of_several=False) == (
            "E-mail: Lower case; Name, in full: First and last; Age; and the shoe size"
        )

    def test_d2_its_question_is_its_source(self, project: Project, ada: User) -> None:
        """Also when the task is deleted; of several questions on a card, its own."""
        columns: dict[str, Any] = {"question": "Which columns?\n\nThe file is long.", "options": []}
        question = asked(project, ROUNDING, columns)
        reply = Reply(
            {ASKED: "Half up", columns["question"]: "Name"}, decision_input=DecisionInput(Remember("project"))
        )
        answer_question(question, reply, by=acting(ada), via=Channel.WEB)
        one, other = Decision.objects.order_by("number")
        assert (one.asked, other.asked) == (ASKED, "Which columns? The file is long.")
        revised = revise(other, DecisionContent("The name comes first."), by=acting(ada))
        assert revised.asked == "Which columns? The file is long."
        other.question = None
        assert other.asked == "Which columns? The file is long."
        other.answers = {f"Which columns?\n\n{'The file is long. ' * 50}": "Name"}
        assert other.asked == "Which columns?"
        other.answers = {f"Refunds have no test.\n\n{'The file is long. ' * 50}What shall happen?": "A test"}
        assert other.asked.startswith("Refunds have no test.") and other.asked.endswith(" What shall happen?")
        assert known_decision(one).question == f"in the task “{question.task}”: {ASKED}"
        one.statement = f"{ASKED} Half up"
        assert known_decision(one).question == "", "it is not said twice"

    def test_d2_a_prepared_statement_does_not_say_what_was_recommended(self) -> None:
        assert statement_for(ROUNDING, "Half up", of_several=True) == f"Rounding: {STATEMENT}"
        assert statement_for(ROUNDING, "Half up (Recommended)", of_several=False) == STATEMENT
        assert statement_for(ROUNDING, "A [recommended], B, C", of_several=False) == "A, B, C"

    @pytest.mark.parametrize("of_several", [True, False])
    def test_d2_a_prepared_statement_has_a_subject(self, of_several: bool) -> None:
        """“Yes” is no rule that an agent of a later task could follow."""
        options = [{"label": "Yes"}, {"label": "No", "description": "They stay."}]
        item = {
            "question": "There are two.\n\nMay old rows be changed?",
            "header": "Rows",
            "options": options,
        }
        for answer, said in {"Yes": "Yes", "No": "No: They stay.", "Only new": "Only new"}.items():
            statement = statement_for(item, answer, of_several=of_several)
            assert statement == f"May old rows be changed? {said}"

    def test_d2_a_prepared_statement_has_no_remark_of_the_agent_on_itself(
        self, client: Client, project: Project, ada: User
    ) -> None:
        """Also the one that the page makes while somebody chooses."""
        options = [{"label": "Half up", "description": "As the bank does. I favour this."}, {"label": "Even"}]
        item = {**ROUNDING, "options": options}
        assert statement_for(item, "Half up", of_several=False) == "Half up: As the bank does."
        client.force_login(ada)
        page = text_of(client.get(f"/questions/{asked(project, item).pk}/"))
        assert 'data-description="As the bank does."' in page


class TestContradictions:
    @pytest.fixture
    def first(self, project: Project, ada: User) -> Decision:
        return remembered(asked(project), ada)

    def test_the_same_answer_again_confirms_the_decision(self, project: Project, first: Decision) -> None:
        """D6."""
        bob = member(project, "bob")
        answer(asked(project), bob)
        assert kinds(first) == ["decided", "confirmed"]
        assert Decision.objects.with_counts().get().confirmers == 2

    def test_another_answer_must_say_what_holds(self, project: Project, ada: User, first: Decision) -> None:
        """D6."""
        question = asked(project)
        with pytest.raises(BadInput, match="contradicts D-1") as refused:
            answer(question, ada, "Half to even")
        assert refused.value.where == "decisions"
        question.refresh_from_db()
        assert question.is_open

    def test_superseding(self, project: Project, ada: User, first: Decision) -> None:
        question = asked(project)
        made = answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        assert made is not None and made.replaces == first
        assert (made.scope, made.statement) == ("project", "Half to even: As banks do.")
        assert state_of(first) == DecisionState.SUPERSEDED
        assert kinds(first) == ["decided", "superseded"]

    def test_narrowing(self, project: Project, ada: User, first: Decision) -> None:
        """The first holds for fewer paths; the new answer is for this task only."""
        question = asked(project)
        narrowed = StanceChoice("narrow", paths=["src/billing/**"])
        assert answer(question, ada, "Half to even", stances={1: narrowed}) is None
        assert state_of(first) == DecisionState.SUPERSEDED
        now = Decision.objects.active().get()
        assert (now.replaces, now.paths, now.statement) == (first, ["src/billing/**"], STATEMENT)
        assert kinds(first) == ["decided", "narrowed"]

    def test_narrowing_needs_paths(self, project: Project, ada: User, first: Decision) -> None:
        with pytest.raises(BadInput, match="name the paths for which D-1 still holds"):
            answer(asked(project), ada, "Half to even", stances={1: StanceChoice("narrow")})

    def test_an_exception(self, project: Project, ada: User, first: Decision) -> None:
        question = asked(project)
        assert answer(question, ada, "Half to even", stances={1: StanceChoice("exception")}) is None
        assert state_of(first) == DecisionState.ACTIVE
        assert kinds(first) == ["decided", "exception"]

    def test_an_exception_may_be_a_decision_itself(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        made = answer(
            asked(project), ada, "Half to even", stances={1: StanceChoice("exception")},
            remember=Remember("paths", paths=["docs/**"]),
        )  # fmt: skip
        assert made is not None and made.exception_to == first
        assert state_of(first) == DecisionState.ACTIVE
        told = (known_decision(first), known_decision(made))
        assert [(one.exceptions, one.exception_to) for one in told] == [("D-2 (docs/**)", ""), ("", "D-1")]
        retire(made, by=acting(ada))
        first.refresh_from_db()
        assert known_decision(first).exceptions == ""

    def test_where_an_exception_holds_is_told_wherever_the_decision_is(
        self, client: Client, project: Project, ada: User, first: Decision
    ) -> None:
        content = DecisionContent("Half to even.", scope="paths", paths=("docs/**",))
        store(project, content, by=ada, exception_to=first)
        client.force_login(ada)
        one = f"/projects/{project.pk}/decisions/"
        for page in (one, f"{one}1/", f"/questions/{asked(project).pk}/"):
            assert "(docs/**" in text_of(client.get(page)), page
        assert 'Exception to <span class="whole">D-1</span>' in text_of(client.get(one))
        terminal = io.StringIO()
        screen = Screen(terminal)
        show_related_decisions(screen, related_decisions(asked(project)))
        screen.table(decisions_table(list(Decision.objects.with_counts().order_by("number"))))
        assert terminal.getvalue().count("Except: D-2 (docs/**)") == 2

    def test_agreeing_in_other_words_makes_a_new_version(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        made = remembered(asked(project), ada, statement="Round half cents up.")
        assert made.replaces == first
        assert state_of(first) == DecisionState.SUPERSEDED

    def test_another_answer_cannot_agree(self, project: Project, ada: User, first: Decision) -> None:
        with pytest.raises(BadInput, match="differs from D-1"):
            answer(asked(project), ada, "Half to even", stances={1: StanceChoice("agree")})

    def test_a_decision_that_the_agent_names_is_related(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        """The issue's third task: it meets a contradiction and asks with the decision on the card."""
        question = asked(
            project, {"question": "D-1 says half up, the tests say half down. Which?", "options": []}
        )
        (related,) = related_decisions(question)
        assert (related.decision, related.same) == (first, False)
        made = answer(question, ada, "Half down", stances={1: StanceChoice("supersede")})
        assert made is not None and made.replaces == first

    def test_d6_of_a_decision_that_the_agent_names_it_must_be_said_what_the_answer_means(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        """Nothing is confirmed silently: question and decision cannot be compared."""
        question = asked(project, {"question": "Does D-1 hold for refunds?", "options": []})
        with pytest.raises(BadInput, match="say what this answer means for D-1") as refused:
            answer(question, ada, "No")
        assert refused.value.where == "decisions"
        question.refresh_from_db()
        assert question.is_open

    def test_d6_an_answer_may_leave_the_decision_that_the_agent_names_as_it_is(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        question = asked(project, {"question": "D-1 is followed. Which currency?", "options": []})
        answer(question, ada, "Euros", stances={1: StanceChoice("unaffected")})
        assert (kinds(first), state_of(first)) == (["decided"], DecisionState.ACTIVE)

    def test_d6_a_contradiction_affects_the_decision(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        with pytest.raises(BadInput, match="the answer contradicts D-1, so it affects it"):
            answer(asked(project), ada, "Half to even", stances={1: StanceChoice("unaffected")})

    def test_a_decision_that_the_question_does_not_concern_is_refused(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        question = asked(project, {"question": "Which name?", "options": []})
        with pytest.raises(BadInput, match="does not concern D-1"):
            answer(question, ada, "x", stances={1: StanceChoice("agree")})

    def test_taking_back_restores_what_was_superseded(
        self, project: Project, ada: User, first: Decision
    ) -> None:
        question = asked(project)
        made = answer(question, ada, "Half to even", stances={1: StanceChoice("supersede")})
        undo_answer(question, by=acting(ada))
        assert made is not None and state_of(made) == DecisionState.RETIRED
        assert state_of(first) == DecisionState.ACTIVE

    def test_taking_back_widens_what_was_narrowed(self, project: Project, ada: User, first: Decision) -> None:
        question = asked(project)
        answer(question, ada, "Half to even", stances={1: StanceChoice("narrow", paths=["src/**"])})
        undo_answer(question, by=acting(ada))
        assert list(Decision.objects.active()) == [first]

    def test_other_projects_decisions_are_not_related(self, ada: User, first: Decision) -> None:
        assert not related_decisions(asked(ProjectFactory.create()))


class TestChanging:
    CONTENT = DecisionContent("Money is stored in cents.")

    def test_a_decision_without_a_question(self, project: Project, ada: User) -> None:
        made = make_decision(project, self.CONTENT, by=acting(ada))
        assert (made.label, made.state, made.decided_by) == ("D-1", "active", ada)

    def test_a_viewer_changes_nothing(self, project: Project, ada: User) -> None:
        viewer = acting(member(project, "vera", Role.VIEWER))
        made = make_decision(project, self.CONTENT, by=acting(ada))
        for act in (
            lambda: make_decision(project, self.CONTENT, by=viewer),
            lambda: propose(project, self.CONTENT, by=viewer, source="CLAUDE.md"),
            lambda: confirm(made, by=viewer),
            lambda: revise(made, DecisionContent("Else."), by=viewer),
            lambda: retire(made, by=viewer),
            lambda: mark_reviewed(made, by=viewer),
            lambda: restore(made, by=viewer),
        ):
            with pytest.raises(NotAllowed):
                act()
        assert kinds(made) == ["decided"]

    def test_a_change_is_a_new_decision(self, project: Project, ada: User) -> None:
        """D1: nothing is edited in place."""
        made = make_decision(project, self.CONTENT, by=acting(ada))
        new = revise(made, DecisionContent("Money is stored in mills."), by=acting(ada))
        assert (new.label, new.replaces) == ("D-2", made)
        assert state_of(made) == DecisionState.SUPERSEDED and made.statement == self.CONTENT.statement
        with pytest.raises(DecisionChanged, match=r"D-1 is superseded\. D-2 replaces it\."):
            revise(made, self.CONTENT, by=acting(ada))
        with pytest.raises(BadInput, match="nothing is different"):
            revise(new, DecisionContent("Money is stored in mills."), by=acting(ada))

    def test_what_is_proposed_holds_once_somebody_confirms_it(self, project: Project, ada: User) -> None:
        proposed = propose(project, self.CONTENT, by=acting(ada), source="CLAUDE.md")
        assert proposed.is_proposed and proposed.decided_by is None
        accepted = confirm(proposed, by=acting(ada))
        assert (accepted.state, accepted.decided_by) == ("active", ada)
        assert kinds(accepted) == ["proposed", "decided"]

    def test_each_person_confirms_once(self, project: Project, ada: User) -> None:
        made = make_decision(project, self.CONTENT, by=acting(ada))
        bob = acting(member(project, "bob"))
        for by in (acting(ada), bob, bob):
            confirm(made, by=by)
        assert kinds(made) == ["decided", "confirmed"]

    def test_retiring_and_restoring(self, project: Project, ada: User) -> None:
        made = make_decision(project, self.CONTENT, by=acting(ada))
        retire(made, by=acting(ada), reason="No longer true.")
        assert state_of(made) == DecisionState.RETIRED
        with pytest.raises(DecisionChanged):
            retire(made, by=acting(ada))
        restore(made, by=acting(ada))
        assert state_of(made) == DecisionState.ACTIVE
        with pytest.raises(DecisionChanged):
            restore(made, by=acting(ada))

    def test_a_day_of_review_that_has_come(self, project: Project, ada: User) -> None:
        """D1, D6: *review after* asks and drops nothing."""
        tomorrow = timezone.localdate() + timedelta(days=1)
        made = make_decision(project, DecisionContent("For now.", review_after=tomorrow), by=acting(ada))
        assert not Decision.objects.to_review().exists()
        Decision.objects.update(review_after=timezone.localdate())
        made.refresh_from_db()
        assert made.is_active and made.is_due and list(Decision.objects.to_review()) == [made]
        mark_reviewed(made, by=acting(ada))
        assert not Decision.objects.to_review().exists()
        assert kinds(made)[-1] == DecisionEventKind.KEPT
