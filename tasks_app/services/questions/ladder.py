"""The ladder of open questions: its rows are made, and a rung is done once (Q3, Q5).

Who gets a message of a rung, `notifications/ladder.py` says.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef

from tasks_app.core.asked_items import recommended_answers, says_irreversible
from tasks_app.core.ladder import ENDINGS, RungAction, RungRule, ladder_from
from tasks_app.core.working_hours import Schedule
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Action,
    AskedBy,
    Change,
    ChangeKind,
    Channel,
    EventKind,
    Question,
    QuestionKind,
    QuestionState,
    Rung,
    RungOutcome,
    Task,
    User,
)
from tasks_app.permissions import users_who_act_in
from tasks_app.services.projects.settings import overrides_of, repository_settings
from tasks_app.services.questions.question_outcomes import store_outcome
from tasks_app.services.working_hours import WITH_SCHEDULE, schedule_of

logger = logging.getLogger(__name__)

_AT_ONCE = 100
#: A ladder is made within seconds, or after a time in which no worker ran.
MAX_DELAY = timedelta(days=1)


def make_ladders(now: datetime) -> int:
    """Make the rungs of open questions that were put to people; return the number of these questions.

    Those that were open long before, such as when the portal is updated, climb from now on.
    """
    questions = Question.objects.open().filter(~Exists(Rung.objects.filter(question=OuterRef("pk"))))
    due = questions.exclude(routed_at=None).select_related("task__project")
    found = list(due.order_by("routed_at", "pk")[:_AT_ONCE])
    for question in found:
        routed_at = question.routed_at
        if routed_at is None or routed_at < now - MAX_DELAY:
            routed_at = now
        schedules = schedules_of(people_asked(question), routed_at)
        rows = [
            Rung(
                question=question, position=position, action=rule.action, name=rule.name[:100],
                at_any_hour=rule.at_any_hour,
                due=rule.due(routed_at, schedules),
            )
            for position, rule in enumerate(ladder_of(question), start=1)
            if not rule.ends or may_end(question)
        ]  # fmt: skip
        for row in rows:
            if row.action in ENDINGS and (reason := why_left_to_people(question, row.action)):
                row.done_at, row.outcome, row.failure = routed_at, RungOutcome.LEFT, reason
        asked = Rung(
            question=question, position=0, action=RungAction.ASK, due=routed_at, done_at=routed_at,
            outcome=RungOutcome.DONE,
        )  # fmt: skip
        # Another worker may make the same rows at the same moment.
        Rung.objects.bulk_create([asked, *rows], ignore_conflicts=True)
    return len(found)


def restart_ladder(question: Question, now: datetime) -> None:
    """Let the rungs that are left count from now, because the question waits for other people."""
    rules, schedules = ladder_of(question), schedules_of(people_asked(question), now)
    for rung in Rung.objects.upcoming().filter(question=question, position__range=(1, len(rules))):
        rule = rules[rung.position - 1]
        if rule.action == rung.action:  # the project's ladder may be another one now
            rung.due = rule.due(now, schedules)
            rung.save(update_fields=["due"])


def ladder_of(question: Question) -> tuple[RungRule, ...]:
    """Return the rungs that people set, or those of the file at the commit that the task began with."""
    project = question.task.project
    try:
        lines = tuple(overrides_of(project).ladder.splitlines())
        return ladder_from(lines or repository_settings(project, commit=question.task.base_commit).ladder)
    except Exception:
        logger.exception("question %s has no usable ladder; the default one holds", question.pk)
        return ladder_from(())


def may_end(question: Question) -> bool:
    """Return whether the project lets a rung end this question.

    It may be a clarification alone, and not one that is asked again because people undid its end.
    """
    allowed = question.task.project.overrides.get("ladder_may_end")
    return bool(allowed) and question.kind == QuestionKind.CLARIFICATION and question.reopens_id is None


def why_left_to_people(question: Question, action: str) -> str:
    """Return why no rule may end the question, whatever its project says; "" if one may."""
    if says_irreversible(question.items):
        return "The question says that what it is about cannot be undone."
    if action == RungAction.RECOMMENDED and not recommended_answers(question.items):
        return "The agent recommends no option."
    return ""


def people_asked(question: Question) -> list[User]:
    """Return whom the question waits for: those whom it is put to, or else all who may answer it."""
    able = users_who_act_in(question.task.project_id).select_related(*WITH_SCHEDULE).order_by("pk")
    named = question.asked.current().exclude(asked_by=AskedBy.OPINION).values("user")
    return list(able.filter(pk__in=named)) or list(able)


def schedules_of(people: Collection[User], moment: datetime) -> list[Schedule]:
    """Return when these people work. Nobody waits for those who are away now, unless all of them are."""
    schedules = [schedule_of(user) for user in people]
    return [one for one in schedules if not one.absence_at(moment)] or schedules


def do_rung(rung: Rung, now: datetime) -> bool:
    """Do a rung that is due; return False if somebody was first, or the question is no longer open.

    Call it in a transaction together with what else the rung does. An answer locks the task as well, so it
    comes before all of that or after it.
    """
    task = Task.objects.select_for_update().get(pk=rung.question.task_id)
    due = Rung.objects.upcoming().filter(pk=rung.pk, due__lte=now)
    if not Rung.objects.filter(pk__in=due.values("pk"), done_at=None).update(
        done_at=now, outcome=RungOutcome.DONE
    ):
        return False
    rung.done_at, rung.outcome = now, RungOutcome.DONE
    question = rung.question
    if rung.action in ENDINGS:
        _end(rung)
        return True
    names = ", ".join(user.shown_name for user in people_asked(question))
    text = f"{names}: reminded of question {question.pk}, which nobody has answered."
    if rung.action == RungAction.EVERYBODY:
        question.asked.current().exclude(asked_by=AskedBy.OPINION).update(ended_at=now)
        text = f"Question {question.pk} is asked of all who may answer it: nobody has answered."
    if before := question.rungs.filter(position=rung.position - 1, outcome=RungOutcome.UNREACHED).first():
        text += f" Nobody was reached before: {before.failure}"
    append_one(question.run, EventKind.NOTE, {"text": text, "rung": rung.position})
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    return True


def _end(rung: Rung) -> None:
    """End the question without an answer, and let its task go on; or leave it to people, and say why."""
    question = rung.question
    # As it is now: the project may have changed its mind.
    question.task.project.refresh_from_db(fields=["overrides"])
    if not may_end(question):
        reason = "The project does not allow a rule to end it any more."
        Rung.objects.filter(pk=rung.pk).update(outcome=RungOutcome.LEFT, failure=reason)
        rung.outcome, rung.failure = RungOutcome.LEFT, reason
        text = f"Nobody has answered question {question.pk}, and the rule “{rung.name}” leaves it to people: "
        text += reason
        append_one(question.run, EventKind.NOTE, {"text": text, "rung": rung.position})
        Change.objects.create(task_id=question.task_id, kind=ChangeKind.QUESTION)
        return
    answers = recommended_answers(question.items) if rung.action == RungAction.RECOMMENDED else {}
    outcome = {
        "state": QuestionState.UNANSWERED, "answers": answers, "notes": "", "ended_by_rule": rung.name,
    }  # fmt: skip
    store_outcome(question, outcome, action=Action.UNANSWERED, by=None, via=Channel.RULE)


@transaction.atomic
def note_unreached(rung: Rung, failure: str, now: datetime) -> bool:
    """Note that no message of this rung arrived; the next is due at once. Return False if it is noted."""
    reached = Rung.objects.filter(pk=rung.pk, outcome=RungOutcome.DONE)
    if not reached.update(outcome=RungOutcome.UNREACHED, failure=failure[:500]):
        return False
    following = Rung.objects.upcoming().filter(question=rung.question_id, position=rung.position + 1)
    Rung.objects.filter(pk__in=following.values("pk"), due__gt=now).update(due=now)
    Change.objects.create(task_id=rung.question.task_id, kind=ChangeKind.QUESTION)
    return True
