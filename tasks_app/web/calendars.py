"""What pages say after a calendar was read while the user waited."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from tasks_app.models import Calendar


def tell_reading(request: HttpRequest, calendar: Calendar) -> None:
    """Say that the calendar was read, or why not. Below it stands what was passed over."""
    if not calendar.source:
        messages.info(request, "The project has no on-call calendar.")
    elif calendar.fault:
        messages.error(request, f"The calendar was not read. {calendar.fault}")
    elif calendar.read_at:
        messages.success(request, "The calendar was read.")
    else:
        messages.info(request, "The calendar is being read.")  # by a worker, which was first
