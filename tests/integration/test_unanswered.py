"""The last rung of a ladder may end a question without an answer, and everybody can tell (SPEC Q3)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from tasks_app.core.errors import NotOpen
from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import (
    AuditEntry,
    Channel,
    Decision,
    Delivery,
    EventType,
    Membership,
    Notice,
    Question,
    QuestionState,
    Reason,
    RungOutcome,
    Task,
)
from tasks_app.notifications.delivery import drop_reason
from tasks_app.notifications.ladder import climb_ladders
from tasks_app.notifications.message import message_of
from tasks_app.services.exports import question_rows
from tasks_app.services.publishing.pull_request_text import pull_request_body
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer
from tests.api import Script
from tests.browser import signed_in
from tests.factories import UserFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Call, Turn, ask, say
from tests.people import acting
from tests.runner import Runner, results, runs, step

pytestmark = pytest.mark.django_db(transaction=True)

STORE = {
    "question": "Which store?", "header": "Store", "multiSelect": False,
    "options": [
        {"label": "SQLite (Recommended)", "description": "No server."},
        {"label": "PostgreSQL", "description": "A server."},
    ],
}  # fmt: skip
PARTS = STORE | {
    "question": "Which parts?", "header": "Parts", "multiSelect": True,
    "options": [{"label": f"{one} (Recommended)", "description": ""} for one in ("Lists", "Search")],
}  # fmt: skip
TWO = """\
ladder: [{ladder}]
pipelines:
  default:
    - {{name: first, command: implement}}
    - {{name: second, command: implement}}
"""
TAKE, DECIDE = "take the recommended option after 2h", "let the agent decide after 2h"


@pytest.fixture(autouse=True)
def _at_once(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 0})
    settings.SENDS_EMAIL = True


def waiting(
    runner: Runner,
    item: Mapping[str, Any] | str = STORE,
    *,
    ladder: str = TAKE,
    allowed: bool = True,
    then: tuple[Act, ...] = (say("{result}"),),
    call: Call | None = None,
) -> Task:
    """A task of two steps whose first one asks, with a ladder of one rung."""
    acts = [Turn(calls=(call or ask(item),)), *then]
    task = runner.task({"first": acts, "second": [say("Done.")]}, config=TWO.format(ladder=ladder))
    task.project.overrides = {"ladder_may_end": allowed}
    task.project.save()
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT
    Question.objects.update(routed_at=timezone.now())
    climb_ladders(timezone.now())
    return task


def late(days: int = 30) -> datetime:
    return timezone.now() + timedelta(days=days)


def ended(task: Task) -> Question:
    assert climb_ladders(late()) == 1
    question = task.questions.get()
    assert (question.state, question.answered_by, question.answered_via) == ("unanswered", None, "rule")
    task.refresh_from_db()
    assert task.phase == Phase.PENDING
    return question


def test_q3_the_recommended_option_is_taken_and_the_agent_reads_exactly_that(runner: Runner) -> None:
    task = waiting(runner)
    question = ended(task)
    assert (question.answers, question.recommended_taken) == ({"Which store?": "SQLite (Recommended)"}, 0)
    assert question.ended_by_rule == TAKE
    assert runner.advance(task).phase == Phase.DONE
    (told,) = results(task)
    assert "No answer: nobody had answered this question by" in told and f"“{TAKE}”" in told
    assert "SQLite" in told and "No person chose this" in told and "human answered" not in told
    assert "[From the portal: No answer" in told
    assert runs(task)[1].reason == Reason.NO_ANSWER
    prompt = runner.fake.runs[-1].prompt or ""  # of the second step
    assert "No answer: nobody had answered this question by" in prompt and "No person chose this" in prompt
    assert "Answered by" not in prompt and "Recommended:\n   > SQLite" in prompt


def test_q3_the_agent_decides_by_itself(runner: Runner) -> None:
    task = waiting(runner, "What is it for?", ladder=DECIDE)
    question = ended(task)
    assert question.answers == {} and question.agent_decides
    assert runner.advance(task).phase == Phase.DONE
    (told,) = results(task)
    assert "No answer: nobody had answered" in told and "best judgement" in told
    assert "dismissed" not in told and "No person chose this" not in told


def test_q3_a_card_of_several_questions_is_taken_as_a_whole_or_not_at_all(runner: Runner) -> None:
    task = waiting(runner, call=ask(STORE, PARTS))
    question = ended(task)
    assert question.answers == {
        "Which store?": "SQLite (Recommended)", "Which parts?": "Lists (Recommended), Search (Recommended)",
    }  # fmt: skip
    half = waiting(runner, call=ask(STORE, "And what else?"))
    assert climb_ladders(late()) == 0
    assert half.questions.get().is_open


@pytest.mark.parametrize(
    "item",
    [
        "Drop the table? This is irreversible.",
        STORE | {"question": "Delete the rows? It cannot be undone."},
        STORE
        | {"options": [{"label": "Delete (Recommended)", "description": "Irreversible."}, {"label": "Keep"}]},
        {
            **STORE,
            "options": [{"label": "SQLite", "description": ""}, {"label": "PostgreSQL", "description": ""}],
        },
    ],
    ids=["free text", "question", "option", "nothing recommended"],
)
def test_q3_what_a_rule_may_not_end_is_left_to_people_and_says_so_at_once(runner: Runner, item: Any) -> None:
    task = waiting(runner, item)
    question = task.questions.get()
    rung = question.rungs.last()
    assert rung and (rung.outcome, question.is_open) == (RungOutcome.LEFT, True) and rung.failure
    card = signed_in(runner.user).get(f"/questions/{question.pk}/").content.decode()
    assert rung.failure in card and "is taken" not in card
    assert climb_ladders(late()) == 0 and task.questions.get().is_open
    assert not Notice.objects.filter(rung=rung).exists()


def test_q3_a_project_that_does_not_allow_it_has_no_such_rung(runner: Runner) -> None:
    task = waiting(runner, allowed=False)
    assert climb_ladders(late()) == 0
    assert task.questions.get().is_open and task.questions.get().rungs.count() == 1


def test_q3_a_project_that_forbids_it_later_is_obeyed(runner: Runner) -> None:
    task = waiting(runner)
    task.project.overrides = {}
    task.project.save()
    assert climb_ladders(late()) == 1 and task.questions.get().is_open


@pytest.mark.parametrize("kind", ["approval", "plan", "cost"])
def test_q3_never_approvals_plans_and_costs(runner: Runner, kind: str) -> None:
    task = waiting(runner)
    task.questions.get().rungs.all().delete()
    Question.objects.update(kind=kind)
    climb_ladders(timezone.now())
    assert climb_ladders(late()) == 0 and task.questions.get().is_open


def test_q3_everywhere_it_is_told_from_an_answer(runner: Runner) -> None:
    """Page, log, result, terminal, API, export, audit, pull request, notices."""
    task = waiting(runner)
    question = ended(task)
    page = signed_in(runner.user).get(f"/questions/{question.pk}/").content.decode()
    assert "outcome-unanswered" in page and "Answered by" not in page and TAKE in page
    assert runner.advance(task).phase == Phase.DONE
    log = "".join(render_log(step(task, "first"), LogKind.OUTPUT))
    assert "[NO ANSWER] Ended without an answer by" in log and "User answered" not in log
    for page in ("", "log/", "questions/"):
        text = signed_in(runner.user).get(f"/tasks/{task.pk}/{page}").content.decode()
        assert "nded without an answer" in text, page
    out = io.StringIO()
    call_command("status", str(task.pk), "--json", stdout=out)
    said = Script(runner.user).get(f"/questions/{question.pk}").json()
    assert (said["state"], said["answered_by"], said["answered_via"]) == ("unanswered", None, "rule")
    assert said["ended_by_rule"] == TAKE
    (row,) = question_rows(Question.objects.all())
    assert (row["state"], row["ended_by_rule"], row["answered_by"]) == ("unanswered", TAKE, "")
    entry = AuditEntry.objects.get(action="unanswered")
    assert entry.actor is None and entry.detail["rule"] == TAKE
    assert "ended without an answer by the rule" in pull_request_body(task)
    assert not Decision.objects.exists()
    notice = Notice.objects.get(event_type=EventType.UNANSWERED, user=task.created_by)
    assert "Which store?" in notice.headline and "SQLite" in notice.headline
    assert notice.is_counted
    assert f"/questions/{question.pk}/" in signed_in(runner.user).get("/notices/").content.decode()


def test_q3_a_message_says_it_and_is_not_sent_once_it_is_undone(runner: Runner) -> None:
    type(runner.user).objects.update(email="ann@example.org")
    task = waiting(runner)
    question = ended(task)
    sent = Delivery.objects.filter(rung__isnull=False).with_events("task__project", "task__created_by").get()
    assert not drop_reason(sent)
    message = message_of(sent)
    assert message.event_type == EventType.UNANSWERED and f"/questions/{question.pk}/" in message.url
    assert message.headline.startswith("Nobody answered: ") and json.dumps(message.as_json())
    undo_answer(question, by=acting(runner.user))
    sent = Delivery.objects.filter(rung__isnull=False).with_events("task__project", "task__created_by").get()
    assert drop_reason(sent)


def test_q3_undo_asks_a_human_before_the_agent_was_told(runner: Runner) -> None:
    """Everybody who may answer may undo it; no rule ends it again."""
    task = waiting(runner)
    question = ended(task)
    bob = UserFactory.create(username="bob")
    Membership.objects.create(user=bob, project=task.project, role="member")
    card = signed_in(bob).get(f"/questions/{question.pk}/").content.decode()
    assert f"/questions/{question.pk}/undo/" in card
    opened = (
        signed_in(bob)
        .post(f"/questions/{question.pk}/undo/", headers={"HX-Request": "true"})
        .content.decode()
    )
    assert "checked" not in opened.split("Applies to")[0], "one click would make it a person's answer"
    assert "was undone" in opened
    question.refresh_from_db()
    assert (question.is_open, question.answers, question.ended_by_rule) == (True, {}, "")
    task.refresh_from_db()
    assert task.phase == Phase.WAITING_FOR_INPUT
    assert climb_ladders(late(60)) == 0
    runner.answer(question, "PostgreSQL")
    assert runner.advance(task).phase == Phase.DONE
    assert "PostgreSQL" in results(task)[0] and "No answer" not in results(task)[0]


def test_q3_undo_stops_the_agent_that_goes_on_and_asks_anew(runner: Runner) -> None:
    def undo(workspace: object) -> str:
        undo_answer(Question.objects.get(), by=acting(runner.user))
        return "done"

    works = Turn("I build on SQLite.", (Call("Bash", {"command": "build"}, undo),))
    task = waiting(runner, then=(works, say("Built.")))
    first = ended(task)
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT
    first.refresh_from_db()
    anew = task.questions.get(reopens=first)
    assert (first.taken_back_by, first.state) == (runner.user, QuestionState.UNANSWERED)
    Question.objects.update(routed_at=timezone.now())
    climb_ladders(timezone.now())
    assert climb_ladders(late(60)) == 0 and anew.is_open  # never by a rule again
    runner.answer(anew, "PostgreSQL")
    assert runner.advance(task).phase == Phase.DONE
    told = [run.prompt for run in runner.fake.runs if run.prompt and "> PostgreSQL" in run.prompt]
    assert "ended a question of this task without an answer. ann undid that" in told[0]
    assert "ann undid the rule" in told[0] and "the portal was stopped" not in told[0]


def test_q3_who_answers_too_late_is_told_what_happened(runner: Runner) -> None:
    task = waiting(runner)
    question = task.questions.get()
    ended(task)
    with pytest.raises(NotOpen, match="nded without an answer by the rule"):
        answer_question(question, Reply.to(question, "Too late"), by=acting(runner.user), via=Channel.WEB)


def test_q3_a_session_that_is_lost_is_told_in_words(runner: Runner) -> None:
    sessions = [[Turn(calls=(ask(STORE),))], [say("Done.")]]
    text = "---\nresume: replay\n---\n\n# Paint it\n"
    config = f"ladder: [{TAKE}]\npipelines: {{default: [{{name: do, command: self}}]}}\n"
    runner.agent = FakeAgent(lambda prompt: [])
    task = runner.task(lambda prompt: sessions["FEEDBACK" in prompt], config=config, text=text)
    task.project.overrides = {"ladder_may_end": True}
    task.project.save()
    task = runner.advance(task)
    Question.objects.update(routed_at=timezone.now())
    climb_ladders(timezone.now())
    ended(task)
    assert runner.advance(task).phase == Phase.DONE
    prompt = runner.fake.runs[-1].prompt or ""
    assert (
        "No answer: nobody had answered this question by" in prompt
        and "Take each answer as decided" not in prompt
    )
