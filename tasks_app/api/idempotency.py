"""`Idempotency-Key`: a repeated request gets the first response again and is not carried out again."""

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
from tasks_app.models import IdempotencyKey

#: A request without a response after this time ended with its process.
ABANDONED_AFTER = timedelta(seconds=60)


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


def once(operation: Callable[..., Status[Any]]) -> Callable[..., Any]:
    """Make an operation accept the header. Refused requests are not stored, so they can be corrected."""

    @wraps(operation)
    def wrapper(request: HttpRequest, **given: Any) -> Any:
        key = given.pop("idempotency").idempotency_key
        if key is None:
            return operation(request, **given)
        row = _claim_key(request, key)
        if row.status:
            return _replay(row)
        try:
            done = operation(request, **given)
        except BaseException:
            row.delete()
            raise
        response = {"status": done.status_code, "body": _body_to_store(done.value).model_dump_json()}
        IdempotencyKey.objects.filter(pk=row.pk).update(**response)  # no row: it took too long
        return done

    # Ninja would look for the names in the annotations among those of this module.
    wrapper.__signature__ = inspect.signature(operation, eval_str=True)  # type: ignore[attr-defined]
    contribute_operation_args(wrapper, "idempotency", KeyHeader, Header(...))  # type: ignore[type-arg]
    return wrapper


def _body_to_store(value: Any) -> Any:
    """Return the response without what it shows only once."""
    return value.to_keep() if hasattr(value, "to_keep") else value


def _claim_key(request: HttpRequest, key: str) -> IdempotencyKey:
    """Return a new row for the key, or the row with the stored response. Raise Refused."""
    user, fingerprint = principal_of(request).user, _fingerprint(request)
    abandoned_before = timezone.now() - ABANDONED_AFTER
    IdempotencyKey.objects.filter(user=user, key=key, status=0, at__lt=abandoned_before).delete()
    try:
        with transaction.atomic():
            return IdempotencyKey.objects.create(user=user, key=key, fingerprint=fingerprint)
    except IntegrityError:
        row = IdempotencyKey.objects.filter(user=user, key=key).first()
    if row and row.fingerprint != fingerprint:
        raise Refused(Kind.KEY_REUSED, "This Idempotency-Key was used for another request.")
    if row is None or not row.status:
        detail = "The first request with this Idempotency-Key has no response yet."
        raise Refused(Kind.KEY_IN_USE, detail, headers={"Retry-After": "1"})
    return row


def _replay(row: IdempotencyKey) -> HttpResponse:
    response = HttpResponse(row.body, status=row.status, content_type="application/json; charset=utf-8")
    response["Idempotency-Replayed"] = "true"
    return response


def _fingerprint(request: HttpRequest) -> str:
    """Return a hash of the request and the token's projects: tokens that see less get no stored response."""
    project_ids = principal_of(request).project_ids
    limits = "all" if project_ids is None else " ".join(map(str, sorted(project_ids)))
    whole = f"{request.method} {request.get_full_path()}\n{limits}\n".encode() + request.body
    return hashlib.sha256(whole).hexdigest()
