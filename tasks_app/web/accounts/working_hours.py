"""The page of a person's working hours and absences."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import time
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tasks_app.config.fields import LONGEST_CALENDAR
from tasks_app.core.calendars import MOST_BYTES
from tasks_app.core.errors import BadInput
from tasks_app.core.time_zones import time_zone_names
from tasks_app.core.working_hours import Absence, absences_from
from tasks_app.models import Calendar, User
from tasks_app.services.calendars import (
    absence_calendar_of,
    read_absence_calendar,
    remove_absence_calendar,
    upload_absence_calendar,
    use_absence_calendar,
)
from tasks_app.services.working_hours import (
    MOST_ABSENCES,
    entered_absences,
    save_working_hours,
    schedule_of,
)
from tasks_app.web.access import TimeInput, current_user, principal_of
from tasks_app.web.calendars import tell_reading

#: Absences of a calendar that the page lists.
SHOWN_ABSENCES = 10


class DateInput(forms.DateInput):
    input_type = "date"

    def __init__(self, **attributes: str) -> None:
        super().__init__(attributes, format="%Y-%m-%d")


class WorkingHoursForm(forms.Form):
    """For each weekday `begin-N` and `end-N`, both empty for a day off, and the time zone."""

    time_zone = forms.ChoiceField()

    def __init__(self, given: Any, *, user: User) -> None:
        schedule = schedule_of(user)
        super().__init__(given, initial={"time_zone": user.time_zone or "UTC"})
        # pages.js selects the browser's time zone for users who have not saved a zone yet.
        attributes = {"data-browser-time-zone": ""} if given is None and not user.time_zone else {}
        self.fields["time_zone"] = forms.ChoiceField(
            choices=[(name, name) for name in time_zone_names()], widget=forms.Select(attributes)
        )
        for number, (name, hours) in enumerate(zip(calendar.day_name, schedule.week, strict=True)):
            for edge in ("begin", "end"):
                label = f"{name} {'from' if edge == 'begin' else edge}"
                self.fields[f"{edge}-{number}"] = forms.TimeField(
                    required=False,
                    initial=hours and getattr(hours, edge),
                    widget=TimeInput(**{"aria-label": label}),
                )

    def days(self) -> Iterator[tuple[str, forms.BoundField, forms.BoundField]]:
        for number, name in enumerate(calendar.day_name):
            yield name, self[f"begin-{number}"], self[f"end-{number}"]

    def week(self) -> list[tuple[time, time] | None]:
        """Return the hours of each day. Raise BadInput if only one of two times was entered."""
        found: list[tuple[time, time] | None] = []
        for number in range(7):
            begin, end = (self.cleaned_data[f"{edge}-{number}"] for edge in ("begin", "end"))
            if (begin is None) != (end is None):
                raise BadInput("Enter both a beginning and an end, or neither.", where=f"week.{number}")
            found.append((begin, end) if begin is not None else None)
        return found


class AbsenceForm(forms.Form):
    first = forms.DateField(widget=DateInput(**{"aria-label": "First day"}))
    last = forms.DateField(required=False, widget=DateInput(**{"aria-label": "Last day"}))
    word = forms.CharField(
        required=False,
        max_length=60,
        widget=forms.TextInput({"aria-label": "Word for it", "placeholder": "holiday"}),
    )


AbsenceForms = forms.formset_factory(AbsenceForm, extra=2, max_num=MOST_ABSENCES, can_delete=True)


class CalendarForm(forms.Form):
    url = forms.CharField(
        required=False,
        max_length=LONGEST_CALENDAR,
        widget=forms.URLInput({"placeholder": "https://", "autocomplete": "off"}),
    )
    file = forms.FileField(
        required=False, max_length=255, widget=forms.FileInput({"accept": ".ics,text/calendar"})
    )


@require_http_methods(["GET", "POST"])
def working_hours(request: HttpRequest) -> HttpResponse:
    user = current_user(request)
    if request.POST.get("form") == "calendar":
        return _change_calendar(request)
    given = request.POST if request.method == "POST" else None
    form = WorkingHoursForm(given, user=user)
    present = [vars(one) for one in entered_absences(user)]
    absences = AbsenceForms(given, initial=present, prefix="absences")
    if given is not None and form.is_valid() and absences.is_valid():
        kept = [one.cleaned_data for one in absences if one.cleaned_data.get("first")]
        rows = [
            Absence(one["first"], one["last"] or one["first"], one["word"])
            for one in kept
            if not one["DELETE"]
        ]
        try:
            save_working_hours(
                principal_of(request), week=form.week(), absences=rows, zone=form.cleaned_data["time_zone"]
            )
        except BadInput as error:
            field = error.where.replace("week.", "begin-")
            form.add_error(field if field in form.fields else None, error.message)
        else:
            messages.success(request, "Saved.")
            return redirect("me_working_hours")
    failed = form.errors or any(absences.errors)
    return _render(request, form, absences, CalendarForm(), status=400 if failed else 200)


def _render(
    request: HttpRequest, form: WorkingHoursForm, absences: Any, calendar_form: CalendarForm, *, status: int
) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "absences": absences, "calendar_form": calendar_form}
    if calendar := absence_calendar_of(user := current_user(request)):
        schedule = schedule_of(user)
        today = timezone.now().astimezone(schedule.zone).date()
        found = absences_from(calendar.events, schedule.zone, schedule.week)
        coming = [one for one in found if one.last >= today]
        context |= {"calendar": calendar, "coming": coming[:SHOWN_ABSENCES], "coming_count": len(coming)}
    return render(request, "accounts/working_hours.html", context, status=status)


def _change_calendar(request: HttpRequest) -> HttpResponse:
    """Store, read or remove the calendar of the user's absences."""
    form = CalendarForm(request.POST, request.FILES)
    principal = principal_of(request)
    if "remove" in request.POST:
        remove_absence_calendar(principal)
        messages.success(request, "Calendar removed.")
        return redirect("me_working_hours")
    if "read" in request.POST:
        calendar = get_object_or_404(Calendar, user=principal.user)
        try:
            tell_reading(request, read_absence_calendar(principal, calendar))
        except BadInput as error:
            messages.error(request, error.message)
        return redirect("me_working_hours")
    if form.is_valid():
        url, file = form.cleaned_data["url"].strip(), form.cleaned_data["file"]
        try:
            if bool(url) == bool(file):
                raise BadInput("Enter a URL or choose a file.")
            if file:
                upload_absence_calendar(principal, file.name, file.read(MOST_BYTES + 1))
            else:
                tell_reading(request, read_absence_calendar(principal, use_absence_calendar(principal, url)))
        except BadInput as error:
            form.add_error("file" if file and not url else "url", error.message)
        else:
            messages.success(request, "Saved.")
            return redirect("me_working_hours")
    user = current_user(request)
    present = [vars(one) for one in entered_absences(user)]
    return _render(
        request,
        WorkingHoursForm(None, user=user),
        AbsenceForms(None, initial=present, prefix="absences"),
        form,
        status=400,
    )
