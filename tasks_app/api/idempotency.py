"""`Idempotency-Key`: a request that is sent again with its key is answered again, and not done again."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Header, Schema, Status
from ninja.utils import contribute_operation_args
from pydantic import Field

from tasks_app.api.auth import principal_of
from tasks_app.api.problems import Kind, Refused
from tasks_app.models import IdempotencyKey, User

#: A request that has no answer after that long was cut off with its process.
GIVEN_UP_AFTER = timedelta(seconds=60)


class KeyHeader(Schema):
    idempotency_key: str | None = Field(
        None,
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Any text of your own, for 24 hours. The same request with the same key is done once; "
        "sent again, it gets the first answer again, with the header Idempotency-Replayed.",
    )


def once(operation: Callable[..., Status[Any]]) -> Callable[..., Any]:
    """For operations that create something or answer: what was refused is not kept, and can be mended."""

    @wraps(operation)
    def wrapper(request: HttpRequest, **given: Any) -> Any:
        key = given.pop("idempotency").idempotency_key
        if key is None:
            return operation(request, **given)
        row = _claimed(request, key)
        if row.status:
            return _replayed(row)
        try:
            done = operation(request, **given)
        except BaseException:
            row.delete()
            raise
        answer = {"status": done.status_code, "body": _kept(done.value).model_dump_json()}
        IdempotencyKey.objects.filter(pk=row.pk).update(**answer)  # gone, if it took too long
        return done

    # Ninja would look for the names in the annotations among those of this module.
    wrapper.__signature__ = inspect.signature(operation, eval_str=True)  # type: ignore[attr-defined]
    contribute_operation_args(wrapper, "idempotency", KeyHeader, Header(...))  # type: ignore[type-arg]
    return wrapper


def _kept(value: Any) -> Any:
    """What is kept of an answer: not what it tells only once."""
    return value.to_keep() if hasattr(value, "to_keep") else value


def _claimed(request: HttpRequest, key: str) -> IdempotencyKey:
    """The row of this key: a new one, or that of the answer which was given before. Raises Refused."""
    user, fingerprint = principal_of(request).user, _fingerprint(request)
    _forget_cut_off(user, key)
    try:
        with transaction.atomic():
            return IdempotencyKey.objects.create(user=user, key=key, fingerprint=fingerprint)
    except IntegrityError:
        row = IdempotencyKey.objects.filter(user=user, key=key).first()
    if row and row.fingerprint != fingerprint:
        raise Refused(Kind.KEY_REUSED, "This Idempotency-Key came with another request before.")
    if row is None or not row.status:
        detail = "The first request with this Idempotency-Key is not answered yet."
        raise Refused(Kind.KEY_IN_USE, detail, headers={"Retry-After": "1"})
    return row


def _forget_cut_off(user: User, key: str) -> None:
    before = timezone.now() - GIVEN_UP_AFTER
    IdempotencyKey.objects.filter(user=user, key=key, status=0, at__lt=before).delete()


def _replayed(row: IdempotencyKey) -> HttpResponse:
    response = HttpResponse(row.body, status=row.status, content_type="application/json; charset=utf-8")
    response["Idempotency-Replayed"] = "true"
    return response


def _fingerprint(request: HttpRequest) -> str:
    """Also of the token's limits: one that sees less is not told what another did."""
    project_ids = principal_of(request).project_ids
    limits = "all" if project_ids is None else " ".join(map(str, sorted(project_ids)))
    whole = f"{request.method} {request.get_full_path()}\n{limits}\n".encode() + request.body
    return hashlib.sha256(whole).hexdigest()
