"""Answers at the worst moment, and to the wrong question (R1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from tasks_app.core.errors import CatHerderError, IllegalMove, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Event, Question, QuestionState, Task
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.tasks import cancel_task, resume_task
from tests.api import Script
from tests.browser import signed_in
from tests.fake_script import Turn, ask, say
from tests.people import acting
from tests.runner import Runner, results

ASKS_TWICE = [Turn(calls=(ask("First?"),)), Turn(calls=(ask("Second?"),)), say("{result}")]


def at_once(*runner: Callable[[], Any]) -> list[Any]:
    """What each returned, or the error of ours that it raised; all began together."""
    together = threading.Barrier(len(runner))
    results: list[Any] = [None] * len(runner)

    def one(place: int, work: Callable[[], Any]) -> None:
        together.wait()
        try:
            results[place] = work()
        except CatHerderError as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(runner)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def waiting(runner: Runner) -> tuple[Task, Question]:
    task = runner.advance(runner.task(ASKS_TWICE))
    return task, task.questions.get()


def heard(text: str) -> str:
    """What the agent reads: the tool's own result with the answer, and who gave it."""
    return f'The user answered: "First?"="{text}". Go on from there.\n\n[From the portal: ann answered.]'


def reply(runner: Runner, question: Question, text: str, via: Channel) -> Callable[[], Any]:
    return lambda: answer_question(
        Question.objects.get(pk=question.pk),
        Reply({question.headline: text}),
        by=acting(runner.user),
        via=via,
    )


def test_of_answers_through_three_channels_at_once_one_counts(runner: Runner) -> None:
    task, question = waiting(runner)
    people = (Channel.WEB, Channel.TERMINAL, Channel.API)
    given = [(f"by {via}", via) for via in people]
    outcomes = at_once(*(reply(runner, question, text, via) for text, via in given))
    assert sum(isinstance(outcome, NotOpen) for outcome in outcomes) == len(given) - 1
    question.refresh_from_db()
    (winner,) = [text for (text, _), one in zip(given, outcomes, strict=True) if not isinstance(one, NotOpen)]
    assert question.answer_text == winner
    assert Event.objects.filter(run__step__task=task, kind="answer").count() == 1
    runner.advance(task)
    assert results(task) == [heard(winner)]


@pytest.mark.parametrize("round_", range(5))
def test_an_answer_at_the_moment_of_a_cancel_is_kept_or_refused(round_: int, runner: Runner) -> None:
    task, question = waiting(runner)
    answered, cancelled = at_once(
        reply(runner, question, "Yes", Channel.WEB),
        lambda: cancel_task(Task.objects.get(pk=task.pk), by=acting(runner.user)),
    )
    assert cancelled is None
    task.refresh_from_db()
    question.refresh_from_db()
    assert task.phase == Phase.CANCELLED
    if isinstance(answered, NotOpen):
        assert (question.state, question.answers) == (QuestionState.WITHDRAWN, {})
        resume_task(task, by=acting(runner.user))
        task.refresh_from_db()
        assert task.phase == Phase.WAITING_FOR_INPUT
        reply(runner, question, "Yes", Channel.WEB)()
    else:
        assert question.answer_text == "Yes"
        resume_task(task, by=acting(runner.user))
    runner.advance(task)
    assert results(task) == [heard("Yes")]


def test_of_two_resumptions_at_once_one_succeeds(runner: Runner) -> None:
    task, _ = waiting(runner)
    cancel_task(task, by=acting(runner.user))
    outcomes = at_once(*[lambda: resume_task(Task.objects.get(pk=task.pk), by=acting(runner.user))] * 4)
    assert sum(isinstance(outcome, IllegalMove) for outcome in outcomes) == 3
    assert task.questions.open().count() == 1


def test_the_card_of_the_first_question_does_not_answer_the_second(runner: Runner) -> None:
    """A fault of the reference tool: what was left over from one question answered the next."""
    task, first = waiting(runner)
    runner.answer(first, "One")
    runner.advance(task)
    second = task.questions.open().get()
    browser = signed_in(runner.user)
    late = browser.post(f"/questions/{first.pk}/answer/", {"item-0-other": "For the second"})
    assert late.status_code == 409
    second.refresh_from_db()
    assert (second.is_open, second.answers) == (True, {})
    first.refresh_from_db()
    assert first.answer_text == "One"


def test_the_card_of_a_cancelled_task_counts_once_it_is_open_again(runner: Runner) -> None:
    """It is the same question; in between it takes no answer."""
    task, question = waiting(runner)
    browser = signed_in(runner.user)
    where, typed = f"/questions/{question.pk}/answer/", {"item-0-other": "Late"}
    cancel_task(task, by=acting(runner.user))
    assert browser.post(where, typed).status_code == 409
    task.refresh_from_db()
    resume_task(task, by=acting(runner.user))
    assert browser.post(where, typed).status_code == 200
    runner.advance(task)
    assert results(task) == [heard("Late")]


def test_an_answer_names_the_questions_that_it_answers(runner: Runner) -> None:
    _, question = waiting(runner)
    body = {"answers": {"Another question?": "Yes"}}
    refused = Script(runner.user).post(f"/questions/{question.pk}/answer", body)
    assert (refused.status_code, "Another question?" in refused.json()["detail"]) == (400, True)
    question.refresh_from_db()
    assert question.is_open
