"""The address that a project's forge calls when something happens there. It has no session and no page."""

from __future__ import annotations

from allauth.core.internal import ratelimit
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from tasks_app.services.forge_webhooks import receive_call

#: Bytes of a call.
LONGEST_CALL = 2 * 2**20
_RATE = {"call": "600/m/ip"}
_PLAIN = "text/plain; charset=utf-8"


@csrf_exempt  # the signature stands in for the token
@login_not_required
@require_POST
def forge_webhook(request: HttpRequest, project_id: int) -> HttpResponse:
    """Check the signature and let the pull request be looked at. Nothing else of the call is used."""
    if not ratelimit.consume(request, app="forge_webhook", action="call", config=_RATE):
        return HttpResponse("Too many calls.\n", _PLAIN, status=429, headers={"Retry-After": "60"})
    body = request.read(LONGEST_CALL + 1)
    if len(body) > LONGEST_CALL:
        return HttpResponse("The call is too long.\n", _PLAIN, status=413)
    if not receive_call(project_id, body, request.headers):
        return HttpResponse("There is no such webhook, or the secret is another.\n", _PLAIN, status=404)
    return HttpResponse("Accepted.\n", _PLAIN, status=202)
