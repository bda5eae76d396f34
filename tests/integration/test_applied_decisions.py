"""A decision answers a question without a human, only under all its conditions, and undo asks again (D5)."""

from __future__ import annotations

import csv
import os
import select
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.errors import NotAllowed, NotOpen, TooLateToUndo
from tasks_app.core.phases import Phase
from tasks_app.engine.sweeper import sweep
from tasks_app.history.events.lines import format_event
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionState,
    EventKind,
    IndexedAnswer,
    Notice,
    Project,
    Question,
    QuestionKind,
    QuestionState,
    ReviewReason,
    Role,
    Run,
    Task,
    User,
    paths,
)
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.decisions import applying
from tasks_app.services.decisions.answering import DecisionInput, StanceChoice
from tasks_app.services.decisions.applying import (
    applicable,
    apply_decision,
    apply_missed_decisions,
    find_match,
)
from tasks_app.services.decisions.changes import confirm, retire
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.projects.projects import fetch
from tasks_app.services.questions import question_outcomes
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer, undo_until
from tasks_app.services.questions.earlier_answers import question_key
from tasks_app.services.tasks import cancel_task, resume_task
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.consistent import assert_consistent
from tests.factories import ROUNDING, DecisionFactory, MembershipFactory, ProjectFactory, QuestionFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Call, Turn, ask, say, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.racing import ROUNDS, race
from tests.runner import Runner, results
from tests.without_git import Rows

ASKED = str(ROUNDING["question"])
ASKS = [Turn("I ask.", (ask("Red?"),)), say("Painted. {result}")]


def decided(project: Project, items: list[dict[str, Any]], answers: dict[str, str], **more: Any) -> Decision:
    """A decision that answered these items, confirmed by two people."""
    key = question_key(Question(items=items))
    decision: Decision = DecisionFactory.create(
        project=project, question_key=key, answers=answers, statement="Half cents are rounded up.", **more
    )
    MembershipFactory.create(project=project, user=decision.decided_by)
    note(decision, DecisionEventKind.DECIDED, decision.decided_by)
    note(decision, DecisionEventKind.CONFIRMED, MembershipFactory.create(project=project).user)
    return decision


@contextmanager
def assert_queries(number: int) -> Iterator[None]:
    with CaptureQueriesContext(connection) as queries:
        yield
    assert len(queries) == number, [query["sql"] for query in queries]


def note(decision: Decision, kind: DecisionEventKind, user: User | None) -> None:
    DecisionEvent.objects.create(decision=decision, kind=kind, user=user)


class TestConditions:
    """Each condition alone keeps a decision from being applied."""

    pytestmark = pytest.mark.django_db

    @pytest.fixture
    def project(self) -> Project:
        return ProjectFactory.create(overrides={"apply_decisions": True})

    @pytest.fixture
    def question(self, project: Project) -> Question:
        return QuestionFactory.create(task__project=project)

    @pytest.fixture
    def decision(self, project: Project) -> Decision:
        return decided(project, [ROUNDING], {ASKED: "Half up"})

    def test_all_of_them_hold(self, question: Question, decision: Decision) -> None:
        assert applicable(question) == decision

    def test_other_spelling_of_the_same_question_is_answered_with_its_own_labels(
        self, project: Project, decision: Decision
    ) -> None:
        options = [{**one, "label": f"{one['label']} (Recommended)"} for one in ROUNDING["options"]]
        asked = ASKED.replace(" ", "\n", 1)
        items = [{**ROUNDING, "question": asked, "options": options[::-1]}]
        question = QuestionFactory.create(task__project=project, items=items)
        assert apply_decision(question)
        question.refresh_from_db()
        assert question.answers == {asked: "Half up (Recommended)"}

    @pytest.mark.parametrize("allowed", [None, False])
    def test_the_project_must_allow_it(
        self, question: Question, decision: Decision, allowed: bool | None
    ) -> None:
        assert Project().overrides == {}
        Project.objects.update(overrides={"apply_decisions": allowed})
        assert applicable(question) is None
        assert find_match(question) == applying.DecisionMatch(decision, "the project does not allow it")

    @pytest.mark.parametrize("kind", [QuestionKind.APPROVAL, QuestionKind.PLAN, QuestionKind.COST])
    def test_never_approvals_plans_and_costs(
        self, project: Project, decision: Decision, kind: QuestionKind
    ) -> None:
        question = QuestionFactory.create(task__project=project, kind=kind)
        assert question_key(question) == decision.question_key
        assert find_match(question) is None and not apply_decision(question)

    def test_only_open_questions(self, question: Question, decision: Decision) -> None:
        Question.objects.update(state=QuestionState.WITHDRAWN)
        question.refresh_from_db()
        assert find_match(question) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"question": "How should half euros be rounded?"},
            {"multiSelect": True},
            {"options": ROUNDING["options"][:1]},
        ],
        ids=["words", "several", "options"],
    )
    def test_the_question_and_its_options_must_be_the_same(
        self, project: Project, decision: Decision, change: dict[str, Any]
    ) -> None:
        question = QuestionFactory.create(task__project=project, items=[{**ROUNDING, **change}])
        assert find_match(question) is None

    def test_of_another_project_there_is_none(self, question: Question) -> None:
        decided(ProjectFactory.create(overrides={"apply_decisions": True}), [ROUNDING], {ASKED: "Half up"})
        assert find_match(question) is None

    def test_two_decisions_may_contradict(
        self, question: Question, decision: Decision, project: Project
    ) -> None:
        decided(project, [ROUNDING], {ASKED: "Half to even"})
        assert find_match(question) is None

    @pytest.mark.parametrize("state", [DecisionState.ACTIVE, DecisionState.RETIRED, DecisionState.SUPERSEDED])
    def test_a_question_that_names_another_decision_is_for_a_human(
        self, project: Project, decision: Decision, state: DecisionState
    ) -> None:
        """Also one that does not hold any more: what was said of it may be out of date."""
        other = DecisionFactory.create(project=project, state=state)
        items = [{**ROUNDING, "question": f"{other.label} says otherwise. How?"}]
        decided(project, items, {items[0]["question"]: "Half up"})
        assert find_match(QuestionFactory.create(task__project=project, items=items)) is None

    @pytest.mark.parametrize(
        "state", [DecisionState.PROPOSED, DecisionState.RETIRED, DecisionState.SUPERSEDED]
    )
    def test_it_must_be_active(self, question: Question, decision: Decision, state: DecisionState) -> None:
        Decision.objects.update(state=state)
        assert find_match(question) is None

    def test_every_item_must_have_an_answer(self, project: Project) -> None:
        items = [ROUNDING, {**ROUNDING, "question": "And taxes?"}]
        decided(project, items, {ASKED: "Half up"})
        found = find_match(QuestionFactory.create(task__project=project, items=items))
        assert found and found.blocker == "it has no answer to a part of the question"

    def test_one_person_is_not_enough_however_often(self, question: Question, decision: Decision) -> None:
        decision.events.filter(kind=DecisionEventKind.CONFIRMED).delete()
        for _ in range(3):
            note(decision, DecisionEventKind.CONFIRMED, decision.decided_by)
        assert self.blocker(question) == "it needs one more person to confirm it"
        member = MembershipFactory.create(project=decision.project).user
        confirm(decision, by=acting(member))
        assert applicable(question) == decision

    def test_people_whose_accounts_are_closed_do_not_count(
        self, question: Question, decision: Decision
    ) -> None:
        User.objects.filter(decisions=decision).update(is_active=False)
        assert self.blocker(question) == "it needs one more person to confirm it"
        assert Decision.objects.with_counts().get().confirmers == 1

    @pytest.mark.parametrize("role", [None, Role.VIEWER], ids=["left", "viewer"])
    def test_d5_people_who_may_no_longer_answer_in_the_project_do_not_count(
        self, question: Question, decision: Decision, role: Role | None
    ) -> None:
        membership = decision.project.memberships.get(user=decision.decided_by)
        MembershipFactory.create(user=membership.user)  # a role in another project is none in this one
        if role is None:
            membership.delete()
        else:
            decision.project.memberships.filter(pk=membership.pk).update(role=role)
        assert self.blocker(question) == "it needs one more person to confirm it"
        assert Decision.objects.with_counts().get().confirmers == 1

    def test_d5_a_site_admin_counts_without_a_role(self, question: Question, decision: Decision) -> None:
        decision.project.memberships.filter(user=decision.decided_by).delete()
        assert decision.decided_by
        User.objects.filter(pk=decision.decided_by.pk).update(is_superuser=True)
        assert applicable(question) == decision

    @pytest.mark.parametrize(
        "fields",
        [
            {"review_reason": ReviewReason.STALE},
            {"review_reason": ReviewReason.UNFIT},
            {"review_after": timezone.localdate()},
        ],
        ids=["stale", "unfit", "due"],
    )
    def test_none_that_is_to_be_reviewed(
        self, question: Question, decision: Decision, fields: dict[str, Any]
    ) -> None:
        Decision.objects.filter(pk=decision.pk).update(**fields)
        assert self.blocker(question) == "it is to be reviewed"

    def test_no_exception_and_none_with_exceptions(
        self, question: Question, decision: Decision, project: Project
    ) -> None:
        other = DecisionFactory.create(project=project, exception_to=decision)
        assert self.blocker(question) == "there are exceptions to it"
        other.exception_to = None
        other.save()
        Decision.objects.filter(pk=decision.pk).update(exception_to=other)
        assert self.blocker(question) == "it is an exception to another decision"

    def test_not_where_it_was_taken_back(self, question: Question, decision: Decision) -> None:
        DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.TAKEN_BACK, task=question.task)
        assert self.blocker(question) == "its answer was taken back in this task"
        assert applicable(QuestionFactory.create(task__project=decision.project)) == decision

    def test_the_step_must_be_the_same(self, question: Question, decision: Decision) -> None:
        Decision.objects.update(scope="step", step="implement")
        assert self.blocker(question) == "it holds for step implement only"
        Decision.objects.update(step=question.step.name)
        assert applicable(question) == decision

    def blocker(self, question: Question) -> str:
        found = find_match(question)
        assert found and not apply_decision(question)
        return found.blocker


class TestRepository:
    """The conditions that git answers."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture
    def question(self, runner: Runner) -> Question:
        """Asked by a task that has changed src/a.py."""
        files = {"src/a.py": "a = 1\n", "src/b.py": "b = 1\n"}
        project = runner.project(**files)
        Project.objects.update(overrides={"apply_decisions": True})
        play = [
            Turn("I change it.", (write("src/a.py", "a = 2\n"),)),
            Turn("I ask.", (ask("Shall src/b.py be changed?"),)),
            say("Done."),
        ]
        task = runner.advance(runner.task(play, project=project))
        return task.questions.get()

    def decide(self, question: Question, **more: Any) -> Decision:
        return decided(question.task.project, question.items, {question.headline: "Yes"}, **more)

    @pytest.mark.parametrize(
        ("paths", "obstacle"),
        [
            (["src/**"], ""),
            (["src/a.py"], "it does not hold for src/b.py"),
            (["src/b.py"], "it does not hold for src/a.py"),
        ],
    )
    def test_every_file_that_is_named_or_changed_must_be_within_its_paths(
        self, question: Question, paths: list[str], obstacle: str
    ) -> None:
        self.decide(question, scope="paths", paths=paths)
        found = find_match(question)
        assert found and found.blocker == obstacle

    @pytest.mark.parametrize(
        ("words", "obstacle"),
        [
            ("HTTP/2 and/or HTTP/3", ""),
            ("a.py", ""),
            ("b.py", "it does not hold for lib/b.py"),
            ("lib/new.py", "it does not hold for lib/new.py"),
        ],
    )
    def test_only_names_of_the_tree_count_as_files(self, runner: Runner, words: str, obstacle: str) -> None:
        project = runner.project(**{"src/a.py": "a = 1\n", "lib/b.py": "b = 1\n"})
        Project.objects.update(overrides={"apply_decisions": True})
        play = [Turn("I ask.", (ask(f"Shall src/a.py use {words}?"),)), say("Done.")]
        question = runner.advance(runner.task(play, project=project)).questions.get()
        self.decide(question, scope="paths", paths=["src/**"])
        found = find_match(question)
        assert found and found.blocker == obstacle

    def test_without_any_file_it_is_not_known_whether_it_holds(self, runner: Runner) -> None:
        task = runner.advance(runner.task(ASKS))
        Project.objects.update(overrides={"apply_decisions": True})
        question = task.questions.get()
        self.decide(question, scope="paths", paths=["**"])
        found = find_match(question)
        assert found and found.blocker == "no file shows whether it holds here"

    def test_cited_code_must_be_unchanged_on_the_branch_and_in_the_task(self, question: Question) -> None:
        project = question.task.project
        source = GitRepository(Path(project.source))
        blobs = {path: source.git("rev-parse", f"HEAD:{path}") for path in ("src/a.py", "src/b.py")}
        decision = self.decide(question, cites=[{"path": "src/b.py", "blob": blobs["src/b.py"]}])
        assert applicable(question) == decision
        Decision.objects.update(cites=[{"path": "src/a.py", "blob": blobs["src/a.py"]}])
        assert self.blocker(question) == "the code that it cites has changed"  # in the task
        Decision.objects.update(cites=[{"path": "src/b.py", "blob": blobs["src/b.py"]}])
        source.commit(**{"src/b.py": "b = 2\n"})
        fetch(project)
        Decision.objects.update(review_reason="", review_note="")  # the fetch asks for a review as well
        assert self.blocker(question) == "the code that it cites has changed"  # on the branch

    def test_a_repository_that_cannot_be_read_means_no(self, question: Question) -> None:
        self.decide(question, cites=[{"path": "src/b.py", "blob": "0" * 40}])
        shutil.rmtree(paths.repository(question.task.project).path)
        assert self.blocker(question) == "the code that it cites cannot be read"
        Decision.objects.update(scope="paths", paths=["**"], cites=[])
        assert self.blocker(question) == "the files of the task cannot be read"

    def blocker(self, question: Question) -> str:
        found = find_match(question)
        assert found and not apply_decision(question)
        return found.blocker


@pytest.fixture
def rows(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    rows = Rows.of(tmp_path, monkeypatch)
    rows.agent = FakeAgent(lambda prompt: ASKS)
    return rows


@pytest.fixture
def project(rows: Rows) -> Project:
    return ProjectFactory.create(overrides={"apply_decisions": True})


@pytest.fixture
def decision(rows: Rows, project: Project) -> Decision:
    """The answer “Yes” to what the agent asks."""
    items = [dict(one) for one in ask("Red?").input["questions"]]
    return decided(project, items, {"Red?": "Yes"})


def started(rows: Rows, project: Project, *names: str) -> Task:
    return rows.rows(*(names or ("do",)), project=project, queued_at=timezone.now())


def fresh(question: Question) -> Question:
    related = ("task__project", "step", "run", "answered_by", "applied")
    return Question.objects.select_related(*related).get(pk=question.pk)


def told(task: Task) -> str:
    return "\n".join(results(task))


class TestEngine:
    def test_the_agent_gets_it_at_once_as_the_result_of_its_call(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        task = rows.advance(started(rows, project))
        assert task.phase == Phase.DONE
        (result,) = results(task)
        assert '="Yes' in result and f"{decision.label} answered this." in result
        question = fresh(task.questions.get())
        assert (question.answered_by, question.answered_via) == (None, Channel.DECISION)
        assert (question.applied, question.answerer) == (decision, decision.label)
        assert question.delivered_at is not None
        assert_consistent(task)

    def test_every_log_names_the_decision(self, rows: Rows, project: Project, decision: Decision) -> None:
        task = rows.advance(started(rows, project))
        question = task.questions.get()
        event = question.run.events.get(kind=EventKind.ANSWER)
        assert event.payload["decision"] == decision.number
        assert format_event(event).split("] ", 1)[1] == f'[DECISION] Answered by {decision.label}: "Yes"\n'
        entry = AuditEntry.objects.get(action=Action.ANSWERED)
        assert (entry.actor, entry.actor_name) == (None, decision.label)
        assert entry.detail == {"question": question.pk, "decision": decision.number}
        moved = task.transitions.filter(step=None, target=Phase.PENDING).latest("pk")
        assert moved.reason == f"{decision.label} answered question {question.pk}"
        used = decision.events.get(kind=DecisionEventKind.APPLIED)
        assert (used.task, used.user) == (task, None)
        assert Decision.objects.with_counts().get().uses == 2  # confirmed and applied

    def test_nobody_is_notified(self, rows: Rows, project: Project, decision: Decision) -> None:
        rows.member(project, "bob")
        seen: list[int] = []

        def notifying(question: Question) -> bool:
            create_notifications()
            seen.append(Notice.objects.filter(event_type="asked").count())
            return False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(applying, "apply_decision", notifying)
            task = rows.advance(started(rows, project))
        assert (task.phase, seen) == (Phase.WAITING_FOR_INPUT, [0])
        create_notifications()
        assert Notice.objects.exists()  # no decision answered, so a human must

    def test_it_is_no_earlier_answer_of_a_person(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        rows.advance(started(rows, project))
        assert not IndexedAnswer.objects.exists()

    def test_the_sweeper_applies_it_if_the_worker_died_before(
        self, rows: Rows, project: Project, decision: Decision, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tasks_app.engine.runs.steps.apply_decisions", lambda task: 0)
        task = rows.advance(started(rows, project))
        assert task.phase == Phase.WAITING_FOR_INPUT
        Task.objects.update(lease_owner="dead", lease_expires=timezone.now() + timedelta(seconds=9))
        sweep(lambda task_id: None, pending=lambda: 0)
        assert task.questions.open().exists()  # its worker may still be about to
        Task.objects.update(lease_expires=None)
        queued: list[int] = []
        sweep(queued.append, pending=lambda: 0)
        assert queued == [task.pk] and not task.questions.open().exists()
        assert rows.advance(task).phase == Phase.DONE
        assert '="Yes' in told(task)


class TestMissed:
    """The sweeper looks for questions that a decision could answer, in each worker every 10 s."""

    pytestmark = pytest.mark.django_db

    @pytest.fixture
    def question(self, project: Project) -> Question:
        return QuestionFactory.create(task__project=project)

    def test_d5_fifty_waiting_tasks_take_one_query_or_two(self, project: Project) -> None:
        QuestionFactory.create_batch(50, task__project=project)
        with assert_queries(1):
            apply_missed_decisions()
        decided(project, [{**ROUNDING, "question": "Something else?"}], {"Something else?": "Half up"})
        with assert_queries(2):
            apply_missed_decisions()
        assert Question.objects.open().count() == 50

    def test_d5_a_refused_question_is_left_alone_until_something_changes(
        self, project: Project, question: Question
    ) -> None:
        cites = [{"path": "src/a.py", "blob": "0" * 40}]  # no repository is there to read
        decision = decided(project, [ROUNDING], {ASKED: "Half up"}, cites=cites)
        apply_missed_decisions()
        for _ in range(3):
            with assert_queries(2):
                apply_missed_decisions()
        Decision.objects.filter(pk=decision.pk).update(cites=[])
        apply_missed_decisions()
        assert fresh(question).applied == decision

    def test_d5_a_decision_on_one_item_of_several_makes_nobody_look(
        self, project: Project, question: Question, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has no answer to the others, so it never answers the question."""
        Question.objects.update(items=[ROUNDING, {**ROUNDING, "question": "Something else?"}])
        decided(project, [ROUNDING], {ASKED: "Half up"})
        looked_at: list[Question] = []
        monkeypatch.setattr(applying, "apply_decision", looked_at.append)
        apply_missed_decisions()
        assert looked_at == []

    @pytest.mark.parametrize(
        "change",
        [
            lambda: Task.objects.update(head_commit="1" * 40),
            lambda: Project.objects.update(fetched_at=timezone.now()),
            lambda: None,
        ],
        ids=["task", "branch", "time"],
    )
    def test_d5_it_is_looked_at_again(
        self,
        project: Project,
        question: Question,
        change: Callable[[], object],
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        decided(project, [ROUNDING], {ASKED: "Half up"}, cites=[{"path": "a.py", "blob": "0" * 40}])
        apply_missed_decisions()
        change()
        if request.node.callspec.id == "time":
            monkeypatch.setattr(applying, "LOOK_AGAIN", 0.0)
        looked_at: list[Question] = []
        monkeypatch.setattr(applying, "apply_decision", looked_at.append)
        apply_missed_decisions()
        assert looked_at == [question]

    def test_d5_one_that_fails_keeps_no_other_waiting(
        self,
        project: Project,
        question: Question,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        other = QuestionFactory.create(task__project=project)
        decided(project, [ROUNDING], {ASKED: "Half up"})

        def fails_for_the_first(asked: Question) -> bool:
            if asked == question:
                raise RuntimeError("broken")
            return apply_decision(asked)

        monkeypatch.setattr(applying, "apply_decision", fails_for_the_first)
        apply_missed_decisions()
        assert fresh(other).is_applied and fresh(question).is_open
        assert f"question {question.pk}" in caplog.text


class TestMeanwhile:
    def test_a_decision_that_was_retired_meanwhile_is_not_applied(
        self, rows: Rows, project: Project, decision: Decision, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def retired_after(question: Question) -> Decision | None:
            found = applicable(question)
            retire(decision, by=acting(rows.user))
            return found

        monkeypatch.setattr(applying, "applicable", retired_after)
        assert rows.advance(started(rows, project)).phase == Phase.WAITING_FOR_INPUT

    def test_a_setting_that_was_switched_off_meanwhile_counts(
        self, rows: Rows, project: Project, decision: Decision, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def off_after(question: Question) -> Decision | None:
            found = applicable(question)
            Project.objects.update(overrides={"apply_decisions": None})
            return found

        monkeypatch.setattr(applying, "applicable", off_after)
        assert rows.advance(started(rows, project)).phase == Phase.WAITING_FOR_INPUT


def waiting(rows: Rows, project: Project) -> Question:
    """An open question that a decision may answer, and has not yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks_app.engine.runs.steps.apply_decisions", lambda task: 0)
        question: Question = rows.advance(started(rows, project)).questions.get()
    return fresh(question)


def applied(rows: Rows, project: Project) -> Question:
    """A question that a decision has just answered, and the agent does not have the answer."""
    question = waiting(rows, project)
    assert apply_decision(question)
    return fresh(question)


def begun(question: Question) -> Question:
    """Let a worker have begun with the task again: it may hand the answer in at any moment."""
    Task.objects.filter(pk=question.task_id).update(phase=Phase.RUNNING)
    question.task.steps.update(phase=Phase.RUNNING)
    return fresh(question)


def otherwise(rows: Rows, question: Question, stance: str = "exception") -> None:
    """Answer “No”, as an exception to the decision or in its place."""
    given = DecisionInput(
        stances={one.decision.number: StanceChoice(stance) for one in related_decisions(question)}
    )
    reply = Reply({"Red?": "No"}, decision_input=given)
    answer_question(question, reply, by=acting(rows.user), via=Channel.WEB)


def in_the_middle(
    first: Callable[[], object], second: Callable[[], object]
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return contenders of which the second begins once the first has locked the task and not yet written."""
    locked, says_so = os.pipe()

    def leads() -> object:
        store = question_outcomes._store_if_open

        def says_so_and_stores(*args: Any, **more: Any) -> bool:
            os.write(says_so, b"!")
            return store(*args, **more)

        question_outcomes._store_if_open = says_so_and_stores  # in the process of this contender only
        return first()

    def follows() -> object:
        assert select.select([locked], [], [], 60)[0], "the first contender wrote nothing"
        return second()

    return leads, follows


class TestUndo:
    def test_before_the_agent_has_it_the_question_is_open_again(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        question = applied(rows, project)
        assert undo_until(question) is None
        bob = rows.member(project, "bob")
        assert undo_answer(question, by=acting(bob)).pk == question.pk
        question = fresh(question)
        assert (question.state, question.applied, question.answers) == (QuestionState.OPEN, None, {})
        assert question.task.phase == question.step.phase == Phase.WAITING_FOR_INPUT
        over = decision.events.get(kind=DecisionEventKind.TAKEN_BACK)
        assert (over.user, over.task) == (bob, question.task)
        apply_missed_decisions()
        assert fresh(question).is_open  # not again in this task
        otherwise(rows, question)
        Task.objects.update(undo_until=None)
        assert rows.advance(question.task).phase == Phase.DONE
        assert '="No' in told(question.task) and '="Yes' not in told(question.task)

    def test_afterwards_the_run_is_stopped_and_the_answer_reaches_its_session(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        def take_back(workspace: Path) -> str:
            undo_answer(Question.objects.get(), by=acting(rows.user))
            return "done"

        play = [
            *ASKS[:1],
            Turn("I paint.", (Call("Bash", {"command": "paint"}, take_back),)),
            say("Painted."),
        ]
        rows.agent = FakeAgent(lambda prompt: play)
        task = rows.advance(started(rows, project))
        assert task.phase == Phase.WAITING_FOR_INPUT
        first, second = (fresh(one) for one in task.questions.order_by("number"))
        assert (first.taken_back_by, first.answers) == (rows.user, {"Red?": "Yes"})
        assert (second.reopens, second.items, second.is_open) == (first, first.items, True)
        notes = Run.objects.latest("pk").events.filter(kind=EventKind.NOTE)
        assert "The run was stopped: a question is asked again." in [one.payload["text"] for one in notes]
        assert_consistent(task)
        assert undo_answer(first, by=acting(rows.user)) == second  # sent twice
        otherwise(rows, second)
        Task.objects.update(undo_until=None)
        task = rows.advance(task)
        assert task.phase == Phase.DONE
        assert fresh(second).delivered_at is not None
        last = Run.objects.latest("pk")
        assert (last.reason, last.resumed) == ("answer", True)
        assert f"{decision.label} answered a question of this task earlier." in last.prompt
        assert "Answer:\n> No" in last.prompt.replace("    ", "")

    def test_not_once_the_task_has_ended(self, rows: Rows, project: Project, decision: Decision) -> None:
        task = rows.advance(started(rows, project))
        with pytest.raises(TooLateToUndo, match="Request changes"):
            undo_answer(task.questions.get(), by=acting(rows.user))

    def test_of_a_cancelled_task_it_is_taken_back_after_a_resume(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        question = applied(rows, project)
        cancel_task(question.task, by=acting(rows.user))
        with pytest.raises(TooLateToUndo, match="Resume it first"):
            undo_answer(fresh(question), by=acting(rows.user))
        resume_task(fresh(question).task, by=acting(rows.user))
        assert undo_answer(fresh(question), by=acting(rows.user)).is_open

    def test_a_question_in_its_place_survives_a_cancellation(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        question = begun(applied(rows, project))
        anew = undo_answer(question, by=acting(rows.user))
        assert anew.pk != question.pk
        cancel_task(fresh(anew).task, by=acting(rows.user))
        resume_task(fresh(anew).task, by=acting(rows.user))
        assert fresh(anew).is_open
        otherwise(rows, fresh(anew))
        Task.objects.update(undo_until=None)
        assert rows.advance(anew.task).phase == Phase.DONE
        assert '="Yes' in told(anew.task) and "No" in told(anew.task)

    @pytest.mark.parametrize("phase", [Phase.INTERRUPTED, Phase.WAITING_FOR_RESET])
    def test_of_a_task_that_pauses(
        self, rows: Rows, project: Project, decision: Decision, phase: Phase
    ) -> None:
        question = applied(rows, project)
        Question.objects.update(handed_in=question.run)
        Task.objects.update(phase=phase)
        question.task.steps.update(phase=phase)
        anew = fresh(undo_answer(question, by=acting(rows.user)))
        assert anew.task.phase == anew.step.phase == Phase.WAITING_FOR_INPUT

    def test_viewers_may_not(self, rows: Rows, project: Project, decision: Decision) -> None:
        question = applied(rows, project)
        viewer = MembershipFactory.create(project=project, role=Role.VIEWER).user
        with pytest.raises(NotAllowed):
            undo_answer(question, by=acting(viewer))

    def test_a_human_answered_meanwhile(self, rows: Rows, project: Project, decision: Decision) -> None:
        question = applied(rows, project)
        undo_answer(fresh(question), by=acting(rows.user))
        otherwise(rows, fresh(question))
        with pytest.raises(NotOpen, match="A human has answered"):
            undo_answer(question, by=acting(rows.user))


def undo_by_api(question: Question, user: User) -> dict[str, Any]:
    answer = Script(user).post(f"/questions/{question.pk}/undo")
    assert answer.status_code == 200, answer.content
    said: dict[str, Any] = answer.json()
    return said


def undo_on_the_page(question: Question, user: User) -> dict[str, Any]:
    browser, address = signed_in(user), f"/questions/{question.pk}/"
    card = browser.get(address).content.decode()
    assert f"/questions/{question.pk}/undo/" in card and "Answered by" in card
    assert f"/decisions/{question.applied.number}/" in card  # type: ignore[union-attr]
    assert browser.post(f"{address}undo/", follow=True).status_code == 200
    return {}


def undo_by_command(question: Question, user: User) -> dict[str, Any]:
    out = StringIO()
    call_command("answer", str(question.pk), "--undo", "--as", user.username, stdout=out)
    assert out.getvalue().startswith(f"Question {question.pk} is open again."), out.getvalue()
    return {}


class TestSurfaces:
    @pytest.mark.parametrize("undo", [undo_by_api, undo_on_the_page, undo_by_command])
    def test_who_may_answer_takes_it_back_in_one_step(
        self,
        rows: Rows,
        project: Project,
        decision: Decision,
        undo: Callable[[Question, User], dict[str, Any]],
    ) -> None:
        question = applied(rows, project)
        said = Script(rows.user).get(f"/questions/{question.pk}").json()
        assert (said["answered_via"], said["applied"], said["answered_by"]) == (
            "decision",
            decision.number,
            None,
        )
        undo(question, rows.member(project, "bob"))
        assert fresh(question).is_open

    def test_a_working_agent_is_stopped_and_a_human_is_asked(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        question = applied(rows, project)
        Question.objects.update(handed_in=question.run)
        begun(question)
        said = undo_by_api(question, rows.user)
        assert (said["reopens"], said["state"]) == (question.pk, "open") and said["id"] != question.pk
        page = signed_in(rows.user).get(f"/questions/{question.pk}/").content.decode()
        assert "Taken back by" in page

    def test_lists_exports_and_the_audit_log_name_the_decision(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        question = applied(rows, project)
        browser = signed_in(User.objects.create_superuser("root"))
        text = text_of(browser.get("/tasks/export.csv?kind=questions"))
        (exported,) = csv.DictReader(StringIO(text.removeprefix("\ufeff")))
        page = browser.get(f"/tasks/{question.task_id}/").content.decode()
        inbox = browser.get("/inbox/?state=answered").content.decode()
        assert f"/decisions/{decision.number}/" in page and "somebody" not in page + inbox
        assert decision.label in inbox
        assert (exported["answered_by"], exported["answered_via"], exported["applied"]) == (
            "", "decision", decision.label,
        )  # fmt: skip


class TestRaces:
    """One of those who act at the same moment wins."""

    def test_a_human_and_a_decision(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = waiting(rows, project)
            reply = partial(answer_question, question, Reply({"Red?": "Yes"}), by=acting(rows.user))
            outcomes = race(number, partial(apply_decision, question), partial(reply, via=Channel.WEB))
            by_decision = outcomes[0].said == "True"
            assert by_decision == (outcomes[1].refused == "NotOpen"), outcomes
            question = fresh(question)
            assert question.is_applied == by_decision and (question.answered_by is None) == by_decision
            assert question.run.events.filter(kind=EventKind.ANSWER).count() == 1
            Task.objects.update(undo_until=None)
            assert rows.advance(question.task).phase == Phase.DONE
            assert told(question.task).count('="Yes') == 1

    def test_d5_a_decision_and_a_human_who_supersedes_it(
        self, rows: Rows, project: Project, decision: Decision
    ) -> None:
        """In two of three rounds one of them is in the middle of its transaction when the other begins."""
        winners = []
        for number in range(max(ROUNDS, 3)):
            question = waiting(rows, project)
            applies = partial(apply_decision, question)
            answers = partial(otherwise, rows, question, "supersede")
            if number % 3 == 1:
                outcomes = race(number, *in_the_middle(applies, answers))
            elif number % 3 == 2:
                outcomes = race(number, *in_the_middle(answers, applies))[::-1]
            else:
                outcomes = race(number, applies, answers)
            by_decision = outcomes[0].said == "True"
            winners.append(by_decision)
            assert number % 3 == 0 or by_decision == (number % 3 == 1), outcomes
            assert (outcomes[0].refused, outcomes[1].refused) == ("", "NotOpen" if by_decision else ""), (
                outcomes
            )
            question = fresh(question)
            assert question.answers == {"Red?": "Yes" if by_decision else "No"}
            assert (question.applied, question.answered_by) == (
                (decision, None) if by_decision else (None, rows.user)
            )
            assert question.run.events.filter(kind=EventKind.ANSWER).count() == 1
            decision.refresh_from_db()
            assert decision.is_active == by_decision
            new = Decision.objects.active().exclude(pk=decision.pk)
            assert [one.answers for one in new] == ([] if by_decision else [{"Red?": "No"}])
            Task.objects.update(undo_until=None)
            assert rows.advance(question.task).phase == Phase.DONE
            new.delete()
            Decision.objects.update(state=DecisionState.ACTIVE)
        assert set(winners) == {True, False}

    def test_a_decision_and_a_cancellation(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = waiting(rows, project)
            cancel = partial(cancel_task, question.task, by=acting(rows.user))
            outcomes = race(number, partial(apply_decision, question), cancel)
            assert not outcomes[1].refused, outcomes
            question = fresh(question)
            assert question.task.phase == Phase.CANCELLED
            state = QuestionState.ANSWERED if outcomes[0].said == "True" else QuestionState.WITHDRAWN
            assert question.state == state

    def test_two_that_apply(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = waiting(rows, project)
            outcomes = race(number, *[partial(apply_decision, question)] * 3)
            assert sorted(one.said for one in outcomes) == ["False", "False", "True"], outcomes
            assert decision.events.filter(question=question).count() == 1

    def test_a_decision_and_its_end(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = waiting(rows, project)
            end = partial(retire, decision, by=acting(rows.user))
            outcomes = race(number, partial(apply_decision, question), end)
            assert not outcomes[1].refused and outcomes[0].said in ("True", "False"), outcomes
            assert fresh(question).is_applied == (outcomes[0].said == "True")
            Decision.objects.update(state=DecisionState.ACTIVE)

    def test_undo_and_a_claim(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = applied(rows, project)
            undo = partial(undo_answer, question, by=acting(rows.user))
            outcomes = race(number, undo, partial(run_soon, rows, question.task))
            assert not any(one.refused for one in outcomes if one.refused != "TooLateToUndo"), outcomes
            task = fresh(question).task
            if outcomes[0].refused:
                assert task.phase == Phase.DONE
                continue
            assert task.phase == Phase.WAITING_FOR_INPUT
            (asked,) = task.questions.open()
            otherwise(rows, asked)
            Task.objects.update(undo_until=None, lease_expires=None)
            assert rows.advance(task).phase == Phase.DONE
            assert "No" in told(task) or "No" in Run.objects.latest("pk").prompt
            assert_consistent(task)

    def test_undo_twice(self, rows: Rows, project: Project, decision: Decision) -> None:
        for number in range(ROUNDS):
            question = applied(rows, project)
            if number % 2:
                question = begun(question)
            undo = partial(undo_answer, question, by=acting(rows.user))
            outcomes = race(number, undo, undo)
            assert not any(one.refused for one in outcomes), outcomes
            assert question.task.questions.open().count() == 1
            taken_back = decision.events.filter(kind=DecisionEventKind.TAKEN_BACK, question=question)
            assert taken_back.count() == 1


def run_soon(rows: Rows, task: Task) -> str:
    return str(rows.advance(task).phase)
