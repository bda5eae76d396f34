"""Say that somebody is answering a question. It informs others, ends by itself and blocks nobody.

A claim is not audited: it changes nothing that anybody may do, and is renewed while its user writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tasks_app.models import CLAIM_LASTS, Change, ChangeKind, Question
from tasks_app.permissions import Principal, require_actor


def claim_question(question: Question, *, by: Principal) -> bool:
    """Claim an open question or renew the claim. Return False if somebody else is answering it."""
    require_actor(by, question.task.project)
    now = timezone.now()
    free = Q(claimed_by=None) | Q(claimed_at__lte=now - CLAIM_LASTS) | Q(claimed_by=by.user)
    claimable = Question.objects.open().filter(free, pk=question.pk)
    return _change_claim(question, claimable.update, claimed_by=by.user, claimed_at=now)


def release_question(question: Question, *, by: Principal) -> bool:
    """End the user's own claim. Return False if they have none."""
    require_actor(by, question.task.project)
    own = Question.objects.open().filter(pk=question.pk, claimed_by=by.user)
    return _change_claim(question, own.update, claimed_by=None, claimed_at=None)


def _change_claim(question: Question, update: Callable[..., int], **values: Any) -> bool:
    with transaction.atomic():
        changed = update(**values) > 0
        if changed:
            Change.objects.create(task_id=question.task_id, kind=ChangeKind.QUESTION)
    return changed
