"""The queue of waiting tasks."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import responses
from tasks_app.models import Scope
from tasks_app.schemas.workers import QueueOut

router = Router(tags=["Tasks"])


@router.get("/queue", response=responses(QueueOut), auth=authenticators(Scope.READ))
def get_queue(request: HttpRequest) -> QueueOut:
    """Return the tasks that wait, in the order of their turns, and what each waits for."""
    return QueueOut.seen_by(principal_of(request))
