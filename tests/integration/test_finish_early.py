"""M8: at its soft cost limit a task can be finished early: it ends with its present step, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.urls import reverse

from tasks_app.agent.port import BUDGET_SPENT, Ending, Recorder, RunOrder, RunResult
from tasks_app.core.errors import BadAmount, IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.models import (
    Channel,
    Publication,
    Question,
    ReviewVerdict,
    Task,
)
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.bulk import retry_from
from tasks_app.services.publishing.publications import publication_hindrances
from tasks_app.services.questions.answers import undo_answer
from tasks_app.services.reviews import send_review
from tasks_app.services.sequences import create_sequence, resume_sequence, start_sequence
from tasks_app.services.tasks import cancel_task, resume_task
from tasks_app.services.usage.cost_limits import END, FINISH, dollars_for_run, with_limits
from tasks_app.services.usage.statistics import forecasts
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory
from tests.fake_script import Act, Call, End, Fail, Turn, ask, say, shell, write
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.people import acting
from tests.runner import Runner, results, runs, step
from tests.soft_limits import LIMIT, cost_question, two_steps, without_undo

pytestmark = pytest.mark.django_db(transaction=True)

UNDO = 60


@pytest.fixture(autouse=True)
def no_undo(settings: Any) -> None:
    without_undo(settings)


def begun(runner: Runner, *acts: Act, more: str = "", plan: str = "") -> Question:
    """Return the question of a task whose first step has begun and goes on with these acts."""
    play = [Turn(calls=(ask("Which colour?"),)), *acts]
    task = runner.advance(runner.task(play, config=two_steps(limits=more, plan=plan)))
    runner.answer(task.questions.get(), "Blue")
    return cost_question(runner.advance(task))


def between(runner: Runner) -> Question:
    """Return the question of a task whose second step is next."""
    play = [Turn("Planned.", calls=(write("a.txt", "a\n"),))]
    return cost_question(runner.advance(runner.task(play, config=two_steps())))


def finish(runner: Runner, question: Question, notes: str = "") -> Task:
    runner.answer(question, FINISH, notes=notes)
    return runner.advance(question.task)


def phases(task: Task) -> list[str]:
    return [one.phase for one in task.steps.all()]


def shown(task: Task) -> list[str]:
    return [one.phase_display.label for one in (task, *task.steps.all())]


def last_reason(task: Task) -> str:
    return task.transitions.exclude(step=None).latest("pk").reason


def test_the_card_says_what_finishing_costs_and_leaves(runner: Runner) -> None:
    question = begun(runner, say("Done."))
    (_, option, _) = question.items[0]["options"]
    assert option["label"] == FINISH
    assert option["description"] == (
        "The agent finishes step “plan” for at most $0.10 and says what is left undone. "
        "No further step begins. What is there can be reviewed and published."
    )


def test_before_a_step_nothing_more_is_spent(runner: Runner) -> None:
    question = between(runner)
    (_, option, _) = question.items[0]["options"]
    assert option["description"].startswith("No further step starts, including “implement”.")
    task = finish(runner, question)
    assert task.finished_early and len(runs(task)) == 1
    assert phases(task) == [Phase.DONE, Phase.PENDING]
    assert shown(task) == ["finished early", "done", "not run"]
    question.refresh_from_db()
    assert (question.cost_choice, question.delivered_at is not None) == ("finish", True)


def test_the_agent_ends_its_present_step_and_no_other_begins(runner: Runner) -> None:
    question = begun(runner, say("Left undone: the roof."))
    task = finish(runner, question, notes="Keep the walls.")
    assert shown(task) == ["finished early", "done", "not run"]
    first, second = runs(task)
    assert second.session_id == first.session_id and second.step.name == "plan"
    told = " ".join(results(task))
    for said in ("decided: Finish early", "at most $0.10 more", "Begin nothing new", "left undone", "walls"):
        assert said in told, told
    assert dollars_for_run(with_limits(task.pk)).of_soft_limit is not None
    assert not task.questions.filter(delivered_at=None).exists()


def test_a_task_whose_last_step_ends_so_is_done_and_called_finished_early(
    runner: Runner, manage: Manage
) -> None:
    """It was shown as a full success, while its agent said what it had left undone."""
    config = LIMIT + "pipelines: {default: [{name: do, command: self}]}\n"
    task = runner.advance(runner.task([Turn(calls=(ask("Which?"),)), say("Done.")], config=config))
    runner.answer(task.questions.get(), "Blue")
    task = finish(runner, cost_question(runner.advance(task)))
    assert (task.phase, task.finished_early, shown(task)) == (Phase.DONE, False, ["finished early", "done"])
    assert Script(runner.user).get(f"/tasks/{task.pk}").json()["finished_early"]
    page = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert "Finished early, in the last step." in page and "Resume</button>" not in page
    for text in (page, manage("status", task.pk)[1]):
        assert "Finished early at its soft cost limit" in text and "All steps finished" not in text


def test_a_check_that_does_not_pass_is_not_repaired(runner: Runner) -> None:
    question = begun(runner, say("Done."), plan=", check: {type: shell, command: 'false'}, retry: 3")
    task = finish(runner, question)
    assert shown(task) == ["finished early", "not done", "not run"] and len(runs(task)) == 2
    assert last_reason(task) == "finished early at its soft cost limit: its checks did not pass"


def test_a_step_that_has_spent_what_was_left_is_stopped_and_checked(runner: Runner) -> None:
    turns = [say(f"Turn {number}.") for number in range(11)]
    question = begun(runner, *turns, Fail(), plan=", check: {type: shell, command: 'true'}, retry: 9")
    task = finish(runner, question)
    assert shown(task) == ["finished early", "not done", "not run"] and len(runs(task)) == 2
    assert last_reason(task).endswith("what was left to end it is spent")
    assert [report["passed"] for report in runs(task)[-1].checks or []] == [True]


def test_a_request_that_does_not_fit_into_what_was_left_ends_it_and_nobody_is_asked_again(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = begun(runner, say("Half."))
    play = runner.fake.run

    def cut(order: RunOrder, recorder: Recorder) -> RunResult:
        return replace(play(order, recorder), ending=Ending.BUDGET, error=BUDGET_SPENT)

    monkeypatch.setattr(runner.fake, "run", cut)
    task = finish(runner, question)
    assert shown(task) == ["finished early", "not done", "not run"] and len(runs(task)) == 2
    assert last_reason(task).endswith("what was left to end it is spent")
    assert not task.questions.open().exists()


def test_an_error_of_the_agent_is_tried_again_within_what_is_left(runner: Runner) -> None:
    task = finish(runner, begun(runner, Fail(), say("Done."), plan=", retry: 3"))
    assert shown(task) == ["finished early", "done", "not run"] and len(runs(task)) == 3


def test_the_hard_limit_ends_it_in_order_too(runner: Runner) -> None:
    question = begun(runner, say("One."), Fail(), more=", maxCostUsd: 0.02", plan=", retry: 9")
    assert question.tool_input["finish_usd"] == pytest.approx(0.01)
    task = finish(runner, question)
    assert shown(task) == ["finished early", "not done", "not run"] and not task.failure


def test_work_that_the_file_guard_refuses_fails_the_task_as_always(runner: Runner) -> None:
    def work(path: str) -> Call:
        return shell(f"echo secret >{path}")

    question = begun(
        runner,
        Turn("Done.", calls=(work("ci.yml"),)),
        End(),
        plan=", fileAccess: {allowWrite: ['docs/**']}, retry: 3",
    )
    task = finish(runner, question)
    assert task.phase == Phase.FAILED and "changed files that it may not write" in task.failure


def test_the_allowance_has_bounds_and_ends_at_the_hard_limit(runner: Runner) -> None:
    question = begun(runner, say("Done."), more=", maxCostUsd: 0.05")
    assert question.tool_input["finish_usd"] == pytest.approx(0.04)
    runner.answer(question, "finish early")
    question.refresh_from_db()
    assert question.allowed_usd == pytest.approx(0.05) and question.answer_text == FINISH


def test_an_older_question_does_not_know_it(runner: Runner) -> None:
    question = between(runner)
    del question.tool_input["finish_usd"]
    question.save()
    with pytest.raises(BadAmount):
        runner.answer(question, FINISH)


def test_the_answer_is_taken_back(runner: Runner, settings: Any) -> None:
    question = between(runner)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": UNDO})
    runner.answer(question, FINISH)
    question = Question.objects.select_related("task", "step").get(pk=question.pk)
    assert question.task.is_finishing_early
    undo_answer(question, by=acting(runner.user))
    question = Question.objects.select_related("task").get(pk=question.pk)
    assert (question.is_open, question.finishes, question.task.early_end) == (True, False, "")
    without_undo(settings)
    runner.answer(question, "1")
    assert shown(runner.advance(question.task)) == ["done", "done", "done"]


def test_it_can_be_resumed_and_asks_again(runner: Runner) -> None:
    task = finish(runner, between(runner))
    resume_task(task, by=acting(runner.user))
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT and not task.is_finishing_early
    runner.answer(cost_question(task), "1")
    assert shown(runner.advance(task)) == ["done", "done", "done"]


def test_a_task_that_is_done_is_not_resumed(runner: Runner) -> None:
    question = between(runner)
    runner.answer(question, "1")
    task = runner.advance(question.task)
    with pytest.raises(IllegalMove):
        resume_task(task, by=acting(runner.user))


def test_a_retried_step_is_no_longer_finished_early(runner: Runner) -> None:
    task = finish(runner, between(runner))
    retry_from(task, step(task, "plan"), by=acting(runner.user))
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT and cost_question(task).number == 2


def test_cancelling_forgets_the_decision(runner: Runner) -> None:
    question = begun(runner, say("Done."))
    runner.answer(question, FINISH)
    task = Task.objects.get(pk=question.task_id)
    cancel_task(task, by=acting(runner.user))
    task.refresh_from_db()
    assert task.early_end == ""
    resume_task(task, by=acting(runner.user))
    runner.advance(task)
    runner.answer_all(task, "1")
    assert shown(runner.advance(task)) == ["rehearsed", "done", "done"]


def test_a_reviewer_s_request_goes_before_the_early_end(runner: Runner) -> None:
    task = finish(runner, between(runner))
    send_review(task, ReviewVerdict.REQUEST_CHANGES, by=acting(runner.user), via=Channel.WEB, body="More.")
    task.refresh_from_db()
    assert (task.phase, task.early_end) == (Phase.PENDING, "")


def test_the_result_can_be_approved_but_no_pipeline_publishes_it(runner: Runner) -> None:
    steps = "[{name: plan, command: plan-task}, {name: implement, command: implement}]"
    pipeline = f"{{clarify: false, publish: true, steps: {steps}}}"
    config = f"{LIMIT}pipelines:\n  default: {pipeline}\n"
    play = [Turn("Planned.", calls=(write("a.txt", "a\n"),))]
    task = finish(runner, cost_question(runner.advance(runner.task(play, config=config))))
    assert task.finished_early and not task.publish_due and not Publication.objects.exists()
    assert not any("is done" in one for one in publication_hindrances(task, task.head_commit))
    send_review(task, ReviewVerdict.APPROVE, by=acting(runner.user), via=Channel.WEB, commit=task.head_commit)
    assert forecasts(task.project) == {}


def test_a_sequence_stops_there_and_goes_on_when_it_is_resumed(runner: Runner) -> None:
    project = runner.project(two_steps(), **{"tasks/1.md": "# One\n", "tasks/2.md": "# Two\n"})
    runner.task([say("Done.")], project=project)
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    task = finish(runner, cost_question(runner.advance(sequence.tasks.get())))
    sequence.refresh_from_db()
    assert task.finished_early and sequence.phase == Phase.FAILED
    assert "was finished early at its soft cost limit" in sequence.failure
    resume_sequence(sequence, by=acting(runner.user))
    sequence.refresh_from_db()
    assert sequence.phase == Phase.PENDING and sequence.tasks.count() == 2
    with pytest.raises(IllegalMove, match="followed by another task"):
        resume_task(Task.objects.get(pk=task.pk), by=acting(runner.user))


def test_page_api_terminal_and_notice_call_it_finished_early(runner: Runner, manage: Manage) -> None:
    question = between(runner)
    user = MembershipFactory.create(project=question.task.project).user
    task = finish(runner, question)
    page = tidy(signed_in(user).get(reverse("task", args=[task.pk])).text)
    assert "Finished early. Not done: implement." in page and "not run" in page
    assert "All steps finished" not in page and "Resume" in page and "do-resume" in page
    listed = signed_in(user).get(reverse("tasks")).text
    assert "finished early" in listed
    script = Script(user)
    found = script.get(f"/tasks/{task.pk}").json()
    assert (found["phase"], found["finished_early"]) == ("done", True)
    (question,) = script.get(f"/questions?task={task.pk}").json()["items"]
    asked = question["items"][0]["question"]
    assert (question["cost_choice"], question["answers"][asked]) == ("finish", FINISH)
    out = manage("status", task.pk)[1]
    assert "finished early: Finished early at its soft cost limit" in out and "not run" in out
    create_notifications()
    owner = signed_in(runner.user).get(reverse("notices")).text
    assert "Finished early</span>" in owner and "Done</span>" not in owner


def test_two_workers_end_it_once(runner: Runner) -> None:
    question = between(runner)
    runner.answer(question, FINISH)
    for _ in range(2):
        advance(question.task_id, owner="tester", context=runner.context)
    task = Task.objects.get(pk=question.task_id)
    assert task.transitions.filter(step=None, target=Phase.DONE).count() == 1


def test_the_other_options_stay(runner: Runner) -> None:
    task = between(runner).task
    runner.answer(cost_question(task), END)
    assert runner.advance(task).phase == Phase.CANCELLED
