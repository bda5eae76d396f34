"""Who is asked a question, as people change it: hand it over, ask for a second opinion, take that back."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks_app.core.errors import AnswerTooLong, BadInput, NotAllowed, NotOpen
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    ACTING_ROLES,
    Action,
    Asked,
    AskedBy,
    Change,
    ChangeKind,
    EventKind,
    Membership,
    Project,
    Question,
    Task,
    User,
)
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.questions.ladder import restart_ladder
from tasks_app.services.questions.question_outcomes import normalise_notes, why_not_open

#: Names that a message lists.
_MOST_NAMES = 20


def users_who_may_answer(project: Project) -> QuerySet[User]:
    """Return the active users whose role in the project allows it. Site admins need a role to be asked."""
    roles = Membership.objects.filter(user=OuterRef("pk"), project=project, role__in=ACTING_ROLES)
    return User.objects.filter(Exists(roles), is_active=True).order_by("username")


def find_user_to_ask(project: Project, username: str, *, by: Principal) -> User:
    """Return the user with this name. Raises BadInput unless they may answer and are somebody else."""
    others = users_who_may_answer(project).exclude(pk=by.user.pk)
    if found := others.filter(username=username.strip()).first():
        return found
    if username.strip() == by.user.username:
        raise BadInput("name somebody else than yourself", where="to")
    names = ", ".join(others.values_list("username", flat=True)[:_MOST_NAMES])
    hint = f"Those who may: {names}." if names else "Nobody else may; a maintainer can add members."
    raise BadInput(f"“{username}” is not somebody who may answer in {project}. {hint}", where="to")


def hand_over(question: Question, to: User, *, by: Principal, note: str = "") -> Asked:
    """Ask `to` instead of the user. If the user is not asked by name, ask `to` instead of everybody.

    The same request again returns the row that it made.

    Raises NotAllowed, BadInput, AnswerTooLong or NotOpen.
    """
    return _ask(question, to, AskedBy.HAND_OVER, by=by, note=note)


def ask_opinion(question: Question, to: User, *, by: Principal, note: str = "") -> Asked:
    """Ask `to` as well. Who is asked already stays as they are; raises the same as `hand_over`."""
    return _ask(question, to, AskedBy.OPINION, by=by, note=note)


def _ask(question: Question, to: User, asked_by: AskedBy, *, by: Principal, note: str) -> Asked:
    project = question.task.project
    require_actor(by, project)
    find_user_to_ask(project, to.username, by=by)
    note = normalise_notes(note)
    if len(note) > settings.ENVIRONMENT.answer_limit:
        raise AnswerTooLong(size=len(note), limit=settings.ENVIRONMENT.answer_limit)
    with transaction.atomic():
        _lock_open(question)
        current = question.asked.current()
        present = current.filter(user=to).first()
        if present and (present.asked_by, present.by_id, present.note) == (asked_by, by.user.pk, note):
            return present
        now, name = timezone.now(), by.user.shown_name
        if asked_by == AskedBy.HAND_OVER:
            why = f"{name} handed it over"
            if present and current.filter(user=by.user, asked_by=AskedBy.OPINION, by=to).exists():
                why = f"{name} gave an opinion; {present.why}"
            _end_for(question, to, by=by.user, now=now)
        elif present:
            raise BadInput(f"{to.shown_name} is asked already", where="to")
        else:
            why = f"{name} wants a second opinion"
        made = Asked.objects.create(
            question=question, user=to, asked_by=asked_by, why=why[:300], by=by.user, note=note,
            at=now, announce_at=now,
        )  # fmt: skip
        if asked_by == AskedBy.HAND_OVER:
            restart_ladder(question, now)
        _tell(question, _ACTIONS[asked_by], f"{why}: {to.shown_name} is asked", made, by=by.user)
    return made


_ACTIONS = {AskedBy.HAND_OVER: Action.HANDED_OVER, AskedBy.OPINION: Action.OPINION_ASKED}


def _end_for(question: Question, to: User, *, by: User, now: datetime) -> None:
    """End what a hand-over replaces: the user's own row, or without one all; and that of who is asked."""
    current = question.asked.current()
    ended = Q(user__in=[by, to])
    if not current.filter(user=by).exists():
        ended |= ~Q(asked_by=AskedBy.OPINION)
    for row in current.filter(ended):
        row.ended_at = now
        row.announce_at = None if row.user_id in (by.pk, to.pk) else now
        row.save(update_fields=["ended_at", "announce_at"])
    # What a person chose stays, also if the question was about to be routed.
    Question.objects.filter(pk=question.pk, routed_at=None).update(routed_at=now)
    # Whoever hands it over does not answer it.
    Question.objects.filter(pk=question.pk, claimed_by=by).update(claimed_by=None, claimed_at=None)


def take_back(asked: Asked, *, by: Principal) -> None:
    """Take back a hand-over or the wish for an opinion: those who were asked before are asked again.

    Doing it twice changes nothing. Raises NotAllowed for all but the user who asked and the one who was
    asked, or NotOpen if the question is not open or was handed over again.
    """
    question = asked.question
    require_actor(by, question.task.project)
    if not asked.is_by_a_person or by.user.pk not in (asked.by_id, asked.user_id):
        raise NotAllowed("Only who asked, or who was asked, can take this back.")
    with transaction.atomic():
        _lock_open(question)
        asked.refresh_from_db()
        if asked.ended_at is not None:
            if question.asked.filter(at=asked.ended_at).exists():
                raise NotOpen("This was handed over again. Take that back first.")
            return
        now = timezone.now()
        asked.ended_at = now
        asked.announce_at = None if asked.announce_at or asked.user == by.user else now
        asked.save(update_fields=["ended_at", "announce_at"])
        if asked.asked_by == AskedBy.HAND_OVER:
            before = question.asked.filter(ended_at=asked.at)
            for row in before.exclude(user__in=question.asked.current().values("user")):
                row.ended_at = None
                row.announce_at = None if row.announce_at or row.user == by.user else now
                row.save(update_fields=["ended_at", "announce_at"])
            restart_ladder(question, now)
        said = f"{by.user.shown_name} took back that {asked.user.shown_name} is asked"
        _tell(question, Action.ASKING_TAKEN_BACK, said, asked, by=by.user)


def _lock_open(question: Question) -> None:
    """Lock the task, so that what people do at the same time happens one after the other."""
    Task.objects.select_for_update().get(pk=question.task_id)
    question.refresh_from_db()
    if not question.is_open:
        raise NotOpen(why_not_open(question))


def _tell(question: Question, action: Action, said: str, asked: Asked, *, by: User) -> None:
    record(
        action, by=by, task=question.task, subject=question.headline, question=question.pk,
        to=asked.user.shown_name, note=asked.note,
    )  # fmt: skip
    text = f"Question {question.number}: {said}."
    if asked.note and action != Action.ASKING_TAKEN_BACK:
        text += f" Note: {asked.note}"
    append_one(question.run, EventKind.NOTE, {"text": text})
    Change.objects.create(task_id=question.task_id, kind=ChangeKind.QUESTION)
