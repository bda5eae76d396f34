"""Personal settings: notifications."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.core.errors import BadInput
from tasks_app.models import Delivery, PushSubscription, Target
from tasks_app.notifications.preferences import save_preferences
from tasks_app.notifications.recipients import preferences_of
from tasks_app.notifications.targets import try_target
from tasks_app.notifications.web_push import application_server_key
from tasks_app.web.forms.notifications import PreferencesForm
from tasks_app.web.pages.access import current_user, principal_of

LOGGED = 15


@require_http_methods(["GET", "POST"])
def me_notifications(request: HttpRequest) -> HttpResponse:
    principal = principal_of(request)
    given = request.POST if request.method == "POST" else None
    form = PreferencesForm(given, principal=principal, preferences=preferences_of(principal.user))
    if given is not None and form.is_valid() and _saved(request, form):
        return redirect("me_notifications")
    context = {
        "form": form,
        "chat": Target.objects.filter(user=principal.user).first(),
        "sends_email": settings.SENDS_EMAIL,
        "deliveries": _recent_deliveries(request),
        "browsers": PushSubscription.objects.filter(user=principal.user),
        "push_key": application_server_key(),
    }
    return render(request, "me/notifications.html", context, status=400 if form.errors else 200)


def _saved(request: HttpRequest, form: PreferencesForm) -> bool:
    try:
        save_preferences(principal_of(request), form.choice())
    except BadInput as error:
        form.add_error(error.where if error.where in form.fields else "chat", error.message)
        return False
    messages.success(request, "Saved.")
    return True


def _recent_deliveries(request: HttpRequest) -> list[Delivery]:
    user = current_user(request)
    mine = Delivery.objects.filter(Q(user=user) | Q(target__user=user) | Q(browser__user=user))
    related = mine.select_related("target", "transition__task__project")
    return list(related.order_by("-pk")[:LOGGED])


@require_POST
def me_notifications_test(request: HttpRequest) -> HttpResponse:
    """Queue a test, which the worker sends; the log shows its outcome."""
    principal = principal_of(request)
    try:
        try_target(get_object_or_404(Target, user=principal.user), by=principal)
        messages.success(request, "A test is being sent. The delivery log below shows the result.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("me_notifications")
