"""Operations on your account: your notices and tokens."""

from __future__ import annotations

from datetime import time
from typing import Annotated

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import ExactNumber, Input, Paging, TokenId, page_of, responses
from tasks_app.config.fields import LONGEST_CALENDAR
from tasks_app.core.calendars import MOST_BYTES
from tasks_app.core.errors import BadInput
from tasks_app.core.working_hours import Absence, absences_from
from tasks_app.models import Calendar, Scope, User
from tasks_app.notifications.preferences import mark_read
from tasks_app.schemas.accounts import AbsenceCalendarOut, Me, TokenListed, WorkingHoursOut
from tasks_app.schemas.notifications import NoticeOut
from tasks_app.services.accounts import revoke_token as revoke
from tasks_app.services.calendars import read_absence_calendar as read_calendar
from tasks_app.services.calendars import remove_absence_calendar as remove_calendar
from tasks_app.services.calendars import upload_absence_calendar, use_absence_calendar
from tasks_app.services.working_hours import entered_absences, save_working_hours, schedule_of


class TokenPage(Schema):
    items: list[TokenListed] = Field(description="Tokens, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NoticePage(Schema):
    items: list[NoticeOut] = Field(description="Notices, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class Read(Input):
    notice: ExactNumber | None = Field(None, description="The id of a notice; default: all notices.")


class ReadDone(Schema):
    read: int = Field(description="The number of notices that were unread.")


class WorkingHoursIn(Input, WorkingHoursOut):
    """Your working hours, absences and time zone, complete."""


class CalendarIn(Input):
    """A calendar in the format iCalendar: its URL, or its content."""

    url: Annotated[str, Field(max_length=LONGEST_CALENDAR)] = Field(
        "",
        description="An https URL, which is read every 15 minutes.",
        examples=["https://example.org/a.ics"],
    )
    content: Annotated[str, Field(max_length=MOST_BYTES)] = Field(
        "", description="The text of a file, which is read once, 400 days ahead."
    )


router = Router(tags=["Me"])


class NoticeFilters(Schema):
    unread: bool = Field(False, description="Only unread notices.")


@router.get("/me", response=responses(Me), auth=authenticators(Scope.READ))
def get_me(request: HttpRequest) -> Me:
    """Return your user and the permissions of the token that you use."""
    principal = principal_of(request)
    return Me.from_row(principal.user, token=principal.token)


@router.get("/me/working-hours", response=responses(WorkingHoursOut), auth=authenticators(Scope.READ))
def get_working_hours(request: HttpRequest) -> WorkingHoursOut:
    """Return your working hours and absences."""
    return _working_hours(principal_of(request).user)


@router.put("/me/working-hours", response=responses(WorkingHoursOut), auth=authenticators(Scope.MANAGE))
def change_working_hours(request: HttpRequest, body: WorkingHoursIn) -> WorkingHoursOut:
    """Change your working hours and absences. Not with a restricted token."""
    principal = principal_of(request)
    week = [
        (time.fromisoformat(day.begin), time.fromisoformat(day.end)) if day else None for day in body.week
    ]
    absences = [Absence(one.first, one.last, one.word) for one in body.absences]
    try:
        save_working_hours(principal, week=week, absences=absences, zone=body.time_zone)
    except BadInput as error:
        raise BadInput(error.message, where=f"body.{error.where}") from None
    return _working_hours(User.objects.get(pk=principal.user.pk))


def _working_hours(user: User) -> WorkingHoursOut:
    schedule = schedule_of(user)
    week = [day and {"begin": f"{day.begin:%H:%M}", "end": f"{day.end:%H:%M}"} for day in schedule.week]
    absences = [vars(one) for one in entered_absences(user)]
    return WorkingHoursOut.model_validate(
        {"week": week, "absences": absences, "time_zone": user.time_zone or "UTC"}
    )


@router.get(
    "/me/absence-calendar", response=responses(AbsenceCalendarOut, 404), auth=authenticators(Scope.READ)
)
def get_absence_calendar(request: HttpRequest) -> AbsenceCalendarOut:
    """Return the calendar of your absences, with what was read of it."""
    user = principal_of(request).user
    calendar = get_object_or_404(Calendar, user=user)
    schedule = schedule_of(user)
    found = absences_from(calendar.events, schedule.zone, schedule.week)
    days = [{"first": one.first, "last": one.last} for one in found]
    return AbsenceCalendarOut.model_validate(
        {
            "source": calendar.source, "uploaded": not calendar.encrypted_url, "read_at": calendar.read_at,
            "fault": calendar.fault, "fault_since": calendar.fault_since, "notes": calendar.notes,
            "absences": days,
        }
    )  # fmt: skip


@router.put("/me/absence-calendar", response=responses(AbsenceCalendarOut), auth=authenticators(Scope.MANAGE))
def change_absence_calendar(request: HttpRequest, body: CalendarIn) -> AbsenceCalendarOut:
    """Let days off come from a calendar. Not with a restricted token.

    They join those that you entered. What counts are all-day events, and events that are marked as out of
    office or take a day or more, unless they are marked as free.
    """
    principal = principal_of(request)
    if bool(body.url) == bool(body.content):
        raise BadInput("Send either url or content.", where="body")
    try:
        if body.url:
            use_absence_calendar(principal, body.url)
        else:
            upload_absence_calendar(principal, "", body.content.encode())
    except BadInput as error:
        raise BadInput(error.message, where="body.url" if body.url else "body.content") from None
    return get_absence_calendar(request)


@router.post(
    "/me/absence-calendar/read",
    response=responses(AbsenceCalendarOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def read_absence_calendar(request: HttpRequest) -> AbsenceCalendarOut:
    """Read the calendar of your absences now, instead of within 15 minutes. Not with a restricted token.

    `fault` says why it cannot be read. A calendar that was sent as content is refused.
    """
    principal = principal_of(request)
    read_calendar(principal, get_object_or_404(Calendar, user=principal.user))
    return get_absence_calendar(request)


@router.delete(
    "/me/absence-calendar", response=responses(None, 404, status=204), auth=authenticators(Scope.MANAGE)
)
def remove_absence_calendar(request: HttpRequest) -> Status[None]:
    """Remove the calendar of your absences. Not with a restricted token."""
    principal = principal_of(request)
    get_object_or_404(Calendar, user=principal.user)
    remove_calendar(principal)
    return Status(204, None)


@router.get("/me/notices", response=responses(NoticePage), auth=authenticators(Scope.READ))
def list_notices(request: HttpRequest, only: Query[NoticeFilters], paging: Query[Paging]) -> NoticePage:
    """List your notices, the newest first."""
    rows = permissions.notices_visible_to(principal_of(request))
    if only.unread:
        rows = rows.unread()
    rows = rows.select_related("task__project").defer("task__text")
    found, following = page_of(request, rows, paging)
    return NoticePage(items=[NoticeOut.from_row(row) for row in found], next=following)


@router.post("/me/notices/read", response=responses(ReadDone), auth=authenticators(Scope.WRITE))
def read_notices(request: HttpRequest, body: Read) -> ReadDone:
    """Mark one of your notices as read, or all of them."""
    return ReadDone(read=mark_read(principal_of(request), body.notice))


@router.get("/me/tokens", response=responses(TokenPage), auth=authenticators(Scope.MANAGE))
def list_tokens(request: HttpRequest, paging: Query[Paging]) -> TokenPage:
    """List your tokens that are not revoked. New tokens are created in the portal, with your password.

    A token that is restricted to some projects can only list and revoke itself.
    """
    rows = permissions.tokens_visible_to(principal_of(request)).filter(revoked_at=None)
    found, following = page_of(request, rows.prefetch_related("projects"), paging)
    return TokenPage(items=[TokenListed.from_row(row) for row in found], next=following)


@router.delete(
    "/me/tokens/{token_id}", response=responses(None, 404, status=204), auth=authenticators(Scope.MANAGE)
)
def revoke_token(request: HttpRequest, token_id: TokenId) -> Status[None]:
    """Revoke a token. This cannot be undone."""
    revoke(permissions.token_or_404(principal_of(request), token_id), by=principal_of(request))
    return Status(204, None)
