"""The user's notices: the list, and updates for the badge and toasts."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tasks_app.models import Notice
from tasks_app.notifications.preferences import mark_read
from tasks_app.permissions import notices_visible_to
from tasks_app.web.pages.access import principal_of

PER_PAGE = 50
#: A page that was away for long gets no more toasts than that; the bell counts them all.
MOST_TOASTS = 3
_LONGEST_NUMBER = 18


def notices(request: HttpRequest) -> HttpResponse:
    shown = notices_visible_to(principal_of(request)).select_related("task__project").defer("task__text")
    page = Paginator(shown.order_by("-pk"), PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "notices/page.html", {"page": page})


@require_POST
def notices_read(request: HttpRequest) -> HttpResponse:
    """Mark one notice (`notice=N`) or all as read."""
    number = request.POST.get("notice", "")
    if number and not _is_number(number):
        return redirect("notices")
    mark_read(principal_of(request), int(number) if number else None)
    return HttpResponse(status=204) if request.POST.get("quietly") else redirect("notices")


def fresh(request: HttpRequest) -> QuerySet[Notice] | list[Notice]:
    """Return urgent notices after the one that the page knows, for toasts."""
    after = request.GET.get("after", "")
    if not _is_number(after):
        return []
    news = notices_visible_to(principal_of(request)).urgent().filter(pk__gt=int(after))
    return news.select_related("task__project").order_by("-pk")[:MOST_TOASTS]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
