"""`Idempotency-Key`: a repeated request gets the first response again and is not carried out again."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial, wraps
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Header, Schema, Status
from ninja.utils import contribute_operation_args
from pydantic import Field

from tasks_app.api.auth import principal_of
from tasks_app.api.problems import Kind, Refused
from tasks_app.core.errors import CatHerderError
from tasks_app.history.audit import witnessed_by
from tasks_app.models import AuditEntry, IdempotencyKey, Task

#: Another request may take the key over from one that has done nothing in this time. The first one may only
#: be slow: then its action is undone (`_mark_carried_out`).
ABANDONED_AFTER = timedelta(seconds=60)
LOST_RESPONSE = "The request was carried out, but its response was lost. It is not carried out again."


class KeyHeader(Schema):
    idempotency_key: str | None = Field(
        None,
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Any text of your own, valid for 24 hours. A request is carried out once for each key; "
        "repeated, it gets the first response again, with the header Idempotency-Replayed.",
    )


def once(
    operation: Callable[..., Status[Any]] | None = None,
    *,
    again: Callable[[HttpRequest, Task, Mapping[str, Any]], Status[Any]] | None = None,
) -> Callable[..., Any]:
    """Make an operation accept the header. Refused requests are not stored, so they can be corrected.

    If a process died between an action and its response, the request is not carried out again: `again` makes
    the response from the action's task and the arguments. Without it, the request is told so.
    """
    if operation is None:
        return partial(once, again=again)

    @wraps(operation)
    def wrapper(request: HttpRequest, **given: Any) -> Any:
        key = given.pop("idempotency").idempotency_key
        if key is None:
            return operation(request, **given)
        row = _claim_key(request, key)
        if row.status:
            kind = "application/json; charset=utf-8"
            response = HttpResponse(row.body, status=row.status, content_type=kind)
            response["Idempotency-Replayed"] = "true"
            return response
        mine = IdempotencyKey.objects.filter(pk=row.pk, attempt=row.attempt)
        if row.carried_out and again is not None and row.task is not None:
            done = again(request, row.task, given)
        elif row.carried_out:
            if row.at > timezone.now() - ABANDONED_AFTER:  # it may still be at work
                raise _in_use()
            raise Refused(Kind.KEY_DONE, LOST_RESPONSE)
        else:
            try:
                with witnessed_by(partial(_mark_carried_out, mine)):
                    done = operation(request, **given)
            except (CatHerderError, Refused):  # it did nothing, or took back what it did
                mine.delete()
                raise
            except BaseException:
                mine.filter(carried_out=False).delete()
                raise
        mine.update(status=done.status_code, body=_body_to_store(done.value).model_dump_json())
        return done

    # Ninja would resolve the names in the annotations in this module.
    wrapper.__signature__ = inspect.signature(operation, eval_str=True)  # type: ignore[attr-defined]
    contribute_operation_args(wrapper, "idempotency", KeyHeader, Header(...))  # type: ignore[type-arg]
    return wrapper


def _mark_carried_out(mine: QuerySet[IdempotencyKey], entry: AuditEntry) -> None:
    """Note in the action's own transaction that it happened; undo it if a later attempt has the key."""
    concerned: dict[str, Any] = {"carried_out": True}
    if entry.task_id:
        concerned["task"] = entry.task_id
    if not mine.update(**concerned):
        raise Refused(Kind.KEY_IN_USE, "Another request with this Idempotency-Key has taken over.")


def _body_to_store(value: Any) -> Any:
    """Return the response without the parts that are shown only once."""
    return value.to_keep() if hasattr(value, "to_keep") else value


def _claim_key(request: HttpRequest, key: str) -> IdempotencyKey:
    """Return the key's row: new, with the stored response, or left by a request that died. Raise Refused."""
    user, fingerprint = principal_of(request).user, _fingerprint(request)
    try:
        with transaction.atomic():
            return IdempotencyKey.objects.create(user=user, key=key, fingerprint=fingerprint)
    except IntegrityError:
        row = IdempotencyKey.objects.select_related("task").filter(user=user, key=key).first()
    if row and row.fingerprint != fingerprint:
        raise Refused(Kind.KEY_REUSED, "This Idempotency-Key was used for another request.")
    if row and (row.status or row.carried_out):
        return row
    abandoned = IdempotencyKey.objects.filter(carried_out=False, at__lt=timezone.now() - ABANDONED_AFTER)
    if row and abandoned.filter(pk=row.pk, attempt=row.attempt).update(attempt=row.attempt + 1, at=Now()):
        row.attempt += 1
        return row
    raise _in_use()


def _in_use() -> Refused:
    detail = "The first request with this Idempotency-Key has no response yet."
    return Refused(Kind.KEY_IN_USE, detail, headers={"Retry-After": "1"})


def _fingerprint(request: HttpRequest) -> str:
    """Return a hash of the request and the token's projects: tokens that see less get no stored response."""
    project_ids = principal_of(request).project_ids
    limits = "all" if project_ids is None else " ".join(map(str, sorted(project_ids)))
    whole = f"{request.method} {request.get_full_path()}\n{limits}\n".encode() + request.body
    return hashlib.sha256(whole).hexdigest()
