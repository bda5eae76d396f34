"""A question is asked once: three tasks with the real agent program and a contradiction (D1, D2, D3, D6)."""

from __future__ import annotations

import pytest

from tasks_app.core.phases import Phase
from tasks_app.history.events.lines import format_event
from tasks_app.models import (
    Channel,
    Decision,
    DecisionState,
    Event,
    Project,
    Question,
    Run,
    SessionEntry,
    Task,
)
from tasks_app.services.decisions.answering import DecisionInput, Remember, StanceChoice
from tasks_app.services.decisions.applying import apply_decisions
from tasks_app.services.decisions.changes import confirm
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer
from tests.factories import MembershipFactory
from tests.installation import Installation
from tests.people import acting
from tests.runner import Runner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bubblewrap]
TEXT = "# Round {what}\n\nrehearsal: decide-once\n"


def outputs(task: Task) -> str:
    """The results of all calls, and what the session has beside them."""
    rows = Event.objects.filter(run__step__task=task, kind="tool_result").order_by("pk")
    sessions = {str(run.session_id) for run in Run.objects.filter(step__task=task)}
    beside = SessionEntry.objects.filter(session_id__in=sessions, entry__type="attachment")
    return "\n".join([*(event.payload["text"] for event in rows), *(str(one.entry) for one in beside)])


def reply(real: Runner, question: Question, text: str, given: DecisionInput) -> None:
    answer = Reply({question.headline: text}, decision_input=given)
    answer_question(question, answer, by=acting(real.user), via=Channel.WEB)


@pytest.mark.once(on="sqlite")
def test_one_task_asks_the_next_knows_and_the_third_meets_a_contradiction(real: Runner) -> None:
    project = real.project()

    first = real.advance(real.task(text=TEXT.format(what="prices"), project=project))
    question = first.questions.get()
    reply(
        real, question, "Half up", DecisionInput(Remember("project", statement="Half cents are rounded up."))
    )
    assert real.advance(first).phase == Phase.DONE
    decision = Decision.objects.get()

    second = real.advance(real.task(text=TEXT.format(what="taxes"), project=project))
    assert second.phase == Phase.DONE and not second.questions.exists()
    assert "D-1 (" in outputs(second) and "Half cents are rounded up." in outputs(second)
    assert [event.kind for event in decision.events.filter(task=second)] == ["followed"]

    third = real.advance(real.task(text=TEXT.format(what="refunds"), project=project))
    question = third.questions.get()
    assert [one.decision for one in related_decisions(question)] == [decision]
    decision.refresh_from_db()
    assert decision.why_review.endswith("Refunds are tested with half to even.")
    stances = {1: StanceChoice("exception")}
    reply(real, question, "Half to even", DecisionInput(Remember("paths", paths=["src/refunds/**"]), stances))
    assert real.advance(third).phase == Phase.DONE
    exception = Decision.objects.get(number=2)
    assert (exception.exception_to, exception.paths) == (decision, ["src/refunds/**"])
    decision.refresh_from_db()
    assert decision.state == DecisionState.ACTIVE


@pytest.mark.once(on="sqlite")
def test_in_the_terminal_an_answer_holds_for_the_next_task(installation: Installation) -> None:
    def run(what: str, typed: str = "", *, code: int = 0) -> str:
        path = installation.task_file(TEXT.format(what=what))
        done = installation.manage("run_task", path, "--project", "plain", stdin=typed)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def answer(*options: str) -> None:
        number = str(installation.rows("result = Question.objects.open().get().pk"))
        done = installation.manage("answer", number, "1", *options)
        assert done.returncode == 0, done.stderr

    assert "How are half cents rounded?" in run("prices", code=3)
    answer("--remember", "project")
    run("prices")
    assert "Decisions followed: D-1" in run("taxes")
    asked = run("refunds", "1\nnonsense\nD-1=exception\n")
    assert "The agent names D-1 (" in asked and "To be reviewed: " in asked
    assert asked.index("D-N=replace") < asked.index("“nonsense” must be like")
    kinds = installation.rows("result = [one.kind for one in Decision.objects.get().events.order_by('pk')]")
    assert kinds[-1] == "exception"
    listed = installation.manage("decisions", "--project", "plain").stdout
    assert (
        "D-1" in listed
        and "Half up: As at school." in listed
        and "Question: How are half cents rounded?" in listed
    )


@pytest.mark.once(on="postgres")
def test_a_confirmed_decision_answers_the_same_question_until_that_is_taken_back(real: Runner) -> None:
    project = real.project()
    first = real.advance(real.task(text=TEXT.format(what="prices"), project=project))
    reply(real, first.questions.get(), "Half up", DecisionInput(Remember("project", statement="Up.")))
    assert real.advance(first).phase == Phase.DONE
    confirm(Decision.objects.get(), by=acting(MembershipFactory.create(project=project).user))
    Project.objects.update(overrides={"apply_decisions": True})

    # Made before there was a decision to read, so its prompt lists none and the agent asks.
    Decision.objects.update(state=DecisionState.RETIRED)
    second = real.task(text=TEXT.format(what="taxes"), project=project)

    def asked_then_decided(task: Task) -> int:
        Decision.objects.update(state=DecisionState.ACTIVE)
        return apply_decisions(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks_app.engine.runs.steps.apply_decisions", asked_then_decided)
        second = real.advance(second)
    question = second.questions.get()
    assert (second.phase, question.answerer) == (Phase.DONE, "D-1")
    assert question.delivered_at is not None
    assert "Half up" in outputs(second) and "D-1 answered this." in outputs(second)
    answered = Event.objects.get(run__step__task=second, kind="answer")
    assert 'Answered by D-1: "Half up"' in format_event(answered)

    # The next one is undone before the agent has the answer.
    Decision.objects.update(state=DecisionState.RETIRED)
    third = real.advance(real.task(text=TEXT.format(what="duties"), project=project))
    Decision.objects.update(state=DecisionState.ACTIVE)
    assert apply_decisions(third) == 1
    asked = undo_answer(third.questions.get(), by=acting(real.user))
    assert asked.is_open and not apply_decisions(Task.objects.get(pk=third.pk))
