"""Reply to a question in forms of programs, one item after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from django.db import transaction

from tasks_app.core.errors import NotOpen
from tasks_app.models import AnswerDraft, Channel, Question, User
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.questions.answers import Reply, answer_question, check_reply
from tasks_app.services.questions.question_outcomes import Answered, require_size, why_not_open


def drafts_of(questions: Iterable[Question], user: User) -> dict[int, AnswerDraft]:
    """Return the user's draft for each question, by its id; a new one if they have not replied yet."""
    drafts = {question.pk: AnswerDraft(question=question, user=user) for question in questions}
    for stored in AnswerDraft.objects.filter(question__in=list(drafts), user=user):
        stored.question = drafts[stored.question_id].question
        drafts[stored.question_id] = stored
    return drafts


def take_reply(draft: AnswerDraft, act: Callable[[], Answered | None]) -> Answered | None:
    """Return what `act` does with a reply to the form that was made from the draft as it is.

    Of several replies to that form one counts; return None for the others while the question is open. What
    `act` raises leaves the draft unchanged.
    """
    AnswerDraft.objects.get_or_create(question=draft.question, user=draft.user)
    with transaction.atomic():
        if draft.count_reply():
            return act()
    draft.question.refresh_from_db()
    return None if draft.question.is_open else act()


def answer_items(draft: AnswerDraft, reply: Reply, *, by: Principal, via: Channel) -> Answered | None:
    """Keep the answers to some items. Once every item has one, answer the question; until then return None.

    Raises what `answer_question` does.
    """
    question = draft.question
    require_actor(by, question.task.project)
    kept, notes = draft.answers, [draft.notes, reply.notes]
    if question.is_settled:  # sent again, or late
        kept, notes = question.answers, [question.notes]
    filled = [item for item in question.items if reply.answers[str(item["question"])].strip()]
    left = [item for item in question.items if str(item["question"]) not in kept]
    checked = check_reply(question, reply, filled or left[:1])
    answers = {**kept, **checked.answers}
    whole = replace(checked, answers=answers, notes="\n".join(filter(None, notes)))
    row = AnswerDraft.objects.filter(question=question, user=draft.user)
    if any(str(item["question"]) not in answers for item in question.items):
        require_size(*answers.values(), whole.notes)
        question.refresh_from_db()
        require_open(question)
        row.update(answers=answers, notes=whole.notes)
        return None
    row.update(answers={}, notes="")
    return answer_question(question, whole, by=by, via=via)


def require_open(question: Question) -> None:
    """Raise NotOpen with who answered it, when and what, unless the question is open."""
    if not question.is_open:
        raise NotOpen(why_not_open(question))
