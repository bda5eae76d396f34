"""An installable portal and pushed notifications: manifest, service worker, offline page, browsers."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.templatetags.static import static
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed, NotOpen
from tasks_app.models import Channel, PushSubscription, Verdict
from tasks_app.notifications.web_push import (
    DENIED_NOTES,
    Browser,
    is_signed,
    send_test,
    subscribe,
    unsubscribe,
)
from tasks_app.services.questions.answers import decide
from tasks_app.web.access import current_user, principal_of, question_or_404
from tasks_app.web.accounts.signals import describe_browser


@login_not_required
@require_GET
def manifest(request: HttpRequest) -> JsonResponse:
    icons = [
        {"src": static(f"catherder/app-{size}.png"), "sizes": f"{size}x{size}", "type": "image/png",
         "purpose": purpose}
        for size in (192, 512)
        for purpose in ("any", "maskable")
    ]  # fmt: skip
    manifest = {
        "name": "Cat Herder",
        "short_name": "Cat Herder",
        "id": "/",
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": "#f6f6f3",
        "theme_color": "#1d675f",
        "icons": icons,
        "shortcuts": [{"name": "Inbox", "url": "/inbox/"}, {"name": "New task", "url": "/tasks/new/"}],
    }
    return JsonResponse(manifest, content_type="application/manifest+json")


@login_not_required
@require_GET
def service_worker(request: HttpRequest) -> HttpResponse:
    """Return the script. It is at the root, because it only sees pages below its own URL."""
    return render(request, "app/service_worker.js", content_type="text/javascript")


@login_not_required
@require_GET
def offline(request: HttpRequest) -> HttpResponse:
    return render(request, "app/offline.html")


@require_POST
def push_subscribe(request: HttpRequest) -> HttpResponse:
    """Store this browser. push.js sends what the browser said, so errors are for developers."""
    given = (request.POST.get(name, "") for name in ("endpoint", "p256dh", "auth"))
    try:
        browser = Browser.checked(*given)
    except BadInput as error:
        messages.error(request, f"This browser cannot be used: {error}")
        return redirect("me_notifications")
    name = describe_browser(request.headers.get("User-Agent", ""))
    subscription = subscribe(current_user(request), browser, name=name)
    send_test(subscription)
    messages.success(request, "This browser gets notifications now. A test is on its way.")
    return redirect("me_notifications")


@csrf_exempt  # a service worker has no token; the signature stands in for it
@require_POST
def question_push_decide(request: HttpRequest, question_id: int) -> JsonResponse:
    """Approve or deny in a pushed notification, which shows the message of the response."""
    question = question_or_404(request, question_id)
    if not is_signed(request.POST.get("signature", ""), question, current_user(request)):
        raise PermissionDenied("This notification does not allow this. Open the question instead.")
    verdict = request.POST.get("verdict", "")
    notes = DENIED_NOTES if verdict == Verdict.DENIED else ""
    try:
        done = decide(question, verdict, by=principal_of(request), via=Channel.WEB, notes=notes)
    except NotAllowed:
        raise
    except CatHerderError as error:
        return JsonResponse({"message": str(error)}, status=409 if isinstance(error, NotOpen) else 400)
    return JsonResponse({"message": f"{done.question.outcome}."})


@require_POST
def push_remove(request: HttpRequest, subscription_id: int) -> HttpResponse:
    unsubscribe(get_object_or_404(PushSubscription, pk=subscription_id, user=current_user(request)))
    messages.success(request, "The browser was removed.")
    return redirect("me_notifications")


@require_POST
def push_test(request: HttpRequest, subscription_id: int) -> HttpResponse:
    send_test(get_object_or_404(PushSubscription, pk=subscription_id, user=current_user(request)))
    messages.success(request, "A test is being sent. The delivery log below shows the result.")
    return redirect("me_notifications")
